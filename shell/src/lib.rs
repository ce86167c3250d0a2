//! Continuous SQL with theta joins, as a library.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let connection = thetis::Driver::open("thetis:")?;
//! let mut statement = connection.statement();
//! let mut result = statement
//!     .query("SELECT a.x AS x, b.y AS y FROM (VALUES (1), (5)) AS a(x) JOIN (VALUES (3), (7)) AS b(y) ON a.x < b.y")
//!     .await?;
//! assert_eq!(result.schema().field(0).name(), "x");
//! let mut pairs = 0;
//! while let Some(row) = result.next_row().await? {
//!     assert!(row.get::<i64>("x")? < row.get::<i64>("y")?);
//!     pairs += 1;
//! }
//! assert_eq!(pairs, 3);
//! # Ok::<(), thetis::Error>(())
//! # }).unwrap();
//! ```
//!
//! A [`Driver`] opens a [`Connection`] to an engine of its own; a [`DataSource`] is an engine that several
//! connections share. A [`Statement`] runs SQL, a [`PreparedStatement`] runs it with parameters; a
//! [`ResultSet`] gives rows or Arrow batches as they come, a [`Subscription`] the changes of a result.
//! Everything that waits is asynchronous and runs on any executor: the engine has threads of its own.

mod backend;
pub mod blocking;
mod connection;
mod error;
mod metadata;
mod prepared;
mod result;
mod row;
mod statement;
mod subscription;

pub use backend::data_folder;
pub use connection::{CancelHandle, Connection, DataSource, Driver};
pub use datafusion_common::ScalarValue;
pub use error::{Error, ErrorKind};
pub use metadata::{ColumnInfo, DatabaseMetaData, RelationInfo, RelationKind};
pub use prepared::{PreparedStatement, ToValue};
pub use result::{Progress, ResultSet};
pub use row::{FromValue, Row};
pub use statement::{BatchError, Response, Statement};
pub use subscription::{Changes, Event, Subscription};
pub use thetis_cluster::Completion;
pub use thetis_cluster::front::protocol::{QueryRow, Status, TaskRow, WorkerRow};
pub use thetis_executor::export::{CsvRows, NdjsonRows, TIMESTAMP};
pub use thetis_parser::{Open, Piece, Position, Splitter, SqlError, closest, split, substitute};
pub use thetis_planner::{SettingRow, parse_duration};

/// The Arrow types that results are made of.
pub use arrow;
