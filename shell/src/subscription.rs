//! Subscriptions: the changes of a result, and when each epoch is whole.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::error::Error;
use crate::result::{Feed, Query, ResultSet};

/// What a subscription gives.
#[derive(Debug, Clone)]
pub enum Event {
    /// Some changes of an epoch.
    Changes(Changes),
    /// All changes up to this epoch have been given: the result is exact up to here.
    Finished(u64),
}

/// Rows that were added to or taken from a result in one epoch.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The epoch.
    pub epoch: u64,
    /// The rows.
    pub rows: RecordBatch,
    /// One per row: +n for n inserts, -n for n deletes.
    pub weights: Vec<i64>,
}

/// The result of a query, followed. Dropping it ends the query.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let connection = thetis::Driver::open("thetis:")?;
/// let mut statement = connection.statement();
/// statement.execute("CREATE TABLE t (x BIGINT)").await?;
/// let mut counts = connection.statement().subscribe("SELECT COUNT(*) AS n FROM t").await?;
/// statement.execute("INSERT INTO t VALUES (1), (2)").await?;
/// let first = counts.next_epoch().await?.unwrap();
/// let second = counts.next_epoch().await?.unwrap();
/// assert_eq!(first[0].weights, [1]); // a count of 0
/// assert_eq!(second.iter().flat_map(|c| &c.weights).sum::<i64>(), 0); // 0 goes, 2 comes
/// # Ok::<(), thetis::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Subscription {
    schema: SchemaRef,
    query: Box<Query>,
    open: Vec<Changes>,
}

impl ResultSet {
    /// The result set of a query's changes as a subscription.
    pub(crate) fn into_subscription(self) -> Result<Subscription, Error> {
        match self.feed {
            Feed::Query(query) if query.is_changelog() => {
                Ok(Subscription { schema: query.result_schema(), query, open: Vec::new() })
            }
            _ => Err(Error::usage("only a query can be subscribed to")),
        }
    }
}

impl Subscription {
    /// Columns of the result.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next event; `None` when the result will never change again. May be dropped while it waits,
    /// and called again.
    ///
    /// # Errors
    /// Whatever goes wrong in the query, or it was cancelled.
    pub async fn next_event(&mut self) -> Result<Option<Event>, Error> {
        self.query.next_event().await
    }

    /// All changes of the next epoch that has any; `None` when the result will never change again.
    /// May be dropped while it waits, and called again.
    ///
    /// # Errors
    /// As for [`Self::next_event`].
    pub async fn next_epoch(&mut self) -> Result<Option<Vec<Changes>>, Error> {
        loop {
            match self.next_event().await? {
                Some(Event::Changes(changes)) => self.open.push(changes),
                Some(Event::Finished(epoch)) => {
                    let mut finished = std::mem::take(&mut self.open);
                    // Rows that only come need not wait for the epochs before theirs.
                    self.open = finished.extract_if(.., |changes| changes.epoch > epoch).collect();
                    if !finished.is_empty() {
                        return Ok(Some(finished));
                    }
                }
                None if self.open.is_empty() => return Ok(None),
                None => return Ok(Some(std::mem::take(&mut self.open))),
            }
        }
    }
}
