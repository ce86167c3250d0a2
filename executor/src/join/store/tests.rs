use std::collections::BTreeMap;

use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use proptest::prelude::*;

use super::*;

/// Value and weight of each row of a frame of one epoch.
type Rows = Vec<(i64, i64)>;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]))
}

fn filled(frames: &[(u64, Rows)]) -> Store {
    let mut store = Store::new(schema(), true);
    for (epoch, rows) in frames {
        let values = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
        let batch = RecordBatch::try_new(schema(), vec![Arc::new(values)]).unwrap();
        let mut frame = Frame::inserts(batch, Epoch(*epoch));
        frame.weights = Some(rows.iter().map(|row| row.1).collect());
        let units = Units { buckets: vec![0; rows.len()].into(), slices: vec![0; rows.len()].into() };
        frame.units = Some(units);
        store.append(&frame).unwrap();
    }
    store
}

/// Sum of weights by (epoch group, value); epochs up to `base` are one group.
fn sums(rows: impl Iterator<Item = (u64, i64, i64)>, base: u64) -> BTreeMap<(u64, i64), i64> {
    let mut sums = BTreeMap::new();
    for (epoch, value, weight) in rows {
        *sums.entry((if epoch <= base { 0 } else { epoch }, value)).or_insert(0) += weight;
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

fn contents(store: &Store) -> Vec<(u64, i64, i64)> {
    let rows: Vec<u32> = (0..store.len() as u32).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let values = store.gather(0, &rows).unwrap();
    let values = values.as_primitive::<Int64Type>();
    rows.iter().map(|row| (store.epoch(*row).0, values.value(*row as usize), store.weight(*row))).collect()
}

fn frames() -> impl Strategy<Value = Vec<(u64, Rows)>> {
    let rows = prop::collection::vec((0_i64..6, prop_oneof![Just(1_i64), Just(-1), Just(2)]), 1..40);
    prop::collection::vec((1_u64..6, rows), 0..12)
}

fn given(frames: &[(u64, Rows)]) -> impl Iterator<Item = (u64, i64, i64)> + '_ {
    frames.iter().flat_map(|(epoch, rows)| rows.iter().map(|(value, weight)| (*epoch, *value, *weight)))
}

proptest! {
    #[test]
    fn rows_come_back_as_they_went_in(frames in frames()) {
        prop_assert_eq!(contents(&filled(&frames)), given(&frames).collect::<Vec<_>>());
    }

    #[test]
    fn rolling_back_forgets_later_epochs_only(frames in frames(), committed in 0_u64..7) {
        let mut store = filled(&frames);
        store.roll_back(Epoch(committed)).unwrap();
        let expected: Vec<_> = given(&frames).filter(|row| row.0 <= committed).collect();
        prop_assert_eq!(contents(&store), expected);
        prop_assert!(store.latest_epoch().0 <= committed);
    }

    #[test]
    fn folding_adds_up_the_base_and_nothing_else(frames in frames(), committed in 0_u64..7, back in 0_u64..7) {
        let mut store = filled(&frames);
        store.fold(Epoch(committed)).unwrap();
        let folded = contents(&store);
        prop_assert_eq!(sums(folded.iter().copied(), committed), sums(given(&frames), committed));
        let open = |rows: &[(u64, i64, i64)]| rows.iter().filter(|row| row.0 > committed).count();
        prop_assert_eq!(open(&folded), open(&given(&frames).collect::<Vec<_>>()));
        // A base row is there once.
        let base = folded.iter().filter(|row| row.0 <= committed);
        let mut values: Vec<i64> = base.map(|row| row.1).collect();
        let count = values.len();
        values.sort_unstable();
        values.dedup();
        prop_assert_eq!(values.len(), count);
        // Rolling back to an epoch after the base works on what was folded.
        let back = back.max(committed);
        store.roll_back(Epoch(back)).unwrap();
        prop_assert_eq!(sums(contents(&store).into_iter(), committed), sums(given(&frames).filter(|row| row.0 <= back), committed));
    }
}
