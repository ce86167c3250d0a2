//! Prepared statements: parsed once, resolved once per types of their parameters, run many times.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use thetis_cluster::{Completion, Prepared, Session};
use thetis_parser::{Statement as Parsed, parse_parameterized};
use thetis_planner::Output;

use crate::backend::Call;
use crate::connection::{CancelHandle, Connection};
use crate::error::Error;
use crate::result::ResultSet;
use crate::statement::{BatchError, Response, Runner, result, rows};
use crate::subscription::Subscription;

/// A Rust value that can be a parameter. Its type is the parameter's type.
pub trait ToValue {
    /// The value.
    fn to_value(&self) -> ScalarValue;
}

macro_rules! to_value {
    ($($rust:ty => $variant:ident),*) => {
        $(
            impl ToValue for $rust {
                fn to_value(&self) -> ScalarValue {
                    ScalarValue::$variant(Some((*self).into()))
                }
            }

            impl ToValue for Option<$rust> {
                fn to_value(&self) -> ScalarValue {
                    ScalarValue::$variant(self.map(Into::into))
                }
            }
        )*
    };
}

to_value!(bool => Boolean, i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64, u32 => UInt32, u64 => UInt64,
    f32 => Float32, f64 => Float64, &str => Utf8);

impl ToValue for String {
    fn to_value(&self) -> ScalarValue {
        ScalarValue::Utf8(Some(self.clone()))
    }
}

impl ToValue for Option<String> {
    fn to_value(&self) -> ScalarValue {
        ScalarValue::Utf8(self.clone())
    }
}

impl ToValue for ScalarValue {
    fn to_value(&self) -> ScalarValue {
        self.clone()
    }
}

/// A statement with parameters, `?` or `$1`, `$2`, ....
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let connection = thetis::Driver::open("thetis:")?;
/// connection.statement().execute("CREATE TABLE bikes (id BIGINT, km DOUBLE)").await?;
/// let mut insert = connection.prepare("INSERT INTO bikes VALUES (?, ?)")?;
/// for id in 0..100_i64 {
///     insert.bind(1, &id)?.bind(2, &(id as f64 / 10.0))?.add_batch()?;
/// }
/// insert.execute_batch().await.map_err(|failed| *failed.error)?;
/// let mut near = connection.prepare("SELECT id FROM bikes WHERE km BETWEEN $1 - $2 AND $1 + $2")?;
/// let mut rows = near.bind(1, &5.0)?.bind(2, &0.15)?.query().await?;
/// let mut found = Vec::new();
/// while let Some(row) = rows.next_row().await? {
///     found.push(row.get::<i64>("id")?);
/// }
/// assert_eq!(found, [49, 50, 51]);
/// # Ok::<(), thetis::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct PreparedStatement {
    runner: Runner,
    sql: Arc<str>,
    statement: Arc<Parsed>,
    values: Vec<Option<ScalarValue>>,
    batch: Vec<Vec<ScalarValue>>,
    resolved: Arc<Cache>,
}

/// The statement with its names resolved, for the parameters' types of the last execution.
#[derive(Debug, Default)]
struct Cache(Mutex<Option<(Vec<DataType>, Prepared)>>);

impl Cache {
    fn get(&self, session: &Session, statement: &Parsed, types: &[DataType]) -> Result<Prepared, Error> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some((of, prepared)) if of == types && session.is_current(prepared) => Ok(prepared.clone()),
            _ => {
                let prepared = session.prepare(statement, types)?;
                *cached = Some((types.to_vec(), prepared.clone()));
                Ok(prepared)
            }
        }
    }
}

impl PreparedStatement {
    pub(crate) fn new(connection: Connection, sql: &str) -> Result<Self, Error> {
        let (statement, parameters) = parse_parameterized(sql)?;
        Ok(Self {
            runner: Runner::new(connection),
            sql: sql.into(),
            statement: Arc::new(statement),
            values: vec![None; parameters],
            batch: Vec::new(),
            resolved: Arc::default(),
        })
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        self.values.len()
    }

    /// Gives the parameter at `position`, from 1, its value for the executions to come.
    ///
    /// # Errors
    /// There is no such parameter.
    pub fn bind(&mut self, position: usize, value: &dyn ToValue) -> Result<&mut Self, Error> {
        let count = self.values.len();
        let place = position.checked_sub(1).and_then(|position| self.values.get_mut(position));
        *place.ok_or_else(|| Error::usage(format!("there is no parameter {position}: the statement has {count}")))? =
            Some(value.to_value());
        Ok(self)
    }

    /// Takes all values away.
    pub fn clear_parameters(&mut self) {
        self.values.fill(None);
    }

    /// Runs the statement with the values that were bound.
    ///
    /// # Errors
    /// A parameter has no value, or whatever is wrong with the statement.
    pub async fn execute(&mut self) -> Result<Response, Error> {
        self.run(Output::Result).await
    }

    /// Runs the query with the values that were bound.
    ///
    /// # Errors
    /// As for [`Self::execute`], the statement gives no rows, or they change for ever.
    pub async fn query(&mut self) -> Result<ResultSet, Error> {
        result(self.execute().await?)
    }

    /// Follows the query with the values that were bound.
    ///
    /// # Errors
    /// As for [`Self::execute`], or the statement gives no rows.
    pub async fn subscribe(&mut self) -> Result<Subscription, Error> {
        rows(self.run(Output::Changes).await?)?.into_subscription()
    }

    /// Keeps the values that were bound for [`Self::execute_batch`].
    ///
    /// # Errors
    /// A parameter has no value.
    pub fn add_batch(&mut self) -> Result<(), Error> {
        let bound = self.bound()?;
        self.batch.push(bound);
        Ok(())
    }

    /// Runs the statement once for each [`Self::add_batch`], in their order, and forgets them. An INSERT
    /// of constant rows is one step: all of its rows, or none.
    ///
    /// # Errors
    /// The first error, with what was done before it.
    pub async fn execute_batch(&mut self) -> Result<Vec<Completion>, BatchError> {
        let sets = std::mem::take(&mut self.batch);
        let mut done = Vec::with_capacity(sets.len());
        match self.insert_rows(&sets).await {
            Ok(Some(all)) => return Ok(all),
            Ok(None) => {}
            Err(error) => return Err(BatchError::new(done, error)),
        }
        for set in sets {
            match self.run_with(set, Output::Result).await {
                Ok(Response::Done(completion)) => done.push(completion),
                Ok(Response::Rows(_)) => {
                    return Err(BatchError::new(done, Error::usage("a batch has no statements that give rows")));
                }
                Err(error) => return Err(BatchError::new(done, error)),
            }
        }
        Ok(done)
    }

    /// Cancels what this statement runs, from any thread.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.runner.cancel.clone()
    }

    /// As for [`crate::Statement::set_query_timeout`].
    pub fn set_query_timeout(&mut self, timeout: Option<Duration>) {
        self.runner.timeout = timeout;
    }

    /// As for [`crate::Statement::set_fetch_size`].
    pub fn set_fetch_size(&mut self, rows: Option<usize>) {
        self.runner.fetch_size = rows.filter(|rows| *rows > 0);
    }

    /// What the user should be told about the last execution.
    pub fn warnings(&self) -> &[String] {
        &self.runner.warnings
    }

    fn bound(&self) -> Result<Vec<ScalarValue>, Error> {
        let value = |(i, value): (usize, &Option<ScalarValue>)| {
            value.clone().ok_or_else(|| Error::usage(format!("parameter {} has no value", i + 1)))
        };
        self.values.iter().enumerate().map(value).collect()
    }

    async fn run(&mut self, output: Output) -> Result<Response, Error> {
        let values = self.bound()?;
        self.run_with(values, output).await
    }

    async fn run_with(&mut self, values: Vec<ScalarValue>, output: Output) -> Result<Response, Error> {
        let (statement, resolved) = (Arc::clone(&self.statement), Arc::clone(&self.resolved));
        let bound = values.clone();
        let plan = move |session: &Session| {
            if values.is_empty() && !can_be_prepared(&statement) {
                return Ok(session.handle(&statement, output)?);
            }
            let prepared = resolved.get(session, &statement, &types(&values))?;
            Ok(session.bind(&prepared, &values, output)?)
        };
        self.runner.run(Call::Bound { sql: self.sql.to_string(), values: bound, output, plan: Box::new(plan) }).await
    }

    /// Runs an INSERT of constant rows for all sets at once; `None` for another statement.
    async fn insert_rows(&mut self, sets: &[Vec<ScalarValue>]) -> Result<Option<Vec<Completion>>, Error> {
        let Some(first) = sets.first() else { return Ok(Some(Vec::new())) };
        let (first, count) = (types(first), sets.len());
        if !matches!(*self.statement, Parsed::Insert(_)) || sets.iter().any(|set| types(set) != first) {
            return Ok(None);
        }
        let (statement, resolved) = (Arc::clone(&self.statement), Arc::clone(&self.resolved));
        let (sets, bound) = (sets.to_vec(), sets.to_vec());
        let plan = move |session: &Session| {
            let prepared = resolved.get(session, &statement, &first)?;
            Ok(session.bind_rows(&prepared, &sets)?)
        };
        let mut execution = self.runner.begin();
        let backend = self.runner.connection.backend.clone();
        let done = backend.insert_rows(self.sql.to_string(), bound, plan, &mut execution).await?;
        Ok(done.map(|all| {
            let rows = all.rows.map(|rows| rows / count as u64);
            vec![Completion { rows, ..all }; count]
        }))
    }
}

fn types(values: &[ScalarValue]) -> Vec<DataType> {
    values.iter().map(ScalarValue::data_type).collect()
}

fn can_be_prepared(statement: &Parsed) -> bool {
    matches!(statement, Parsed::Query(_) | Parsed::Insert(_) | Parsed::Update(_) | Parsed::Delete(_))
}
