use arrow::array::{AsArray, Int64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use proptest::prelude::*;

use super::*;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, false)]))
}

fn rows(values: &[i64]) -> RecordBatch {
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(values.to_vec()))]).unwrap()
}

fn sorted(batches: &[RecordBatch]) -> Vec<i64> {
    let mut all: Vec<i64> =
        batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_null_is_refused_and_changes_nothing() {
    let tables = Tables::new();
    let (id, count) = tables.create(schema());
    let nullable = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]));
    let bad = RecordBatch::try_new(nullable, vec![Arc::new(Int64Array::from(vec![Some(1), None]))]).unwrap();
    let refused = tables.commit(id, vec![Change::inserts(rows(&[7])), Change::inserts(bad)]);
    assert!(matches!(refused, Err(ExecError::Constraint { .. })));
    assert_eq!((tables.version(), count.load(Ordering::Relaxed)), (0, 0));
    assert!(tables.open(&[(id, false)]).unwrap()[0].rows.is_empty());
}

#[test]
fn a_dropped_table_ends_for_its_followers() {
    let tables = Tables::new();
    let (id, _) = tables.create(schema());
    let mut opened = tables.open(&[(id, true)]).unwrap().remove(0);
    tables.remove(id);
    assert!(matches!(opened.commits.as_mut().unwrap().try_recv(), Err(mpsc::error::TryRecvError::Disconnected)));
    assert!(tables.commit(id, Vec::new()).is_err());
}

proptest! {
    /// Whenever it is opened, a table has what a plain list would have; what a follower hears after
    /// that makes up the rest.
    #[test]
    fn a_table_is_the_sum_of_its_commits(
        steps in prop::collection::vec((any::<bool>(), prop::collection::vec(0_i64..20, 0..40)), 1..40),
        open_at in 0_usize..40,
    ) {
        let tables = Tables::new();
        let (id, count) = tables.create(schema());
        let mut naive: Vec<i64> = Vec::new();
        let mut follower = None;
        for (step, (insert, values)) in steps.iter().enumerate() {
            if step == open_at {
                follower = Some((tables.open(&[(id, true)]).unwrap().remove(0), naive.clone()));
            }
            if *insert {
                naive.extend(values);
                tables.commit(id, vec![Change::inserts(rows(values))]).unwrap();
            } else {
                let mut gone = Vec::new();
                for value in values {
                    if let Some(at) = naive.iter().position(|other| other == value) {
                        gone.push(naive.swap_remove(at));
                    }
                }
                tables.commit(id, vec![Change::deletes(rows(&gone))]).unwrap();
            }
            prop_assert_eq!(count.load(Ordering::Relaxed), naive.len() as u64);
        }
        naive.sort_unstable();
        prop_assert_eq!(&sorted(&tables.open(&[(id, false)]).unwrap()[0].rows), &naive);
        if let Some((mut opened, mut then)) = follower {
            then.sort_unstable();
            prop_assert_eq!(sorted(&opened.rows), then);
            let mut set = ZSet::new(schema()).unwrap();
            opened.rows.iter().for_each(|rows| set.add(rows, None).unwrap());
            let mut last = opened.version;
            while let Ok(commit) = opened.commits.as_mut().unwrap().try_recv() {
                prop_assert_eq!(commit.version, last + 1);
                last = commit.version;
                commit.changes.iter().for_each(|c| set.add(&c.rows, c.weights.as_deref()).unwrap());
            }
            prop_assert_eq!(sorted(&set.batches().unwrap()), naive);
        }
    }
}
