//! One direction of a channel between two processes, as two state machines without I/O: a message is
//! kept until the other side has it, and when the connection is made again, the stream goes on with the
//! first one that the other side does not have.
//!
//! Messages are numbered from 1 by their order; the numbers are never sent, only their counts.

use std::collections::VecDeque;

/// Messages that may be on the way.
pub const MAX_MESSAGES: usize = 256;

/// Bytes that may be on the way, but for one message.
pub const MAX_BYTES: usize = 8 << 20;

/// The receiver says how far it is after so many messages...
const ACK_MESSAGES: u64 = 16;

/// ... or so many bytes.
const ACK_BYTES: usize = 1 << 20;

/// The other side says what cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{received} messages were received of {sent} that were sent, {settled} of which were received before")]
pub struct Impossible {
    /// What it says that it has.
    pub received: u64,
    /// What was sent.
    pub sent: u64,
    /// What it has said before.
    pub settled: u64,
}

/// The sender's side.
#[derive(Debug)]
pub struct SendLog<M> {
    /// Messages that the other side has.
    settled: u64,
    /// The later ones.
    open: VecDeque<(M, usize)>,
    bytes: usize,
}

/// The receiver's side.
#[derive(Debug, Default)]
pub struct ReceiveLog {
    received: u64,
    told: u64,
    bytes: usize,
}

impl<M> SendLog<M> {
    /// Nothing was sent.
    pub fn new() -> Self {
        Self { settled: 0, open: VecDeque::new(), bytes: 0 }
    }

    /// Whether another message may be sent.
    pub fn has_room(&self) -> bool {
        self.open.len() < MAX_MESSAGES && self.bytes < MAX_BYTES
    }

    /// Keeps a message that is sent.
    pub fn push(&mut self, message: M, bytes: usize) {
        self.open.push_back((message, bytes));
        self.bytes += bytes;
    }

    /// The other side has the first `received` messages.
    ///
    /// # Errors
    /// It has more than were sent, or fewer than it said before.
    pub fn on_ack(&mut self, received: u64) -> Result<(), Impossible> {
        let sent = self.settled + self.open.len() as u64;
        if received < self.settled || received > sent {
            return Err(Impossible { received, sent, settled: self.settled });
        }
        while self.settled < received {
            self.settled += 1;
            if let Some((_, bytes)) = self.open.pop_front() {
                self.bytes -= bytes;
            }
        }
        Ok(())
    }

    /// The messages that the other side may not have, in order: all of them are sent again on a new stream,
    /// after [`Self::on_ack`].
    pub fn open(&self) -> impl Iterator<Item = &M> {
        self.open.iter().map(|(message, _)| message)
    }

    /// The other side has everything.
    pub fn is_settled(&self) -> bool {
        self.open.is_empty()
    }
}

impl<M> Default for SendLog<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl ReceiveLog {
    /// How many messages were received.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// The sender knows what was received.
    pub fn is_told(&self) -> bool {
        self.told == self.received
    }

    /// The next message was received and delivered.
    pub fn on_message(&mut self, bytes: usize) {
        self.received += 1;
        self.bytes += bytes;
    }

    /// What the sender must be told now, if anything. `idle` says that nothing else has arrived.
    pub fn ack(&mut self, idle: bool) -> Option<u64> {
        let open = self.received - self.told;
        if open == 0 || !(idle || open >= ACK_MESSAGES || self.bytes >= ACK_BYTES) {
            return None;
        }
        Some(self.resume())
    }

    /// What the sender of a new stream is told first.
    pub fn resume(&mut self) -> u64 {
        self.told = self.received;
        self.bytes = 0;
        self.received
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Streams break at any time and lose what is on the way, in both directions; what arrives is what
        /// was sent, once, in order.
        #[test]
        fn messages_arrive_once_and_in_order(
            count in 0_u32..600,
            events in proptest::collection::vec((0_u8..5, 0_usize..40), 0..300),
        ) {
            let mut log = SendLog::new();
            let mut receiver = ReceiveLog::default();
            let (mut next, mut arrived) = (0, Vec::new());
            let (mut wire, mut acks) = (VecDeque::new(), VecDeque::new());
            // At the end nothing breaks any more.
            let calm = (0..).map(|i| ([0, 1, 2, 3][i % 4], 1000));
            for (event, amount) in events.into_iter().chain(calm) {
                match event {
                    0 => for _ in 0..amount {
                        if next < count && log.has_room() {
                            log.push(next, 1 << 16);
                            wire.push_back(next);
                            next += 1;
                        }
                    },
                    1 => for _ in 0..amount {
                        if let Some(message) = wire.pop_front() {
                            arrived.push(message);
                            receiver.on_message(1 << 16);
                            acks.extend(receiver.ack(false));
                        }
                    },
                    2 => acks.extend(receiver.ack(wire.is_empty())),
                    3 => for _ in 0..amount {
                        if let Some(ack) = acks.pop_front() {
                            log.on_ack(ack).unwrap();
                        }
                    },
                    _ => {
                        acks.clear();
                        log.on_ack(receiver.resume()).unwrap();
                        wire = log.open().copied().collect();
                    }
                }
                if arrived.len() == count as usize && log.is_settled() {
                    break;
                }
            }
            assert_eq!(arrived, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_cannot_be_is_an_error() {
        let mut log = SendLog::new();
        log.push('a', 1);
        log.push('b', 1);
        log.on_ack(1).unwrap();
        assert_eq!(log.on_ack(3), Err(Impossible { received: 3, sent: 2, settled: 1 }));
        assert_eq!(log.on_ack(0), Err(Impossible { received: 0, sent: 2, settled: 1 }));
    }
}
