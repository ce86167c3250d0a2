//! The coordinator's side of a client's connection: a session, and a task for each statement.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use datafusion_common::ScalarValue;
use thetis_executor::ExecError;
use thetis_executor::frame::{Epoch, Frame, Message};
use thetis_executor::task::{Addressed, Delivery, Envelope};
use thetis_executor::threads::are_several;
use thetis_parser::{parse_parameterized, parse_statement};
use thetis_planner::{Output, Plan};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::protocol::{Answer, Description, Request, RowsHead};
use crate::analyze::Explained;
use crate::data::{Encoder, decode_ipc};
use crate::error::{Failure, StatementError};
use crate::link::Running;
use crate::net::framing::{Parcel, Receiver, Sender};
use crate::net::transport::NetError;
use crate::session::{Reply, Session};
use crate::work::is_changelog;

/// How often a client hears what its query has counted.
const COUNTS: Duration = Duration::from_millis(200);

/// Why a statement is not answered to its end.
#[derive(Debug)]
enum Broken {
    /// The client is told.
    Statement(StatementError),
    /// The client is gone.
    Net(NetError),
}

impl<E: Into<StatementError>> From<E> for Broken {
    fn from(error: E) -> Self {
        Self::Statement(error.into())
    }
}

fn gone(error: NetError) -> Broken {
    Broken::Net(error)
}

/// Answers a request. When the client wants no answer any more, whatever was begun ends.
pub(crate) async fn serve(
    session: Arc<Session>,
    request: Request,
    values: Buffer,
    status: impl FnOnce() -> Answer,
    mut sender: Sender,
    mut receiver: Receiver,
) {
    let unwanted = sender.stopped();
    let answer = async {
        match answer(&session, request, &values, status, &mut sender).await {
            Ok(()) => {}
            Err(Broken::Statement(error)) => {
                let failed = Answer::Failed(Failure::from(error));
                if let Ok(parcel) = Parcel::new(&failed) {
                    let _ = sender.send(parcel).await;
                }
            }
            Err(Broken::Net(error)) => debug!(%error, "the client is gone"),
        }
        sender.finish();
        sender.stopped().await;
    };
    tokio::select! {
        biased;
        () = unwanted => {}
        // The client has nothing to say: when its side ends, it is gone.
        _ = receiver.receive() => {}
        () = answer => {}
    }
}

async fn say(sender: &mut Sender, answer: &Answer) -> Result<(), Broken> {
    sender.send(Parcel::new(answer).map_err(gone)?).await.map_err(gone)
}

/// Planning takes a deep stack and may look at files.
async fn plan<T: Send + 'static>(
    session: &Arc<Session>,
    work: impl FnOnce(&Session) -> Result<T, StatementError> + Send + 'static,
) -> Result<T, StatementError> {
    let session = Arc::clone(session);
    // A simulation has one thread.
    if !are_several() {
        return work(&session);
    }
    let planned = tokio::task::spawn_blocking(move || work(&session)).await;
    planned.map_err(|error| ExecError::Internal(format!("planning failed: {error}")))?
}

async fn answer(
    session: &Arc<Session>,
    request: Request,
    values: &Buffer,
    status: impl FnOnce() -> Answer,
    sender: &mut Sender,
) -> Result<(), Broken> {
    match request {
        Request::Describe => say(sender, &Answer::Description(describe(session))).await,
        Request::Status => say(sender, &status()).await,
        Request::Check(sql, output) => {
            plan(session, move |session| {
                if let Reply::Work(work) = session.handle(&parse(&sql)?, output)? {
                    work.define(session.database())?;
                }
                Ok(())
            })
            .await?;
            say(sender, &Answer::Checked).await
        }
        Request::InsertRows(sql) => {
            let sets = rows_of(values)?;
            let types: Vec<_> = sets.iter().take(1).flatten().map(ScalarValue::data_type).collect();
            let reply = plan(session, move |session| {
                let (statement, _) = parse_parameterized(&sql).map_err(thetis_planner::PlanError::from)?;
                session.bind_rows(&session.prepare(&statement, &types)?, &sets)
            });
            match reply.await? {
                Some(reply) => finish(session, reply, sender).await,
                None => say(sender, &Answer::OneByOne).await,
            }
        }
        Request::Execute(sql, output) => {
            let values = rows_of(values)?.into_iter().next().unwrap_or_default();
            let reply = plan(session, move |session| run(session, &sql, &values, output)).await?;
            finish(session, reply, sender).await
        }
    }
}

fn parse(sql: &str) -> Result<thetis_parser::Statement, StatementError> {
    Ok(parse_statement(sql).map_err(thetis_planner::PlanError::from)?)
}

fn run(session: &Session, sql: &str, values: &[ScalarValue], output: Output) -> Result<Reply, StatementError> {
    if values.is_empty() {
        return session.handle(&parse(sql)?, output);
    }
    let (statement, _) = parse_parameterized(sql).map_err(thetis_planner::PlanError::from)?;
    let types: Vec<_> = values.iter().map(ScalarValue::data_type).collect();
    session.bind(&session.prepare(&statement, &types)?, values, output)
}

/// The rows of values in a request's body.
fn rows_of(body: &Buffer) -> Result<Vec<Vec<ScalarValue>>, StatementError> {
    let mut body = body.clone();
    let mut decoder = StreamDecoder::new();
    let mut rows = Vec::new();
    while !body.is_empty() {
        let batch = decode_ipc(&mut decoder, &mut body);
        let malformed = |what: &str| ExecError::Internal(format!("the values of parameters: {what}"));
        let Some(batch) = batch.map_err(|error| malformed(&crate::error::chain(&error)))? else { break };
        if batch.num_columns() == 0 {
            return Err(malformed("rows without values").into());
        }
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| ScalarValue::try_from_array(column, row));
            rows.push(values.collect::<Result<_, _>>().map_err(ExecError::from)?);
        }
    }
    Ok(rows)
}

/// What a session sees.
pub fn describe(session: &Session) -> Description {
    let catalog = session.database().catalog();
    let relation = |(name, relation): (&str, &thetis_planner::catalog::Relation)| {
        (name.to_owned(), relation.kind().to_owned(), relation.schema())
    };
    let settings = session.settings().rows().into_iter().map(|row| (row.name.to_owned(), row.value));
    Description { relations: catalog.relations().map(relation).collect(), settings: settings.collect() }
}

async fn finish(session: &Arc<Session>, reply: Reply, sender: &mut Sender) -> Result<(), Broken> {
    let database = session.database();
    match reply {
        Reply::Done(done) => say(sender, &Answer::Done(done, Vec::new())).await,
        Reply::Table(batch) => send_table(sender, batch).await,
        Reply::Work(work) => {
            let notices = work.notices().to_vec();
            let done = database.perform(*work, std::future::pending()).await?;
            say(sender, &Answer::Done(done, notices)).await
        }
        Reply::Query(plan) => {
            let running = database.start(&plan).await?;
            send_query(sender, &plan, running).await
        }
        Reply::Analyze(explained) => {
            let mut analysis = database.analyze(&explained.plan).await?;
            let head = RowsHead { schema: Explained::schema(), changes: false, bounded: true, notices: Vec::new() };
            say(sender, &Answer::Rows(head)).await?;
            let counters = Arc::clone(&analysis.counters);
            let mut next = Instant::now() + COUNTS;
            let measured = loop {
                tokio::select! {
                    biased;
                    measured = analysis.measured() => break measured?,
                    () = sleep_until(next) => {
                        next = Instant::now() + COUNTS;
                        say(sender, &Answer::Counted(counters.snapshot())).await?;
                    }
                }
            };
            send_rows(sender, explained.table(Some(&measured))?).await
        }
    }
}

/// A small table.
async fn send_table(sender: &mut Sender, batch: RecordBatch) -> Result<(), Broken> {
    let head = RowsHead { schema: batch.schema(), changes: false, bounded: true, notices: Vec::new() };
    say(sender, &Answer::Rows(head)).await?;
    send_rows(sender, batch).await
}

async fn send_rows(sender: &mut Sender, batch: RecordBatch) -> Result<(), Broken> {
    let mut encoder = Encoder::new(&batch.schema(), false).map_err(codec)?;
    for start in (0..batch.num_rows()).step_by(thetis_executor::frame::FRAME_ROWS) {
        let length = thetis_executor::frame::FRAME_ROWS.min(batch.num_rows() - start);
        let frame = Frame::inserts(batch.slice(start, length), Epoch::END);
        send_message(sender, &mut encoder, Message::Frame(frame)).await?;
    }
    say(sender, &Answer::End).await
}

fn codec(error: crate::data::CodecError) -> Broken {
    ExecError::Internal(crate::error::chain(&error)).into()
}

async fn send_message(sender: &mut Sender, encoder: &mut Encoder, message: Message) -> Result<(), Broken> {
    let addressed = Addressed { tasks: vec![0], envelope: Envelope { channel: 0, message } };
    for parcel in encoder.encode_as(&addressed, &Answer::Frame).map_err(codec)? {
        sender.send(parcel).await.map_err(gone)?;
    }
    Ok(())
}

/// What a query delivers, as it comes, and now and then what it has counted.
async fn send_query(sender: &mut Sender, plan: &Plan, mut running: Running) -> Result<(), Broken> {
    let schema = Arc::clone(&plan.dag.sink().schema);
    let head = RowsHead {
        schema: Arc::clone(&schema),
        changes: is_changelog(plan),
        bounded: plan.dag.bounded(),
        notices: plan.notices.clone(),
    };
    say(sender, &Answer::Rows(head)).await?;
    let mut encoder = Encoder::new(&schema, false).map_err(codec)?;
    let counters = Arc::clone(&running.counters);
    let mut next = Instant::now() + COUNTS;
    loop {
        let delivery = tokio::select! {
            biased;
            () = sleep_until(next) => {
                next = Instant::now() + COUNTS;
                say(sender, &Answer::Counted(counters.snapshot())).await?;
                continue;
            }
            delivery = running.next() => delivery?,
        };
        match delivery {
            Some(Delivery::Frame(frame)) => send_message(sender, &mut encoder, Message::Frame(frame)).await?,
            Some(Delivery::Progress(Epoch::END)) => {
                // Whoever has the end may read the counts.
                say(sender, &Answer::Counted(counters.last().await)).await?;
                send_message(sender, &mut encoder, Message::Progress(Epoch::END)).await?;
            }
            Some(Delivery::Progress(epoch)) => {
                send_message(sender, &mut encoder, Message::Progress(epoch)).await?;
            }
            None => return say(sender, &Answer::End).await,
        }
    }
}
