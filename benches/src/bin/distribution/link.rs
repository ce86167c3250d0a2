//! The data plane alone: frames through an encoder, a numbered channel over QUIC and a decoder, beside the same
//! bytes on a bare stream of the same endpoint.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use bytes::Bytes;
use thetis_cluster::data::{Decoder, Encoder};
use thetis_cluster::net::framing::framed;
use thetis_cluster::net::hop::{ReceiveLog, SendLog};
use thetis_cluster::net::identity::Authority;
use thetis_cluster::net::quic::{Guests, Quic};
use thetis_cluster::net::transport::{Connection, Peer, Role, Transport};
use thetis_executor::frame::{Epoch, FRAME_ROWS, Frame, Message};
use thetis_executor::task::{Addressed, Envelope};

use crate::median;

type Failure = Box<dyn std::error::Error>;

/// Frames of a round: 256 MB of columns.
const FRAMES: usize = 2_000;
const COLUMNS: usize = 2;

/// Compares, and prints the ratio.
pub(crate) fn compare(rounds: usize) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let folder = tempfile::tempdir()?;
        let authority = Authority::open(folder.path())?;
        let (server, _) = authority.identity(&Peer::new(Role::Worker, "a"))?;
        let (client, _) = authority.identity(&Peer::new(Role::Worker, "b"))?;
        let there = Quic::open(server, "127.0.0.1:0".parse()?, Guests::Members)?;
        let here = Quic::client(client)?;
        let connection = here.connect(&Peer::new(Role::Worker, "a"), &there.address()).await?;
        let accepted = there.accept().await.ok_or("nobody came")?;
        let (mut bare, mut framed) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let pair = (bytes_alone(&connection, &accepted).await?, frames(&connection, &accepted).await?);
            if round > 0 {
                bare.push(pair.0);
                framed.push(pair.1);
            }
        }
        let (bare, framed) = (median(bare), median(framed));
        println!("\nbare stream {bare:.0} MB/s, frames {framed:.0} MB/s: {:.0} %", framed / bare * 100.0);
        Ok(())
    })
}

fn frame() -> Frame {
    let column =
        |of: i64| Arc::new((0..FRAME_ROWS as i64).map(|row| row * 7919 + of).collect::<Int64Array>()) as ArrayRef;
    let columns = (0..COLUMNS as i64).map(|of| (format!("c{of}"), column(of)));
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    Frame::inserts(batch, Epoch::FIRST)
}

fn megabytes() -> f64 {
    (FRAMES * FRAME_ROWS * COLUMNS * 8) as f64 / 1e6
}

#[expect(clippy::disallowed_methods, reason = "a benchmark takes the time")]
fn now() -> Instant {
    Instant::now()
}

/// MB/s of a stream that carries bytes.
async fn bytes_alone(from: &Arc<dyn Connection>, to: &Arc<dyn Connection>) -> Result<f64, Failure> {
    let started = now();
    let mut stream = from.open().await?;
    let sender = tokio::spawn(async move {
        let chunk = Bytes::from(vec![7; FRAME_ROWS * 8]);
        for _ in 0..FRAMES * COLUMNS {
            stream.send.send(&mut [chunk.clone()]).await?;
        }
        stream.send.finish();
        stream.send.stopped().await;
        Ok::<(), thetis_cluster::net::transport::NetError>(())
    });
    let mut stream = to.accept().await?;
    let mut received = 0;
    while let Some(bytes) = stream.receive.receive(1 << 20).await? {
        received += bytes.len();
    }
    assert_eq!(received, FRAMES * FRAME_ROWS * COLUMNS * 8);
    let rate = megabytes() / started.elapsed().as_secs_f64();
    drop(stream);
    sender.await??;
    Ok(rate)
}

/// MB/s of frames, as an edge between two processes sends them.
async fn frames(from: &Arc<dyn Connection>, to: &Arc<dyn Connection>) -> Result<f64, Failure> {
    let started = now();
    let frame = frame();
    let schema = frame.batch.schema();
    let mut encoder = Encoder::new(&schema, false)?;
    let stream = from.open().await?;
    let sender = tokio::spawn(async move {
        let (mut sender, mut acks) = framed(stream);
        let mut log = SendLog::new();
        for _ in 0..FRAMES {
            let message =
                Addressed { tasks: vec![0], envelope: Envelope { channel: 0, message: Message::Frame(frame.clone()) } };
            for parcel in encoder.encode(&message)? {
                log.push(parcel.clone(), parcel.bytes());
                sender.send(parcel).await?;
            }
            while !log.has_room() {
                let ack: u64 = acks.receive().await?.ok_or("the receiver is gone")?.head()?;
                log.on_ack(ack)?;
            }
        }
        sender.finish();
        while !log.is_settled() {
            let ack: u64 = acks.receive().await?.ok_or("the receiver is gone")?.head()?;
            log.on_ack(ack)?;
        }
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    });
    let (mut acks, mut receiver) = framed(to.accept().await?);
    let (mut decoder, mut log) = (Decoder::new(schema), ReceiveLog::default());
    let mut rows = 0;
    while let Some(received) = receiver.receive().await? {
        if let Message::Frame(frame) = decoder.decode(&received)?.envelope.message {
            rows += frame.rows();
        }
        log.on_message(received.bytes());
        if let Some(ack) = log.ack(rows == FRAMES * FRAME_ROWS) {
            acks.send(thetis_cluster::net::framing::Parcel::new(&ack)?).await?;
        }
    }
    assert_eq!(rows, FRAMES * FRAME_ROWS);
    let rate = megabytes() / started.elapsed().as_secs_f64();
    sender.await?.map_err(|error| error.to_string())?;
    Ok(rate)
}
