use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::util::display::array_value_to_string;
use proptest::prelude::*;
use thetis_planner::connector::{FileFormat, FileSpec, NdjsonFormat, SourceSpec};

use super::*;
use crate::source::{Fetched, SourceCounters, Split, reader_for};

fn source(path: &Path, on_error: OnError, fields: Vec<Field>) -> Source {
    let projection = (0..fields.len() as u32).collect();
    let format = FileFormat::Ndjson(NdjsonFormat { max_record_bytes: 1 << 16 });
    let spec = SourceSpec::File(FileSpec { path: path.display().to_string(), format, on_error });
    let columns = Arc::new(Schema::new(fields));
    Source { stream: "t".to_owned(), spec, columns, projection, bounded: true, readers: 1, listing: None }
}

/// The rows as texts, and how many records were skipped.
fn read(bytes: &[u8], on_error: OnError, fields: Vec<Field>) -> Result<(Vec<Vec<String>>, u64), ExecError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.ndjson");
    std::fs::write(&path, bytes).unwrap();
    let counters = Arc::new(SourceCounters::default());
    let mut reader = reader_for(&source(&path, on_error, fields), Split::WHOLE, &[], &counters)?;
    let mut rows = Vec::new();
    while let Fetched::Rows(batch) = reader.next(Duration::ZERO)? {
        rows.extend((0..batch.num_rows()).map(|row| {
            let text = |column: &ArrayRef| {
                if column.is_null(row) { "NULL".to_owned() } else { array_value_to_string(column, row).unwrap() }
            };
            batch.columns().iter().map(text).collect::<Vec<_>>()
        }));
    }
    Ok((rows, counters.skipped.load(Ordering::Relaxed)))
}

fn fields() -> Vec<Field> {
    vec![Field::new("n", DataType::Int64, true), Field::new("s", DataType::Utf8, true)]
}

#[test]
fn fields_are_found_by_name() {
    let text = b"\xef\xbb\xbf{\"s\": \"a\", \"n\": 1, \"other\": {\"n\": [5]}}\r\n\r\n  \n{\"n\": 2}\n{\"s\": null, \"n\": 3.0}\n\
        {\"n\": 9007199254740993, \"s\": \"\\u00e4\\n\"}\n{\"s\": 7, \"n\": \"-4\"}\n{\"s\": true, \"S\": 1}";
    let (rows, skipped) = read(text, OnError::Fail, fields()).unwrap();
    let expected =
        [["1", "a"], ["2", "NULL"], ["3", "NULL"], ["9007199254740993", "\u{e4}\n"], ["-4", "7"], ["NULL", "true"]];
    assert_eq!(rows, expected);
    assert_eq!(skipped, 0);
}

#[test]
fn hostile_lines_are_named_or_skipped() {
    let deep = format!("{{\"x\": {}{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let deeper = "[".repeat(30_000);
    let digits = format!("{{\"n\": {}}}", "9".repeat(20_000));
    let long = format!("{{\"s\": \"{}\"}}", "x".repeat(1 << 20));
    let lines: Vec<(&[u8], &str)> = vec![
        (b"{\"n\": \"x\"}", "column n: 'x' is not a BIGINT"),
        (b"{\"n\": 1.5}", "column n: '1.5' is not a BIGINT"),
        (b"{\"n\": 9223372036854775808}", "column n: '9223372036854775808' is not a BIGINT"),
        (b"{\"n\": 1e400}", "column n: '1e400' is not a BIGINT"),
        (b"{\"n\": true}", "column n: 'true' is not a BIGINT"),
        (b"{\"n\": [1]}", "column n: [1] is not a BIGINT"),
        (b"{\"s\": {\"a\": 1}}", "column s: {\"a\": 1} is not a VARCHAR"),
        (digits.as_bytes(), "is not a BIGINT"),
        (deep.as_bytes(), "nested more than 128 levels"),
        (deeper.as_bytes(), "nested more than 128 levels"),
        (b"{\"n\": 1", "ends in the middle"),
        (b"{\"s\": \"abc", "ends in the middle"),
        (b"{\"s\": \"abc\\", "not JSON"),
        (b"{\"s\": \"\\ud8", "not JSON"),
        (b"{\"n\": 1} {\"n\": 2}", "more than one JSON value"),
        (b"{\"n\": 1}}", "not JSON"),
        (b"{\"n\" 1}", "not JSON"),
        (b"{\"n\": nul}", "not JSON"),
        (b"{\"s\": \"\\q\"}", "not JSON"),
        (b"{\"s\": \"\\ud800\\ud800\"}", "UTF"),
        (b"\0\0\0", "not JSON"),
        (b"{\"n\": \0}", "not JSON"),
        (b"{\"s\": \"\xff\xfe\"}", "not valid UTF-8"),
        (b"{\"s\": \"\xc3\"}", "not valid UTF-8"),
        (b"n,s", "not JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b"5", "not a JSON object"),
        (b"null", "not a JSON object"),
        (long.as_bytes(), "longer than 65536 bytes (option"),
    ];
    let mut everything = Vec::new();
    for (line, says) in &lines {
        let text = [b"{\"n\": 1, \"s\": \"a\"}\n", *line, b"\n{\"n\": 2, \"s\": \"b\"}\n"].concat();
        let error = read(&text, OnError::Fail, fields()).unwrap_err().to_string();
        assert!(error.contains("t.ndjson, line 2: ") && error.contains(says), "{error:?} does not say {says:?}");
        assert!(error.len() < 400, "{error}");
        let (rows, skipped) = read(&text, OnError::Skip, fields()).unwrap();
        assert_eq!(
            (rows, skipped),
            (vec![vec!["1".to_owned(), "a".to_owned()], vec!["2".to_owned(), "b".to_owned()]], 1)
        );
        everything.extend_from_slice(&text);
    }
    let (rows, skipped) = read(&everything, OnError::Skip, fields()).unwrap();
    assert_eq!((rows.len(), skipped as usize), (2 * lines.len(), lines.len()));
    // A last line that is cut off.
    let error = read(b"{\"n\": 1}\n{\"n\": ", OnError::Fail, fields()).unwrap_err().to_string();
    assert!(error.contains("line 2: the line ends in the middle"), "{error}");
}

#[test]
fn columns_that_are_declared_not_null_have_values() {
    let field = || vec![Field::new("n", DataType::Decimal128(6, 2), false)];
    let error = read(b"{\"n\": 1}\n{\"m\": 1}\n", OnError::Fail, field()).unwrap_err().to_string();
    assert!(error.contains("line 2: column n is NULL or missing"), "{error}");
    let (rows, skipped) = read(b"{\"n\": 1.005}\n{\"n\": null}\n{\"n\": 10000}\n", OnError::Skip, field()).unwrap();
    assert_eq!((rows, skipped), (vec![vec!["1.01".to_owned()]], 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn lines_are_read_one_by_one(
        lines in proptest::collection::vec((0_u8..7, any::<i32>(), "[a-z ]{0,5}"), 0..200),
        crlf in any::<bool>(),
    ) {
        let mut text = String::new();
        let mut expected = Vec::new();
        let mut bad = 0;
        for (kind, n, s) in lines {
            let row = |n: &str, s: &str| vec![n.to_owned(), s.to_owned()];
            let (line, good) = match kind {
                0 => (format!("{{\"n\":{n},\"s\":\"{s}\"}}"), Some(row(&n.to_string(), &s))),
                1 => (format!(" {{ \"s\" : \"{s}\" , \"z\" : [{n}] }} "), Some(row("NULL", &s))),
                2 => (format!("{{\"n\":{n}}}"), Some(row(&n.to_string(), "NULL"))),
                3 => ("{}".to_owned(), Some(row("NULL", "NULL"))),
                4 => (format!("{{\"n\":{n},"), None),
                5 => (format!("\"s\":\"{s}\"}}"), None),
                _ => (s.clone(), None),
            };
            let blank = line.trim().is_empty();
            bad += u64::from(good.is_none() && !blank);
            expected.extend(good);
            text += &line;
            text += if crlf { "\r\n" } else { "\n" };
        }
        let (rows, skipped) = read(text.as_bytes(), OnError::Skip, fields()).unwrap();
        prop_assert_eq!(rows, expected);
        prop_assert_eq!(skipped, bad);
    }
}
