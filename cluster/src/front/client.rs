//! A client of a coordinator.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema};
use arrow_buffer::Buffer;
use arrow_ipc::writer::StreamEncoder;
use datafusion_common::ScalarValue;
use thetis_executor::ExecError;
use thetis_executor::frame::Message;
use thetis_executor::query::Process;
use thetis_executor::task::Delivery;
use thetis_planner::Output;
use tokio::sync::{Mutex, mpsc, watch};

use super::protocol::{Answer, Description, Request, RowsHead, Status};
use crate::data::Decoder;
use crate::error::StatementError;
use crate::link::{Counters, Outcome, Running};
use crate::net::framing::{Parcel, Received, Receiver, Sender, framed};
use crate::net::transport::{Connection, NetError, Peer, Transport};
use crate::protocol::Greeting;
use crate::work::Completion;

/// Deliveries that wait for who reads the result; behind them the network's windows fill up.
const QUEUE: usize = 4;

/// Why a statement is not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The coordinator cannot be asked.
    #[error(transparent)]
    Net(#[from] NetError),
    /// The statement fails.
    #[error(transparent)]
    Statement(#[from] StatementError),
    /// It answers something else than it was asked.
    #[error("the coordinator's answer is not understood")]
    Answer,
}

/// What a statement comes to.
#[derive(Debug)]
pub enum Response {
    /// It is done; what the user should be told.
    Done(Completion, Vec<String>),
    /// Rows.
    Rows(RowsHead, Running),
}

/// A session with a coordinator. When the connection is lost, the next statement begins a new one, with the
/// default settings.
#[derive(Debug)]
pub struct Client {
    transport: Arc<dyn Transport>,
    address: String,
    connection: Mutex<Option<Arc<dyn Connection>>>,
}

impl Client {
    /// Connects to the coordinator at `address`.
    ///
    /// # Errors
    /// Nobody is there, or it does not want this client.
    pub async fn connect(transport: Arc<dyn Transport>, address: &str) -> Result<Self, NetError> {
        let client = Self { transport, address: address.to_owned(), connection: Mutex::new(None) };
        client.status().await.map_err(|error| match error {
            ClientError::Net(NetError::Lost(reason)) => NetError::Refused { address: address.to_owned(), reason },
            ClientError::Net(error) => error,
            other => NetError::Protocol(other.to_string()),
        })?;
        Ok(client)
    }

    async fn open(&self) -> Result<(Sender, Receiver), NetError> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = &*current
            && let Ok(stream) = connection.open().await
        {
            return Ok(framed(stream));
        }
        let connection = self.transport.connect(&Peer::coordinator(), &self.address).await?;
        let stream = connection.open().await?;
        *current = Some(connection);
        Ok(framed(stream))
    }

    /// Asks; the stream on which the answers come.
    async fn ask(&self, request: Request, values: &[Vec<ScalarValue>]) -> Result<(Sender, Receiver), ClientError> {
        let (mut sender, receiver) = self.open().await?;
        let body = encode(values)?;
        sender.greet(Parcel::new(&Greeting::Request(Box::new(request)))?).await?;
        // Values may be many: they come behind the greeting, which is short.
        sender.send(Parcel::with_body(&(), &body)?).await?;
        Ok((sender, receiver))
    }

    async fn ask_once(&self, request: Request) -> Result<Answer, ClientError> {
        let (_sender, mut receiver) = self.ask(request, &[]).await?;
        match next(&mut receiver).await?.0 {
            Answer::Failed(failure) => Err(StatementError::from(failure).into()),
            answer => Ok(answer),
        }
    }

    /// Lists what there is.
    ///
    /// # Errors
    /// The coordinator cannot be asked.
    pub async fn describe(&self) -> Result<Description, ClientError> {
        match self.ask_once(Request::Describe).await? {
            Answer::Description(description) => Ok(description),
            _ => Err(ClientError::Answer),
        }
    }

    /// Says how the cluster is.
    ///
    /// # Errors
    /// The coordinator cannot be asked.
    pub async fn status(&self) -> Result<Status, ClientError> {
        match self.ask_once(Request::Status).await? {
            Answer::Status(status) => Ok(status),
            _ => Err(ClientError::Answer),
        }
    }

    /// Plans a statement, and defines what it defines.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub async fn check(&self, sql: String, output: Output) -> Result<(), ClientError> {
        match self.ask_once(Request::Check(sql, output)).await? {
            Answer::Checked => Ok(()),
            _ => Err(ClientError::Answer),
        }
    }

    /// Runs a statement with values for its parameters.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub async fn execute(
        &self,
        sql: String,
        values: Vec<ScalarValue>,
        output: Output,
    ) -> Result<Response, ClientError> {
        let rows: &[_] = if values.is_empty() { &[] } else { &[values] };
        let (sender, mut receiver) = self.ask(Request::Execute(sql, output), rows).await?;
        match next(&mut receiver).await?.0 {
            Answer::Done(done, notices) => Ok(Response::Done(done, notices)),
            Answer::Rows(head) => {
                let running = follow(&head, sender, receiver);
                Ok(Response::Rows(head, running))
            }
            Answer::Failed(failure) => Err(StatementError::from(failure).into()),
            _ => Err(ClientError::Answer),
        }
    }

    /// Runs an INSERT of constant rows for several sets of values in one step; `None` if it is none.
    ///
    /// # Errors
    /// Whatever is wrong with it.
    pub async fn insert_rows(&self, sql: String, sets: &[Vec<ScalarValue>]) -> Result<Option<Completion>, ClientError> {
        let (_sender, mut receiver) = self.ask(Request::InsertRows(sql), sets).await?;
        match next(&mut receiver).await?.0 {
            Answer::Done(done, _) => Ok(Some(done)),
            Answer::OneByOne => Ok(None),
            Answer::Failed(failure) => Err(StatementError::from(failure).into()),
            _ => Err(ClientError::Answer),
        }
    }
}

/// Rows of values as Arrow IPC; all of one column have the same type.
fn encode(rows: &[Vec<ScalarValue>]) -> Result<Vec<Buffer>, StatementError> {
    let Some(first) = rows.first() else { return Ok(Vec::new()) };
    let column = |i: usize| ScalarValue::iter_to_array(rows.iter().map(|row| row[i].clone()));
    let columns: Vec<ArrayRef> = (0..first.len()).map(column).collect::<Result<_, _>>().map_err(ExecError::from)?;
    let fields = columns.iter().map(|column| Field::new("value", column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options).map_err(ExecError::from)?;
    let mut encoder = StreamEncoder::try_new(&schema).map_err(ExecError::from)?;
    Ok(encoder.encode(&batch).map_err(ExecError::from)?)
}

async fn next(receiver: &mut Receiver) -> Result<(Answer, Received), ClientError> {
    let received = receiver.receive().await?.ok_or(NetError::Lost("the coordinator says no more".to_owned()))?;
    Ok((received.head()?, received))
}

/// A result that comes over the network, as if its query ran here.
fn follow(head: &RowsHead, sender: Sender, mut receiver: Receiver) -> Running {
    let (deliver, results) = mpsc::channel(QUEUE);
    let (outcome_sender, outcome) = watch::channel(None);
    let (stop, mut stopped) = watch::channel(false);
    let counters = Arc::new(Counters::remote());
    let mut decoder = Decoder::new(Arc::clone(&head.schema));
    let counted = Arc::clone(&counters);
    tokio::spawn(async move {
        let outcome: Outcome = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => Some(Err(ExecError::Cancelled)),
            result = deliver_all(&mut receiver, &mut decoder, &deliver, &counted) => Some(result),
        };
        // Dropping the stream tells the coordinator.
        drop((sender, receiver));
        outcome_sender.send_replace(outcome);
    });
    Running { results, counters, outcome, stop, complete: false }
}

async fn deliver_all(
    receiver: &mut Receiver,
    decoder: &mut Decoder,
    deliver: &mpsc::Sender<Delivery>,
    counters: &Counters,
) -> Result<(), ExecError> {
    let broken = |error: &dyn std::error::Error| ExecError::Lost {
        worker: "coordinator".to_owned(),
        reason: crate::error::chain(error),
    };
    loop {
        let (answer, received) = next(receiver).await.map_err(|error| broken(&error))?;
        match answer {
            Answer::Frame(head) => {
                let message = decoder.decode_head(head, &received.body).map_err(|error| broken(&error))?;
                let delivery = match message.envelope.message {
                    Message::Frame(frame) => Delivery::Frame(frame),
                    Message::Progress(epoch) => Delivery::Progress(epoch),
                };
                deliver.send(delivery).await.map_err(|_| ExecError::Cancelled)?;
            }
            Answer::Counted(snapshot) => counters.on_counted(Process(0), snapshot),
            Answer::End => return Ok(()),
            Answer::Failed(failure) => {
                return Err(match StatementError::from(failure) {
                    StatementError::Run(error) => error,
                    other => ExecError::Internal(crate::error::chain(&other)),
                });
            }
            _ => return Err(broken(&ClientError::Answer)),
        }
    }
}
