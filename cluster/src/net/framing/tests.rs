use super::*;
use crate::net::transport::Pending;

/// Bytes that come in pieces of a given size.
struct Pieces(Bytes, usize);

impl ReceiveHalf for Pieces {
    fn receive(&mut self, most: usize) -> Pending<'_, Result<Option<Bytes>, NetError>> {
        let piece = self.0.split_to(self.1.min(most).min(self.0.len()));
        Box::pin(std::future::ready(Ok((!piece.is_empty()).then_some(piece))))
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("nothing to wait for"),
    }
}

fn bytes(parcel: Parcel) -> Vec<u8> {
    parcel.chunks.concat()
}

#[test]
fn messages_come_through_whatever_the_pieces() {
    let large = Buffer::from_vec((0..5000_u16).collect::<Vec<_>>());
    let parcels = [
        Parcel::new(&"short").unwrap(),
        Parcel::with_body(&"long", &[Buffer::from_vec(vec![1_u8, 2]), large.clone(), Buffer::from_vec(vec![3_u8])])
            .unwrap(),
        Parcel::new(&"last").unwrap(),
    ];
    assert!(parcels.iter().all(|parcel| bytes(parcel.clone()).len() == parcel.bytes()));
    let all: Vec<u8> = parcels.into_iter().flat_map(bytes).collect();
    for size in [1, 3, 8, 1000, 1 << 20] {
        let mut receiver = Receiver::new(Box::new(Pieces(Bytes::from(all.clone()), size)));
        let mut next = || now(receiver.receive()).unwrap();
        assert_eq!(next().unwrap().head::<String>().unwrap(), "short");
        let long = next().unwrap();
        assert_eq!(long.head::<String>().unwrap(), "long");
        assert_eq!(long.body.as_slice(), [&[1, 2][..], &large, &[3]].concat());
        assert_eq!(next().unwrap().head::<String>().unwrap(), "last");
        assert!(next().is_none());
    }
}

#[test]
fn what_is_too_long_or_cut_off_is_an_error() {
    let receive = |bytes: Vec<u8>| now(Receiver::new(Box::new(Pieces(bytes.into(), 100))).receive());
    let lengths = |head: u32, body: u32| [head.to_le_bytes(), body.to_le_bytes()].concat();
    assert!(matches!(receive(lengths(1 << 30, 0)), Err(NetError::Protocol(_))));
    assert!(matches!(receive(lengths(0, 1 << 30)), Err(NetError::Protocol(_))));
    assert!(matches!(receive(lengths(10, 0)), Err(NetError::Protocol(_))));
    assert!(matches!(receive(vec![1, 0, 0]), Err(NetError::Protocol(_))));
    assert!(matches!(receive(Vec::new()), Ok(None)));
}

#[test]
fn a_greeting_is_of_this_protocol_and_version() {
    let greeting = |magic: &[u8], version: u16| {
        let parcel = bytes(Parcel::new(&7_u8).unwrap());
        let all = [magic, &version.to_le_bytes(), &parcel].concat();
        now(Receiver::new(Box::new(Pieces(all.into(), 5))).greeting(MAX_GREETING))
    };
    assert_eq!(greeting(&MAGIC, VERSION).unwrap().head::<u8>().unwrap(), 7);
    let other = greeting(&MAGIC, VERSION + 1).unwrap_err().to_string();
    assert!(other.contains("version 2 of the protocol"), "{other}");
    assert!(matches!(greeting(b"HTTP", VERSION), Err(NetError::Protocol(_))));
}
