//! The library for programs without an asynchronous runtime: the same types, whose methods wait.
//!
//! Nothing is done twice here: every method runs the asynchronous one of the same name to its end. They
//! must not be called from within an asynchronous runtime, which they would block.
//!
//! ```
//! use thetis::blocking::Connection;
//!
//! let connection = Connection::open("thetis:")?;
//! connection.statement().execute("CREATE TABLE t (x BIGINT)")?;
//! connection.statement().execute("INSERT INTO t VALUES (1), (2), (3)")?;
//! let mut statement = connection.statement();
//! let xs: Vec<i64> = statement.query("SELECT x FROM t")?.map(|row| row?.get("x")).collect::<Result<_, _>>()?;
//! assert_eq!(xs, [1, 2, 3]);
//! # Ok::<(), thetis::Error>(())
//! ```

use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use tokio::runtime::Handle;

use crate::connection::CancelHandle;
use crate::error::Error;
use crate::prepared::ToValue;
use crate::row::Row;
use crate::statement::BatchError;
use crate::subscription::{Changes, Event};
use crate::{Completion, Driver, Progress};

/// Runs futures on the threads of a connection.
#[derive(Debug, Clone)]
struct Waiter(Handle);

impl Waiter {
    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }
}

/// A [`crate::Connection`] whose statements wait.
#[derive(Debug, Clone)]
pub struct Connection {
    inner: crate::Connection,
}

impl Connection {
    /// As for [`Driver::open`].
    ///
    /// # Errors
    /// As there.
    pub fn open(url: &str) -> Result<Self, Error> {
        Ok(Driver::open(url)?.into())
    }

    /// As for [`crate::Connection::statement`].
    pub fn statement(&self) -> Statement {
        Statement { inner: self.inner.statement(), waiter: self.waiter() }
    }

    /// As for [`crate::Connection::prepare`].
    ///
    /// # Errors
    /// As there.
    pub fn prepare(&self, sql: &str) -> Result<PreparedStatement, Error> {
        Ok(PreparedStatement { inner: self.inner.prepare(sql)?, waiter: self.waiter() })
    }

    fn waiter(&self) -> Waiter {
        Waiter(self.inner.backend.runtime().clone())
    }
}

impl From<crate::Connection> for Connection {
    fn from(inner: crate::Connection) -> Self {
        Self { inner }
    }
}

/// What a statement comes to.
#[derive(Debug)]
pub enum Response {
    /// It is done.
    Done(Completion),
    /// Rows.
    Rows(ResultSet),
}

/// Declares a type that wraps an asynchronous one, with the methods that are the same but for waiting.
macro_rules! waiting {
    (
        $(#[$doc:meta])* $name:ident {
            $($(#[$method_doc:meta])* $method:ident($($argument:ident: $type:ty),*) -> $ok:ty, $error:ty;)*
        }
        plain {
            $($(#[$plain_doc:meta])* $plain:ident($($plain_argument:ident: $plain_type:ty),*) $(-> $plain_result:ty)?;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            inner: crate::$name,
            waiter: Waiter,
        }

        impl $name {
            $(
                $(#[$method_doc])*
                ///
                /// # Errors
                /// As for the asynchronous method of this name.
                pub fn $method(&mut self $(, $argument: $type)*) -> Result<$ok, $error> {
                    let Self { inner, waiter } = self;
                    waiter.wait(inner.$method($($argument),*)).map(|done| Wrap::wrap(done, waiter))
                }
            )*
            $(
                $(#[$plain_doc])*
                pub fn $plain(&mut self $(, $plain_argument: $plain_type)*) $(-> $plain_result)? {
                    self.inner.$plain($($plain_argument),*)
                }
            )*
        }
    };
}

waiting! {
    /// A [`crate::Statement`] whose methods wait.
    Statement {
        /// Runs one statement of any kind.
        execute(sql: &str) -> Response, Error;
        /// Runs one statement; a query gives its changes.
        execute_changes(sql: &str) -> Response, Error;
        /// Runs a statement that gives rows.
        query(sql: &str) -> ResultSet, Error;
        /// Runs a query and gives the changes of its result.
        changes(sql: &str) -> ResultSet, Error;
        /// Follows the result of a query.
        subscribe(sql: &str) -> Subscription, Error;
        /// Runs a statement that gives no rows; how many it has changed.
        update(sql: &str) -> u64, Error;
        /// Runs statements that give no rows.
        execute_batch(statements: &[&str]) -> Vec<Completion>, BatchError;
    }
    plain {
        /// Cancels what this statement runs, from any thread.
        cancel_handle() -> CancelHandle;
        /// The longest that an execution may take from now on.
        set_query_timeout(timeout: Option<Duration>);
        /// The most rows that a result gives out at once from now on.
        set_fetch_size(rows: Option<usize>);
    }
}

waiting! {
    /// A [`crate::PreparedStatement`] whose methods wait.
    PreparedStatement {
        /// Runs the statement with the values that were bound.
        execute() -> Response, Error;
        /// Runs the query with the values that were bound.
        query() -> ResultSet, Error;
        /// Follows the query with the values that were bound.
        subscribe() -> Subscription, Error;
        /// Runs the statement once for each `add_batch`.
        execute_batch() -> Vec<Completion>, BatchError;
    }
    plain {
        /// Keeps the values that were bound for `execute_batch`.
        ///
        /// # Errors
        /// A parameter has no value.
        add_batch() -> Result<(), Error>;
        /// Takes all values away.
        clear_parameters();
        /// Cancels what this statement runs, from any thread.
        cancel_handle() -> CancelHandle;
        /// The longest that an execution may take from now on.
        set_query_timeout(timeout: Option<Duration>);
        /// The most rows that a result gives out at once from now on.
        set_fetch_size(rows: Option<usize>);
    }
}

impl PreparedStatement {
    /// Gives a parameter its value for the executions to come.
    ///
    /// # Errors
    /// There is no such parameter.
    pub fn bind(&mut self, position: usize, value: &dyn ToValue) -> Result<&mut Self, Error> {
        self.inner.bind(position, value)?;
        Ok(self)
    }
}

waiting! {
    /// A [`crate::ResultSet`] whose methods wait; also an iterator over its rows.
    ResultSet {
        /// The next rows as an Arrow batch; `None` at the end.
        next_batch() -> Option<RecordBatch>, Error;
        /// The next row; `None` at the end.
        next_row() -> Option<Row>, Error;
    }
    plain {
        /// What the user should be told about the query, up to now.
        warnings() -> Vec<String>;
        /// How far the query is.
        progress() -> Progress;
    }
}

impl ResultSet {
    /// Names and types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        self.inner.schema()
    }
}

impl Iterator for ResultSet {
    type Item = Result<Row, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_row().transpose()
    }
}

waiting! {
    /// A [`crate::Subscription`] whose methods wait; also an iterator over its epochs.
    Subscription {
        /// The next event; `None` when the result will never change again.
        next_event() -> Option<Event>, Error;
        /// All changes of the next epoch that has any; `None` when there will be none.
        next_epoch() -> Option<Vec<Changes>>, Error;
    }
    plain {}
}

impl Subscription {
    /// Columns of the result.
    pub fn schema(&self) -> &SchemaRef {
        self.inner.schema()
    }
}

impl Iterator for Subscription {
    type Item = Result<Vec<Changes>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_epoch().transpose()
    }
}

/// From what an asynchronous method gives to what the waiting one gives.
trait Wrap<T> {
    fn wrap(inner: T, waiter: &Waiter) -> Self;
}

macro_rules! wrap_same {
    ($($type:ty),*) => {
        $(impl Wrap<$type> for $type {
            fn wrap(inner: $type, _waiter: &Waiter) -> Self {
                inner
            }
        })*
    };
}

wrap_same!(u64, Vec<Completion>, Option<RecordBatch>, Option<Row>, Option<Event>, Option<Vec<Changes>>);

impl Wrap<crate::ResultSet> for ResultSet {
    fn wrap(inner: crate::ResultSet, waiter: &Waiter) -> Self {
        Self { inner, waiter: waiter.clone() }
    }
}

impl Wrap<crate::Subscription> for Subscription {
    fn wrap(inner: crate::Subscription, waiter: &Waiter) -> Self {
        Self { inner, waiter: waiter.clone() }
    }
}

impl Wrap<crate::Response> for Response {
    fn wrap(inner: crate::Response, waiter: &Waiter) -> Self {
        match inner {
            crate::Response::Done(done) => Self::Done(done),
            crate::Response::Rows(rows) => Self::Rows(Wrap::wrap(rows, waiter)),
        }
    }
}
