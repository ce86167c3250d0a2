use arrow::array::{ArrayRef, BooleanArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;
use crate::net::framing::received;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("t", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
    ]))
}

fn batch(rows: &[Option<i64>]) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from(rows.to_vec()));
    let texts: StringArray = rows.iter().map(|row| row.map(|n| "x".repeat(n.unsigned_abs() as usize % 7))).collect();
    let flags: BooleanArray = rows.iter().map(|row| row.map(|n| n % 2 == 0)).collect();
    RecordBatch::try_new(schema(), vec![numbers, Arc::new(texts), Arc::new(flags)]).unwrap()
}

fn addressed(tasks: Vec<u32>, channel: u32, message: Message) -> Addressed {
    Addressed { tasks, envelope: Envelope { channel, message } }
}

fn assert_same(found: &Addressed, sent: &Addressed) {
    assert_eq!((&found.tasks, found.envelope.channel), (&sent.tasks, sent.envelope.channel));
    match (&found.envelope.message, &sent.envelope.message) {
        (Message::Progress(a), Message::Progress(b)) => assert_eq!(a, b),
        (Message::Frame(a), Message::Frame(b)) => {
            assert_eq!(a.batch, b.batch);
            assert_eq!((a.weights.as_deref(), a.epoch), (b.weights.as_deref(), b.epoch));
            assert_eq!((a.layout, a.incarnation), (b.layout, b.incarnation));
            let units = |frame: &Frame| frame.units.as_ref().map(|u| (u.buckets.to_vec(), u.slices.to_vec()));
            assert_eq!(units(a), units(b));
        }
        other => panic!("{other:?}"),
    }
}

fn frames() -> impl Strategy<Value = Frame> {
    let rows = proptest::collection::vec(proptest::option::of(any::<i64>()), 0..50);
    let weights = prop_oneof![Just(0_i64), -3..3_i64, any::<i64>()];
    (rows, 1..1000_u64, weights, 0..3_u8, 0_u32..840, any::<bool>(), 0..20_usize).prop_map(
        |(rows, epoch, weight, units, start, weighted, skip)| {
            let count = rows.len();
            let frame = Frame { layout: start, incarnation: 7, ..Frame::inserts(batch(&rows), Epoch(epoch)) };
            let weights = weighted.then(|| (0..count as i64).map(|i| weight.wrapping_add(i % 3)).collect());
            let numbers = |step: u32| (0..count as u32).map(move |row| (start + row * step) % SLICES);
            let units = (units > 0).then(|| Units {
                buckets: if units == 1 { vec![start; count].into() } else { numbers(31).collect() },
                slices: numbers(if units == 1 { 1 } else { 17 }).map(|slice| slice as u16).collect(),
            });
            // Slices of batches are sent as such.
            let skip = skip.min(count);
            slice(&Frame { weights, units, ..frame }, skip, count - skip)
        },
    )
}

proptest! {
    #[test]
    fn what_is_sent_is_what_arrives(frames in proptest::collection::vec(frames(), 1..5), compress in any::<bool>()) {
        let (mut encoder, mut decoder) = (Encoder::new(&schema(), compress).unwrap(), Decoder::new(schema()));
        for frame in frames {
            let epoch = frame.epoch;
            for sent in [addressed(vec![0, 3], 5, Message::Frame(frame)), addressed(vec![1], 2, Message::Progress(epoch))] {
                let [parcel] = encoder.encode(&sent).unwrap().try_into().unwrap();
                assert_same(&decoder.decode(&received(parcel)).unwrap(), &sent);
            }
        }
    }

    /// Whatever bytes come, there is an answer and no panic.
    #[test]
    fn damaged_messages_are_refused(frame in frames(), at in any::<usize>(), bit in 0..8_u32, cut in any::<usize>()) {
        let mut encoder = Encoder::new(&schema(), false).unwrap();
        let [parcel] = encoder.encode(&addressed(vec![0], 0, Message::Frame(frame))).unwrap().try_into().unwrap();
        let whole = received(parcel);
        let mut bytes = whole.body.to_vec();
        if !bytes.is_empty() {
            let place = at % bytes.len();
            bytes[place] ^= 1 << bit;
            bytes.truncate(cut % (bytes.len() + 1));
        }
        let head: FrameHead = whole.head().unwrap();
        let _ = Decoder::new(schema()).decode_head(head, &Buffer::from_vec(bytes));
    }
}

#[test]
fn very_long_rows_are_sent_one_by_one() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a".repeat(20 << 20); 3]));
    let schema = Arc::new(Schema::new(vec![Field::new("t", DataType::Utf8, true)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![text]).unwrap();
    let mut encoder = Encoder::new(&schema, false).unwrap();
    let parcels = encoder.encode(&addressed(vec![0], 0, Message::Frame(Frame::inserts(batch, Epoch(1))))).unwrap();
    assert_eq!(parcels.len(), 3);
    let mut decoder = Decoder::new(schema);
    let rows = parcels.into_iter().map(|parcel| match decoder.decode(&received(parcel)).unwrap().envelope.message {
        Message::Frame(frame) => frame.rows(),
        Message::Progress(_) => 0,
    });
    assert_eq!(rows.sum::<usize>(), 3);
}

#[test]
fn rows_without_columns_are_counted() {
    let schema = Arc::new(Schema::empty());
    let options = RecordBatchOptions::new().with_row_count(Some(42));
    let batch = RecordBatch::try_new_with_options(Arc::clone(&schema), Vec::new(), &options).unwrap();
    let sent = addressed(vec![0], 0, Message::Frame(Frame::inserts(batch, Epoch(9))));
    let [parcel] = Encoder::new(&schema, false).unwrap().encode(&sent).unwrap().try_into().unwrap();
    assert_same(&Decoder::new(schema).decode(&received(parcel)).unwrap(), &sent);
}
