//! Tasks: the asynchronous loops that drive operators.
//!
//! A task has one bounded inbox for all its input channels, so it never waits for one input while
//! another has messages; the graph has no cycles, so waiting for room downstream cannot lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::array::RecordBatch;
use thetis_planner::physical::EpochPolicy;
use tokio::sync::{mpsc, watch};

use crate::clock::Clock;
use crate::counters::{EdgeCounters, Meter};
use crate::error::ExecError;
use crate::frame::{Epoch, Frame, Message};
use crate::operator::{Operator, Step};
use crate::route::Route;
use crate::source::{Fetched, Reader, SourceCounters, Waits};
use crate::steps::Steps;
use crate::threads::{in_place, pass};

/// A message with the channel of the receiving task that it came on.
#[derive(Debug)]
pub struct Envelope {
    /// The channel: one for each sending task of each edge into the receiver.
    pub channel: u32,
    /// What was sent.
    pub message: Message,
}

/// A message for tasks of another process, which are of one operator.
#[derive(Debug)]
pub struct Addressed {
    /// The tasks that get it, each once.
    pub tasks: Vec<u32>,
    /// The message; its channel has the same number at all of these tasks.
    pub envelope: Envelope,
}

/// What a query's client receives.
#[derive(Debug)]
pub enum Delivery {
    /// Rows of the result, or changes.
    Frame(Frame),
    /// Everything up to this epoch has been delivered.
    Progress(Epoch),
}

/// What the coordinator tells the tasks of a query, and they it.
#[derive(Debug, Clone)]
pub struct Control {
    /// Highest epoch that springs may use.
    pub granted: watch::Receiver<Epoch>,
    /// Highest epoch that may be folded into the base.
    pub committed: watch::Receiver<Epoch>,
    /// Progress of the sink.
    pub finished: Arc<watch::Sender<Epoch>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Where a task sends its output.
#[derive(Debug)]
pub(crate) enum Outbox {
    /// To other tasks.
    Edges(Vec<OutEdge>),
    /// To the client.
    Client(mpsc::Sender<Delivery>),
}

/// One edge out of a task.
#[derive(Debug)]
pub(crate) struct OutEdge {
    pub(crate) steps: Steps,
    pub(crate) route: Box<dyn Route + Sync>,
    /// The number of this task's channel at every target.
    pub(crate) channel: u32,
    /// By target task.
    pub(crate) targets: Vec<Target>,
    pub(crate) counters: Arc<EdgeCounters>,
}

/// A task that rows are sent to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    /// Its inbox, in this process.
    Here(mpsc::Sender<Envelope>),
    /// The queue to its process.
    Elsewhere(mpsc::Sender<Addressed>),
}

/// The receiver has gone: it has failed, or it wants no more.
fn gone<T>(_: mpsc::error::SendError<T>) -> ExecError {
    ExecError::Cancelled
}

impl OutEdge {
    async fn send(&mut self, frame: Frame, meter: &mut Meter) -> Result<(), ExecError> {
        let mut routed = Vec::new();
        for frame in self.steps.run(frame)? {
            let rows = self.route.route(frame, &mut routed)?;
            self.counters.routed.fetch_add(rows as u64, Ordering::Relaxed);
        }
        meter.worked();
        let channel = self.channel;
        let mut routed = routed.into_iter().peekable();
        while let Some((task, frame)) = routed.next() {
            self.counters.delivered.fetch_add(frame.rows() as u64, Ordering::Relaxed);
            match &self.targets[task as usize] {
                Target::Here(inbox) => {
                    inbox.send(Envelope { channel, message: Message::Frame(frame) }).await.map_err(gone)?;
                }
                Target::Elsewhere(queue) => {
                    // One copy travels for all tasks of a process.
                    let mut tasks = vec![task];
                    while let Some((other, _)) = routed
                        .next_if(|(other, copy)| copy.is_copy_of(&frame) && self.targets[*other as usize].is_by(queue))
                    {
                        self.counters.delivered.fetch_add(frame.rows() as u64, Ordering::Relaxed);
                        tasks.push(other);
                    }
                    let envelope = Envelope { channel, message: Message::Frame(frame) };
                    queue.send(Addressed { tasks, envelope }).await.map_err(gone)?;
                }
            }
        }
        meter.waited();
        Ok(())
    }

    /// Tells every target of progress.
    async fn progress(&self, epoch: Epoch) -> Result<(), ExecError> {
        let envelope = || Envelope { channel: self.channel, message: Message::Progress(epoch) };
        let mut told: Vec<&mpsc::Sender<Addressed>> = Vec::new();
        for target in &self.targets {
            match target {
                Target::Here(inbox) => inbox.send(envelope()).await.map_err(gone)?,
                Target::Elsewhere(queue) if told.iter().any(|other| other.same_channel(queue)) => {}
                Target::Elsewhere(queue) => {
                    let tasks = (0..).zip(&self.targets).filter(|(_, target)| target.is_by(queue));
                    let tasks = tasks.map(|(task, _)| task).collect();
                    queue.send(Addressed { tasks, envelope: envelope() }).await.map_err(gone)?;
                    told.push(queue);
                }
            }
        }
        Ok(())
    }
}

impl Target {
    /// Whether what is sent to the task goes by this queue.
    fn is_by(&self, queue: &mpsc::Sender<Addressed>) -> bool {
        matches!(self, Self::Elsewhere(own) if own.same_channel(queue))
    }
}

impl Outbox {
    pub(crate) async fn send(&mut self, frame: Frame, meter: &mut Meter) -> Result<(), ExecError> {
        meter.counters.add_out(&frame);
        match self {
            Self::Client(client) => {
                meter.worked();
                client.send(Delivery::Frame(frame)).await.map_err(gone)?;
                meter.waited();
            }
            Self::Edges(edges) => {
                for edge in edges {
                    edge.send(frame.clone(), meter).await?;
                }
            }
        }
        Ok(())
    }

    /// Everything is counted before: who has the last progress may read the counters.
    pub(crate) async fn progress(&mut self, epoch: Epoch, meter: &mut Meter) -> Result<(), ExecError> {
        meter.worked();
        match self {
            Self::Client(client) => client.send(Delivery::Progress(epoch)).await.map_err(gone)?,
            Self::Edges(edges) => {
                for edge in edges {
                    edge.progress(epoch).await?;
                }
            }
        }
        meter.waited();
        Ok(())
    }

    /// The first row of `frame` for which the steps of some edge fail.
    fn failing_row(&self, frame: &Frame) -> Option<usize> {
        let Self::Edges(edges) = self else {
            return None;
        };
        (0..frame.rows()).find(|row| {
            let weights = frame.weights.as_ref().map(|weights| weights[*row..=*row].into());
            let one = frame.with_rows(frame.batch.slice(*row, 1), weights);
            edges.iter().any(|edge| edge.steps.run(one.clone()).is_err())
        })
    }
}

/// A task that takes input.
#[derive(Debug)]
pub(crate) struct OperatorTask {
    pub(crate) label: String,
    pub(crate) operator: Box<dyn Operator>,
    pub(crate) inbox: mpsc::Receiver<Envelope>,
    /// The port of each channel.
    pub(crate) ports: Vec<u8>,
    pub(crate) outbox: Outbox,
    pub(crate) meter: Meter,
    pub(crate) control: Control,
    /// The last operator tells the coordinator of its progress.
    pub(crate) is_sink: bool,
}

impl OperatorTask {
    /// Runs until every input has ended, or the operator wants no more.
    pub(crate) async fn run(mut self) -> Result<(), ExecError> {
        let mut progress = vec![Epoch::NONE; self.ports.len()];
        let mut done = Epoch::NONE;
        while done < Epoch::END {
            let Envelope { channel, message } = self.inbox.recv().await.ok_or(ExecError::Cancelled)?;
            self.meter.begin();
            self.meter.counters.set_queue(self.inbox.len());
            match message {
                Message::Frame(frame) => {
                    self.meter.counters.add_in(&frame);
                    let (epoch, label) = (frame.epoch, &self.label);
                    let here = || format!("{label}, epoch {epoch}");
                    self.operator.on_frame(self.ports[channel as usize], frame).map_err(|error| error.at(here))?;
                    if self.drain().await? == Step::Finished {
                        return self.finish().await;
                    }
                }
                Message::Progress(epoch) => {
                    progress[channel as usize] = epoch;
                    let least = progress.iter().copied().min().unwrap_or(Epoch::END);
                    if least <= done {
                        continue;
                    }
                    done = least;
                    let label = &self.label;
                    self.operator.on_progress(done).map_err(|error| error.at(|| format!("{label}, epoch {done}")))?;
                    if self.drain().await? == Step::Finished {
                        return self.finish().await;
                    }
                    self.meter.counters.set_state_bytes(self.operator.state_bytes());
                    self.outbox.progress(done, &mut self.meter).await?;
                    if self.is_sink {
                        self.control.finished.send_replace(done);
                    }
                    let committed = *self.control.committed.borrow();
                    self.operator.on_commit(committed);
                }
            }
        }
        Ok(())
    }

    /// The result is complete before the input is.
    async fn finish(mut self) -> Result<(), ExecError> {
        self.outbox.progress(Epoch::END, &mut self.meter).await?;
        self.control.finished.send_replace(Epoch::END);
        Ok(())
    }

    /// Resumes the operator until it has nothing to do, sending what it emits.
    async fn drain(&mut self) -> Result<Step, ExecError> {
        let mut out = Vec::new();
        loop {
            let label = &self.label;
            let step = self.operator.resume(&mut out).map_err(|error| error.at(|| label.clone()))?;
            self.meter.counters.set_join(self.operator.counted());
            for frame in out.drain(..) {
                let label = &self.label;
                let sent = self.outbox.send(frame, &mut self.meter).await;
                sent.map_err(|error| error.at(|| format!("after {label}")))?;
            }
            self.meter.worked();
            if step != Step::Full {
                return Ok(step);
            }
            // Cancelling and the other tasks get their turn, also when nothing was sent.
            pass().await;
            self.meter.begin();
        }
    }
}

/// A task that reads a stream.
#[derive(Debug)]
pub(crate) struct SourceTask {
    pub(crate) stream: String,
    pub(crate) reader: Box<dyn Reader>,
    pub(crate) policy: EpochPolicy,
    /// Constant rows are all of the first epoch.
    pub(crate) constant: bool,
    pub(crate) outbox: Outbox,
    pub(crate) meter: Meter,
    pub(crate) control: Control,
    pub(crate) counters: Arc<SourceCounters>,
}

impl SourceTask {
    /// Runs to the end of the stream.
    pub(crate) async fn run(mut self) -> Result<(), ExecError> {
        let mut epoch = Epoch::FIRST;
        let mut in_epoch = 0;
        let mut row = 0;
        self.meter.begin();
        loop {
            let batch = match self.fetch()? {
                Fetched::Rows(batch) => batch,
                Fetched::LeftOut(rows) => {
                    if let EpochPolicy::Rows(length) = self.policy {
                        (epoch, in_epoch) = self.leave_out(rows, length, (epoch, in_epoch)).await?;
                    }
                    row += rows;
                    self.counters.left_out.fetch_add(rows, Ordering::Relaxed);
                    continue;
                }
                Fetched::Wait(time) => {
                    epoch = self.wait(epoch, time).await?;
                    continue;
                }
                Fetched::End => {
                    self.counters.last_epoch.store(epoch.0, Ordering::Release);
                    return self.outbox.progress(Epoch::END, &mut self.meter).await;
                }
            };
            match self.policy {
                _ if self.constant => self.emit(batch.clone(), epoch, row).await?,
                EpochPolicy::Rows(rows) => {
                    (epoch, in_epoch) = self.emit_by_rows(&batch, rows, (epoch, in_epoch), row).await?;
                }
                EpochPolicy::Commits => return Err(ExecError::Internal("commits cut the epochs of tables".to_owned())),
                EpochPolicy::Interval(interval) => {
                    epoch = self.close_by_clock(epoch, interval).await?;
                    self.emit(batch.clone(), epoch, row).await?;
                }
            }
            row += batch.num_rows() as u64;
            self.counters.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            // Cancelling and the other tasks get their turn, also when nothing was sent.
            self.meter.worked();
            pass().await;
            self.meter.begin();
        }
    }

    fn fetch(&mut self) -> Result<Fetched, ExecError> {
        let now = self.control.clock.now();
        match self.reader.waits() {
            Waits::Briefly => self.reader.next(now),
            Waits::ForReaders | Waits::ForWriter => in_place(|| self.reader.next(now)),
        }
    }

    /// Waits for rows, and closes the epochs that end meanwhile: at most to the end of the one
    /// that runs by the clock.
    async fn wait(&mut self, epoch: Epoch, time: Duration) -> Result<Epoch, ExecError> {
        self.meter.worked();
        match self.policy {
            EpochPolicy::Interval(interval) if !self.constant => {
                let now = self.control.clock.now();
                let into = now.as_nanos() % interval.as_nanos().max(1);
                let left = interval.saturating_sub(Duration::from_nanos(u64::try_from(into).unwrap_or(0)));
                tokio::time::sleep(time.min(left)).await;
                self.meter.begin();
                self.close_by_clock(epoch, interval).await
            }
            _ => {
                tokio::time::sleep(time).await;
                self.meter.begin();
                Ok(epoch)
            }
        }
    }

    /// Cuts a batch at the ends of epochs of `rows` rows.
    async fn emit_by_rows(
        &mut self,
        batch: &RecordBatch,
        rows: u64,
        (mut epoch, mut in_epoch): (Epoch, u64),
        first: u64,
    ) -> Result<(Epoch, u64), ExecError> {
        let mut at = 0;
        while at < batch.num_rows() {
            let length = (batch.num_rows() - at).min(usize::try_from(rows - in_epoch).unwrap_or(usize::MAX));
            self.granted(epoch).await?;
            self.emit(batch.slice(at, length), epoch, first + at as u64).await?;
            at += length;
            in_epoch += length as u64;
            if in_epoch == rows {
                self.outbox.progress(epoch, &mut self.meter).await?;
                epoch = Epoch(epoch.0 + 1);
                in_epoch = 0;
            }
        }
        Ok((epoch, in_epoch))
    }

    /// Rows that are not read belong to epochs too.
    async fn leave_out(
        &mut self,
        mut rows: u64,
        length: u64,
        (mut epoch, mut in_epoch): (Epoch, u64),
    ) -> Result<(Epoch, u64), ExecError> {
        while in_epoch + rows >= length {
            self.granted(epoch).await?;
            self.outbox.progress(epoch, &mut self.meter).await?;
            rows -= length - in_epoch;
            (epoch, in_epoch) = (Epoch(epoch.0 + 1), 0);
        }
        Ok((epoch, in_epoch + rows))
    }

    /// Epochs cut by rows must be the same in every run, so the spring waits for its grant; the
    /// grant depends on the progress of the others, never on this spring's.
    async fn granted(&mut self, epoch: Epoch) -> Result<(), ExecError> {
        self.meter.worked();
        let granted = self.control.granted.wait_for(|granted| *granted >= epoch).await;
        granted.map_err(|_| ExecError::Cancelled)?;
        self.meter.begin();
        Ok(())
    }

    /// Closes the epochs whose time is over. At the end of its grant, a spring goes on stamping
    /// the last granted epoch.
    async fn close_by_clock(&mut self, epoch: Epoch, interval: Duration) -> Result<Epoch, ExecError> {
        let elapsed = self.control.clock.now().as_nanos() / interval.as_nanos().max(1);
        let by_clock = Epoch(u64::try_from(elapsed).unwrap_or(u64::MAX - 1).saturating_add(1));
        let now = by_clock.min(*self.control.granted.borrow());
        if now > epoch {
            self.outbox.progress(Epoch(now.0 - 1), &mut self.meter).await?;
            return Ok(now);
        }
        Ok(epoch)
    }

    async fn emit(&mut self, batch: RecordBatch, epoch: Epoch, first_row: u64) -> Result<(), ExecError> {
        let frame = Frame::inserts(batch, epoch);
        self.counters.epoch.store(epoch.0, Ordering::Relaxed);
        match self.outbox.send(frame.clone(), &mut self.meter).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let stream = &self.stream;
                let outbox = &self.outbox;
                let place = || match outbox.failing_row(&frame) {
                    Some(row) => format!("stream {stream}, row {}", first_row + row as u64 + 1),
                    None => format!("stream {stream}, rows {} to {}", first_row + 1, first_row + frame.rows() as u64),
                };
                Err(error.at(place))
            }
        }
    }
}
