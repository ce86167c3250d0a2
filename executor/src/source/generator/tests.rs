use std::collections::BTreeMap;

use arrow::array::AsArray;
use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use proptest::prelude::*;
use thetis_planner::connector::{GeneratedColumn, SourceSpec};

use super::*;

/// A column of every kind.
fn columns() -> Vec<(DataType, Distribution)> {
    let zone = Some(Arc::from("+00:00"));
    vec![
        (DataType::Int64, Distribution::Whole(Series::Sequence { start: 1, step: 3, jitter: 0 })),
        (DataType::Int8, Distribution::Whole(Series::Uniform { low: -128, high: 127 })),
        (DataType::UInt64, Distribution::Whole(Series::Uniform { low: 0, high: u64::MAX.into() })),
        (
            DataType::Decimal128(38, 2),
            Distribution::Whole(Series::Uniform { low: -(10_i128.pow(30)), high: 10_i128.pow(30) }),
        ),
        (DataType::Float64, Distribution::Float(Series::Uniform { low: -1.0, high: 1.0 })),
        (DataType::Float32, Distribution::Normal { mean: 0.0, deviation: 1.0 }),
        (DataType::Int32, Distribution::Zipf { exponent: 1.2, n: 100.0 }),
        (DataType::Utf8, Distribution::Text { min: 0, max: 9 }),
        (DataType::Utf8, Distribution::Choice(["a", "b", "c"].map(str::to_owned).to_vec())),
        (DataType::Date32, Distribution::Choice(["2026-01-01", "2026-01-02"].map(str::to_owned).to_vec())),
        (DataType::Boolean, Distribution::Coin),
        (
            DataType::Timestamp(TimeUnit::Millisecond, zone),
            Distribution::Whole(Series::Sequence { start: 1_000_000, step: 10, jitter: 9 }),
        ),
    ]
}

fn source(columns: Vec<(DataType, Distribution)>, nulls: f64, rows: Option<u64>, projection: Vec<u32>) -> Source {
    let fields =
        columns.iter().enumerate().map(|(at, (data_type, _))| Field::new(format!("c{at}"), data_type.clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let columns = columns.into_iter().map(|(_, values)| GeneratedColumn { values, nulls }).collect();
    let spec = GeneratorSpec { rows, rows_per_second: None, seed: 7, columns };
    let bounded = rows.is_some();
    Source {
        stream: "g".to_owned(),
        spec: SourceSpec::Generator(spec),
        columns: schema,
        projection,
        bounded,
        readers: 1,
        listing: None,
    }
}

fn generator(source: &Source, rate: Option<f64>) -> Generator {
    let SourceSpec::Generator(spec) = &source.spec else { panic!("not a generator") };
    Generator::new(source, &GeneratorSpec { rows_per_second: rate, ..spec.clone() }).unwrap()
}

/// All rows; `steps` is how far the clock moves between calls.
fn all(generator: &mut Generator, mut steps: impl Iterator<Item = Duration>) -> RecordBatch {
    let mut now = Duration::ZERO;
    let mut batches = Vec::new();
    loop {
        match generator.next(now).unwrap() {
            Fetched::Rows(batch) => {
                assert!((1..=FRAME_ROWS).contains(&batch.num_rows()));
                batches.push(batch);
            }
            Fetched::LeftOut(_) => panic!("a generator leaves nothing out"),
            Fetched::Wait(time) => now += time,
            Fetched::End => return concat_batches(&generator.output, &batches).unwrap(),
        }
        now += steps.next().unwrap_or_default();
    }
}

/// One column of so many rows.
fn column(data_type: DataType, values: Distribution, rows: u64) -> ArrayRef {
    let source = source(vec![(data_type, values)], 0.0, Some(rows), vec![0]);
    Arc::clone(all(&mut generator(&source, None), std::iter::empty()).column(0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_row_depends_on_its_number_alone(
        rows in 1_u64..20_000,
        fewer in 1_u64..20_000,
        projection in proptest::sample::subsequence((0..12_u32).collect::<Vec<_>>(), 1..12),
        steps in proptest::collection::vec(0_u64..2_000, 1..20),
        rate in 1_000.0..1e6_f64,
        nulls in prop_oneof![Just(0.0), Just(0.3)],
    ) {
        let every = source(columns(), nulls, Some(rows), (0..12).collect());
        let every = all(&mut generator(&every, None), std::iter::empty());
        prop_assert_eq!(every.num_rows() as u64, rows);
        let paced = source(columns(), nulls, Some(rows), projection.clone());
        let steps = steps.into_iter().cycle().map(Duration::from_millis);
        let paced = all(&mut generator(&paced, Some(rate)), steps);
        for (at, position) in projection.iter().enumerate() {
            prop_assert_eq!(paced.column(at), every.column(*position as usize));
        }
        let fewer = fewer.min(rows);
        let short = source(columns(), nulls, Some(fewer), (0..12).collect());
        let short = all(&mut generator(&short, None), std::iter::empty());
        prop_assert_eq!(short, every.slice(0, fewer as usize));
    }
}

#[test]
fn another_seed_makes_other_rows_and_columns_differ() {
    let two = vec![columns()[4].clone(), columns()[4].clone()];
    let mut source = source(two, 0.0, Some(100), vec![0, 1]);
    let first = all(&mut generator(&source, None), std::iter::empty());
    assert_ne!(first.column(0), first.column(1));
    let SourceSpec::Generator(spec) = &mut source.spec else { panic!("not a generator") };
    spec.seed = 8;
    assert_ne!(first, all(&mut generator(&source, None), std::iter::empty()));
}

#[test]
fn numbers_are_as_distributed() {
    let rows = 50_000;
    let normal = column(DataType::Float64, Distribution::Normal { mean: 50.0, deviation: 10.0 }, rows);
    let normal = normal.as_primitive::<arrow::datatypes::Float64Type>().values();
    let mean = normal.iter().sum::<f64>() / rows as f64;
    let deviation = (normal.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / rows as f64).sqrt();
    assert!((mean - 50.0).abs() < 0.3 && (deviation - 10.0).abs() < 0.3, "{mean} {deviation}");

    let dice = column(DataType::Int64, Distribution::Whole(Series::Uniform { low: 1, high: 6 }), rows);
    let mut counts = BTreeMap::new();
    dice.as_primitive::<Int64Type>().values().iter().for_each(|n| *counts.entry(*n).or_insert(0) += 1);
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert!(counts.values().all(|count| (7_900..8_800).contains(count)), "{counts:?}");

    let zipf = column(DataType::Int64, Distribution::Zipf { exponent: 1.0, n: 1000.0 }, rows);
    let mut counts = vec![0; 1001];
    zipf.as_primitive::<Int64Type>().values().iter().for_each(|n| counts[*n as usize] += 1);
    assert_eq!(counts[0], 0);
    assert!(counts[1] > counts[2] && counts[2] > counts[4] && counts[4] > counts[8] && counts[8] > counts[32]);
    // The share of 1 is 1 over the harmonic number of 1000, 7.49.
    assert!((6_300..7_050).contains(&counts[1]), "{}", counts[1]);

    // Cut to the type's range.
    let wide = column(DataType::Int8, Distribution::Normal { mean: 0.0, deviation: 1e9 }, 100);
    assert!(wide.as_primitive::<Int8Type>().values().iter().all(|n| *n == 127 || *n == -128));
}

#[test]
fn texts_choices_nulls_and_jitter() {
    let texts = column(DataType::Utf8, Distribution::Text { min: 2, max: 4 }, 10_000);
    let texts: Vec<&str> = texts.as_string::<i32>().iter().flatten().collect();
    assert!(texts.iter().all(|text| (2..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase())));
    assert!((2..=4).all(|length| texts.iter().any(|text| text.len() == length)));
    assert!(['a', 'z'].iter().all(|letter| texts.iter().any(|text| text.contains(*letter))));

    let chosen = column(columns()[8].0.clone(), columns()[8].1.clone(), 3_000);
    let count = |value: &str| chosen.as_string::<i32>().iter().flatten().filter(|text| *text == value).count();
    assert!(["a", "b", "c"].iter().all(|value| (850..1150).contains(&count(value))));

    let times =
        column(DataType::Int64, Distribution::Whole(Series::Sequence { start: 100, step: 10, jitter: 4 }), 9_000);
    let times = times.as_primitive::<Int64Type>().values();
    assert!(times.iter().enumerate().all(|(row, time)| (0..=4).contains(&(time - 100 - 10 * row as i64))));
    assert!(times.iter().enumerate().any(|(row, time)| time - 100 - 10 * row as i64 == 4));

    let source = source(columns(), 0.2, Some(10_000), (0..12).collect());
    let batch = all(&mut generator(&source, None), std::iter::empty());
    assert!(batch.columns().iter().all(|column| (1_800..2_200).contains(&column.null_count())));
}

#[test]
fn a_sequence_that_leaves_its_type_is_an_error() {
    let column = (DataType::Int8, Distribution::Whole(Series::Sequence { start: 0, step: 1, jitter: 0 }));
    let endless = source(vec![column], 0.0, None, vec![0]);
    let error = generator(&endless, None).next(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("column c0: the sequence leaves the range of TINYINT"), "{error}");
}

#[test]
fn rows_come_at_their_pace() {
    let source = source(vec![columns()[0].clone()], 0.0, Some(25), vec![0]);
    let mut slow = generator(&source, Some(10.0));
    let start = Duration::from_secs(100);
    let rows = |fetched: Fetched| match fetched {
        Fetched::Rows(batch) => batch.num_rows(),
        other => panic!("{other:?}"),
    };
    assert_eq!(rows(slow.next(start).unwrap()), 1);
    assert!(matches!(slow.next(start).unwrap(), Fetched::Wait(time) if time == Duration::from_millis(100)));
    let later = start + Duration::from_millis(90);
    assert!(matches!(slow.next(later).unwrap(), Fetched::Wait(time) if time == TICK));
    // After a pause the rows that are due come together.
    assert_eq!(rows(slow.next(start + Duration::from_millis(1_050)).unwrap()), 10);
    assert_eq!(rows(slow.next(start + Duration::from_secs(60)).unwrap()), 14);
    assert!(matches!(slow.next(start + Duration::from_secs(60)).unwrap(), Fetched::End));
    let mut fast = generator(&source, Some(1_000.0));
    assert_eq!(rows(fast.next(start).unwrap()), 1);
    assert!(matches!(fast.next(start).unwrap(), Fetched::Wait(time) if time == TICK));
    assert_eq!(rows(fast.next(start + TICK).unwrap()), 20);
}
