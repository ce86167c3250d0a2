use std::sync::Arc;

use arrow::datatypes::{Field, Schema};
use thetis_parser::{Statement, parse_statement};

use super::*;
use crate::catalog::fold;
use crate::logical::data_type;

fn spec(columns: &str, options: &str) -> Result<SourceSpec, PlanError> {
    let columns = if columns.is_empty() { String::new() } else { format!("({columns})") };
    let sql = format!("CREATE STREAM t {columns} WITH ({options})");
    let Statement::CreateStream(create) = parse_statement(&sql).unwrap() else { panic!("{sql}") };
    let fields = create
        .columns
        .iter()
        .map(|column| Field::new(fold(&column.name), data_type(&column.data_type).unwrap(), !column.not_null));
    SourceSpec::of(&create, &Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

fn generator(columns: &str, options: &str) -> GeneratorSpec {
    match spec(columns, &format!("connector = 'generator', {options}")) {
        Ok(SourceSpec::Generator(generator)) => generator,
        other => panic!("{columns} {options}: {other:?}"),
    }
}

fn values(data_type: &str, text: &str) -> Distribution {
    let text = text.replace('\'', "''");
    generator(&format!("c {data_type}"), &format!("column.c = '{text}'")).columns[0].values.clone()
}

fn wrong(columns: &str, options: &str, says: &[&str]) {
    let error = spec(columns, options).unwrap_err();
    let text = format!("{} / {}", error.message, error.hint.as_deref().unwrap_or_default());
    assert!(error.position.is_some(), "{options}: {text} has no position");
    for part in says {
        assert!(text.contains(part), "{options}: {text:?} does not say {part:?}");
    }
}

#[test]
fn the_format_is_said_or_told_by_the_ending() {
    for (options, name) in [
        ("path = 'a.csv'", "csv"),
        ("path = 'a'", "csv"),
        ("path = 'a/*.parquet'", "parquet"),
        ("path = 'a.PARQUET', format = csv", "csv"),
        ("path = 'a.ndjson'", "ndjson"),
        ("path = 'a.jsonl'", "ndjson"),
        ("path = 'b/*.json'", "ndjson"),
        ("connector = 'FILE', path = 'a', format = 'JSON'", "ndjson"),
        ("path = 'a', format = 'jsonl', max_record_bytes = 100", "ndjson"),
    ] {
        let SourceSpec::File(file) = spec("a BIGINT", options).unwrap() else { panic!("{options}") };
        assert_eq!(file.format.name(), name, "{options}");
    }
}

#[test]
fn an_option_is_for_its_connector() {
    for (options, says) in [
        ("path = 'a.parquet', header = true", &["option header is for csv files", "the format is parquet"][..]),
        ("path = 'a.json', null = 'NA'", &["option null is for csv files", "the format is ndjson"]),
        ("path = 'a.parquet', max_record_bytes = 100", &["max_record_bytes is for csv and ndjson files"]),
        ("path = 'a', rows = 5", &["option rows is for the generator", "the connector is file"]),
        ("rows_per_second = 5", &["option rows_per_second is for the generator", "write connector = 'generator'"]),
        ("path = 'a', column.a = 'sequence(1)'", &["option column.a is for the generator"]),
        ("connector = 'generator', path = 'a'", &["option path is for files", "the connector is generator"]),
        ("connector = 'generator', on_error = 'skip'", &["option on_error is for files"]),
        ("connector = 'generator', sed = 1", &["no option 'sed'", "did you mean seed?"]),
        ("connector = 'generator', nonsense = 1", &["the options of the generator are", "column.NAME"]),
        ("pth = 'a'", &["no option 'pth'", "did you mean path?"]),
        ("connector = 'flie', path = 'a'", &["connector takes 'file' or 'generator'"]),
        ("path = 'a', format = 'xml'", &["format takes 'csv', 'ndjson' or 'parquet'"]),
        ("path = 'a', PATH = 'b'", &["option path is given twice"]),
        ("connector = 'file'", &["stream t has no path"]),
        ("connector = 'generator', column.a = 'uniform(0, 1)', \"column.a\" = 'uniform(0, 1)'", &["given twice"]),
    ] {
        wrong("a BIGINT", options, says);
    }
    wrong("", "connector = 'generator'", &["stream t has no columns", "declare"]);
}

#[test]
fn distributions_are_typed() {
    let sequence = |start, step, jitter| Distribution::Whole(Series::Sequence { start, step, jitter });
    let uniform = |low, high| Distribution::Whole(Series::Uniform { low, high });
    for (data_type, text, expected) in [
        ("BIGINT", "sequence(1)", sequence(1, 1, 0)),
        ("INT", " Sequence ( -5 , 10 ) ", sequence(-5, 10, 0)),
        ("DECIMAL(10,2)", "sequence(1.5)", sequence(150, 100, 0)),
        ("DECIMAL(10,2)", "uniform(0, 0.05)", uniform(0, 5)),
        ("DATE", "uniform(1970-01-01, 1970-01-31)", uniform(0, 30)),
        ("DATE", "timestamp(1970-01-02, 1 day)", sequence(1, 1, 0)),
        ("TIME", "uniform(00:00:00, 00:00:01)", uniform(0, 1_000_000_000)),
        ("TIMESTAMP(3)", "timestamp(1970-01-01 00:00:01, 1.5s, 20ms)", sequence(1000, 1500, 20)),
        ("TIMESTAMP", "timestamp(1970-01-01, 1us)", sequence(0, 1000, 0)),
        ("DOUBLE", "sequence(1, 0.5)", Distribution::Float(Series::Sequence { start: 1.0, step: 0.5, jitter: 0.0 })),
        ("REAL", "uniform(-1, 1e3)", Distribution::Float(Series::Uniform { low: -1.0, high: 1000.0 })),
        ("BIGINT UNSIGNED", "uniform(0, 18446744073709551615)", uniform(0, u64::MAX.into())),
        ("BIGINT", "zipf(1.1, 1000)", Distribution::Zipf { exponent: 1.1, n: 1000.0 }),
        ("DOUBLE", "normal(50, 10)", Distribution::Normal { mean: 50.0, deviation: 10.0 }),
        ("DECIMAL(10,2)", "normal(50, 10)", Distribution::Normal { mean: 5000.0, deviation: 1000.0 }),
        ("VARCHAR", "text(3)", Distribution::Text { min: 3, max: 3 }),
        ("VARCHAR", "text(0, 8)", Distribution::Text { min: 0, max: 8 }),
    ] {
        assert_eq!(values(data_type, text), expected, "{data_type} {text}");
    }
    let choice = |texts: &[&str]| Distribution::Choice(texts.iter().map(|text| (*text).to_owned()).collect());
    assert_eq!(values("VARCHAR", "choice(a, b c,d)"), choice(&["a", "b c", "d"]));
    assert_eq!(values("VARCHAR", "choice('a, b', \"it's\", 'it''s', x)"), choice(&["a, b", "it's", "it's", "x"]));
    assert_eq!(values("BOOLEAN", "choice(true)"), choice(&["true"]));
}

#[test]
fn what_is_not_a_distribution_is_told_what_is() {
    for (data_type, text, says) in [
        ("BIGINT", "5", "it takes one of sequence(start[, step]), uniform(low, high)"),
        ("BIGINT", "norml(1, 2)", "did you mean normal?"),
        ("BIGINT", "poisson(1)", "it takes one of"),
        ("BIGINT", "uniform(1, 2", "a closing parenthesis is missing"),
        ("BIGINT", "uniform(1)", "uniform takes uniform(low, high)"),
        ("BIGINT", "uniform(1, 2, 3)", "uniform takes uniform(low, high)"),
        ("BIGINT", "uniform(1.5, 2)", "'1.5' is not a BIGINT"),
        ("BIGINT", "uniform(2, 1)", "2 is greater than 1"),
        ("TINYINT", "uniform(0, 200)", "'200' is not a TINYINT"),
        ("DOUBLE", "uniform(0, x)", "'x' is not a number"),
        ("DOUBLE", "uniform(-1.7e308, 1.7e308)", "greater"),
        ("DOUBLE", "normal(nan, 1)", "'nan' is not a number"),
        ("DOUBLE", "normal(0, -1)", "at least 0"),
        ("VARCHAR", "normal(0, 1)", "it is for numbers, and the column is VARCHAR"),
        ("VARCHAR", "sequence(1)", "write text(length)"),
        ("TIMESTAMP", "sequence(1)", "write timestamp(start, step)"),
        ("BIGINT", "zipf(1, 0)", "n is a whole number from 1"),
        ("TINYINT", "zipf(1, 1000)", "from 1 to 127"),
        ("BIGINT", "zipf(-1, 10)", "at least 0"),
        ("BIGINT", "choice(1, b)", "'b' is not a BIGINT"),
        ("BIGINT", "choice()", "choice takes choice(value, ...)"),
        ("VARCHAR", "text(5, 3)", "5 is greater than 3"),
        ("VARCHAR", "text(100000)", "from 0 to 4096"),
        ("BIGINT", "text(5)", "it is for VARCHAR"),
        ("BIGINT", "timestamp(2026-01-01, 1s)", "it is for TIMESTAMP and DATE"),
        ("TIMESTAMP", "timestamp(2026-13-01, 1s)", "'2026-13-01' is not a TIMESTAMP"),
        ("TIMESTAMP", "timestamp(2026-01-01, 5)", "'5' is not a duration"),
        ("TIMESTAMP(0)", "timestamp(2026-01-01, 1ms)", "'1ms' is not a duration"),
        ("TIMESTAMP", "timestamp(2026-01-01, 1s, -1s)", "the jitter is at least 0"),
        ("DECIMAL(4,2)", "uniform(0, 100)", "'100' is not a DECIMAL(4,2)"),
        ("BYTEA", "choice(a)", "cannot be generated"),
    ] {
        let options = format!("connector = 'generator', column.c = '{text}'");
        wrong(&format!("c {data_type}"), &options, &[says]);
    }
    wrong("c BYTEA", "connector = 'generator'", &["column 'c': values of type BYTEA cannot be generated"]);
    wrong(
        "c TINYINT",
        "connector = 'generator', rows = 200, column.c = 'sequence(1)'",
        &["row 200 leaves the range of TINYINT"],
    );
    wrong("price BIGINT", "connector = 'generator', column.prise = 'sequence(1)'", &["did you mean price?"]);
    wrong("c BIGINT", "connector = 'generator', column.c.nulls = 2", &["a share from 0 to 1"]);
    wrong("c BIGINT NOT NULL", "connector = 'generator', column.c.nulls = 0.5", &["NOT NULL"]);
    wrong("c BIGINT", "connector = 'generator', rows_per_second = 0", &["rows_per_second takes a number"]);
    wrong("c BIGINT", "connector = 'generator', rows = -1", &["rows takes"]);
}

#[test]
fn a_generator_is_shown_with_its_speed_and_its_end() {
    let text = |options| generator("a BIGINT, b VARCHAR, c TIMESTAMP, d DATE, e DECIMAL(3,1), f TIME", options);
    let unbounded = text("rows_per_second = 1000");
    assert_eq!(unbounded.to_string(), "generator, 1000 rows/s, unbounded");
    assert!(!SourceSpec::Generator(unbounded).is_bounded());
    let bounded = text("rows = 50, rows_per_second = 'max', seed = 7, column.a.nulls = 0.25");
    assert_eq!(bounded.to_string(), "generator, as fast as rows are taken, 50 rows");
    assert_eq!((bounded.seed, bounded.columns[0].nulls), (7, 0.25));
    assert_eq!(bounded.columns[0].values, Distribution::Whole(Series::Uniform { low: 0, high: 999_999 }));
    assert_eq!(bounded.columns[4].values, Distribution::Whole(Series::Uniform { low: 0, high: 999 }));
    assert!(SourceSpec::Generator(bounded).is_bounded());
    let Distribution::Whole(Series::Sequence { step, .. }) = text("rows_per_second = 100").columns[2].values else {
        panic!("not a sequence")
    };
    assert_eq!(step, 10_000_000);
}

#[test]
fn column_names_keep_their_case() {
    let spec = generator("\"A\" BIGINT, a BIGINT", "column.\"A\" = 'sequence(1)', column.a = 'sequence(2)'");
    let start = |column: usize| match spec.columns[column].values {
        Distribution::Whole(Series::Sequence { start, .. }) => start,
        _ => panic!("not a sequence"),
    };
    assert_eq!((start(0), start(1)), (1, 2));
}
