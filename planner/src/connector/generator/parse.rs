//! The texts of distributions: `name(argument, ...)`, read for a column's type. Errors are the
//! hint: what is expected instead.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Decimal128Type, Int64Type};

use super::{DAY, Distribution, Series, nanoseconds, whole_limits};
use crate::types::sql_name;

/// Most letters of a generated text.
const LONGEST: u32 = 4096;
/// Longest argument that is read.
const LONGEST_NUMBER: usize = 64;

/// A distribution by its name.
struct Form {
    name: &'static str,
    takes: &'static str,
    read: fn(&[String], &DataType) -> Result<Distribution, String>,
}

const FORMS: [Form; 7] = [
    Form { name: "sequence", takes: "sequence(start[, step])", read: sequence },
    Form { name: "uniform", takes: "uniform(low, high)", read: uniform },
    Form { name: "zipf", takes: "zipf(exponent, n)", read: zipf },
    Form { name: "normal", takes: "normal(mean, deviation)", read: normal },
    Form { name: "choice", takes: "choice(value, ...)", read: choice },
    Form { name: "text", takes: "text(length) or text(min, max)", read: text },
    Form { name: "timestamp", takes: "timestamp(start, step[, jitter])", read: timestamp },
];

/// Reads a distribution for a column of this type.
pub(super) fn distribution(text: &str, data_type: &DataType) -> Result<Distribution, String> {
    let all = || FORMS.map(|form| form.takes).join(", ");
    let Some((name, rest)) = text.trim().split_once('(') else {
        return Err(format!("it takes one of {}", all()));
    };
    let name = name.trim().to_lowercase();
    let Some(form) = FORMS.iter().find(|form| form.name == name) else {
        return Err(match thetis_parser::closest(&name, FORMS.map(|form| form.name)) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("it takes one of {}", all()),
        });
    };
    let Some(inner) = rest.strip_suffix(')') else {
        return Err(format!("a closing parenthesis is missing: {}", form.takes));
    };
    (form.read)(&arguments(inner), data_type).map_err(|hint| {
        if hint.is_empty() { format!("{name} takes {}", form.takes) } else { format!("{}: {hint}", form.takes) }
    })
}

/// Splits at commas. Quotes, single or double, keep commas and spaces; a doubled one stands for
/// itself.
fn arguments(text: &str) -> Vec<String> {
    let mut arguments = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let (argument, after) = argument(rest);
        arguments.push(argument);
        let Some(next) = after.trim_start().strip_prefix(',') else {
            // What stands behind a quoted argument belongs to no argument: it is one too many.
            arguments.extend(Some(after.trim().to_owned()).filter(|more| !more.is_empty()));
            return arguments;
        };
        rest = next.trim_start();
        if rest.is_empty() {
            arguments.push(String::new());
        }
    }
    arguments
}

/// The first argument, and what follows it.
fn argument(text: &str) -> (String, &str) {
    let Some(quote) = text.chars().next().filter(|first| matches!(first, '\'' | '"')) else {
        let end = text.find(',').unwrap_or(text.len());
        return (text[..end].trim().to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, char)) = chars.next() {
        if char != quote {
            value.push(char);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            value.push(quote);
        } else {
            return (value, &text[at + 1..]);
        }
    }
    (value, "")
}

fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float32 | DataType::Float64)
}

/// Whole numbers and decimals.
fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Decimal128(..))
}

fn not_for(what: &str, data_type: &DataType) -> String {
    format!("it is for {what}, and the column is {}", sql_name(data_type))
}

/// A value that the column's type does not read.
fn not_a(text: &str, data_type: &DataType) -> String {
    format!("'{text}' is not a {}", sql_name(data_type))
}

fn cast(texts: &[&str], data_type: &DataType) -> Option<ArrayRef> {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(texts));
    cast_with_options(&texts, data_type, &CastOptions { safe: false, ..CastOptions::default() }).ok()
}

/// A literal of the type as a whole number in the type's own unit.
pub(super) fn whole(text: &str, data_type: &DataType) -> Option<i128> {
    if text.len() > LONGEST_NUMBER {
        return None;
    }
    let value = if data_type.is_integer() {
        text.parse().ok()?
    } else {
        let value = cast(&[text], data_type)?;
        match data_type {
            DataType::Decimal128(..) => value.as_primitive::<Decimal128Type>().value(0),
            _ => {
                let raw = arrow::compute::cast(&value, &DataType::Int64).ok()?;
                i128::from(raw.as_primitive::<Int64Type>().value(0))
            }
        }
    };
    let (least, greatest) = whole_limits(data_type)?;
    (least..=greatest).contains(&value).then_some(value)
}

fn float(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| format!("'{text}' is not a number"))
}

/// A distance between values: a number, or a duration for dates and times.
fn distance(text: &str, data_type: &DataType) -> Option<i128> {
    let unit = match data_type {
        DataType::Date32 => {
            if let Ok(days) = text.parse::<i32>() {
                return Some(days.into());
            }
            DAY
        }
        DataType::Timestamp(unit, _) | DataType::Time32(unit) | DataType::Time64(unit) => nanoseconds(*unit),
        _ => return whole(text, data_type),
    };
    let duration = duration(text)?;
    (duration % unit == 0).then_some(duration / unit)
}

/// A duration with its unit, in nanoseconds.
fn duration(text: &str) -> Option<i128> {
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let scale = match text[at..].trim().to_lowercase().as_str() {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" | "sec" | "second" | "seconds" => 1e9,
        "min" | "minute" | "minutes" => 60e9,
        "h" | "hour" | "hours" => 3600e9,
        "d" | "day" | "days" => DAY as f64,
        _ => return None,
    };
    let nanoseconds = (text[..at].trim().parse::<f64>().ok()? * scale).round();
    (nanoseconds.abs() < 9e18).then_some(nanoseconds as i128)
}

/// A distance, or what is wrong with it.
fn step(text: &str, data_type: &DataType) -> Result<i128, String> {
    distance(text, data_type).ok_or_else(|| {
        if is_exact(data_type) {
            not_a(text, data_type)
        } else {
            format!("'{text}' is not a duration such as 1s, 10ms or 1 day that {} can tell", sql_name(data_type))
        }
    })
}

fn sequence(arguments: &[String], data_type: &DataType) -> Result<Distribution, String> {
    let [start, more @ ..] = arguments else { return Err(String::new()) };
    if more.len() > 1 {
        return Err(String::new());
    }
    if is_float(data_type) {
        let step = more.first().map_or(Ok(1.0), |step| float(step))?;
        return Ok(Distribution::Float(Series::Sequence { start: float(start)?, step, jitter: 0.0 }));
    }
    if !is_exact(data_type) {
        let hint = if matches!(data_type, DataType::Timestamp(..) | DataType::Date32) {
            "write timestamp(start, step)"
        } else {
            "write text(length) or choice(value, ...)"
        };
        return Err(format!("{}; {hint}", not_for("numbers", data_type)));
    }
    let one = if let DataType::Decimal128(_, scale) = data_type { ten_to(*scale) } else { 1 };
    Ok(Distribution::Whole(Series::Sequence {
        start: whole(start, data_type).ok_or_else(|| not_a(start, data_type))?,
        step: more.first().map_or(Ok(one), |text| step(text, data_type))?,
        jitter: 0,
    }))
}

/// 1 as the unscaled value of a decimal.
fn ten_to(scale: i8) -> i128 {
    u32::try_from(scale).ok().and_then(|scale| 10_i128.checked_pow(scale)).unwrap_or(1)
}

fn uniform(arguments: &[String], data_type: &DataType) -> Result<Distribution, String> {
    let [low, high] = arguments else { return Err(String::new()) };
    let empty = || format!("{low} is greater than {high}");
    if is_float(data_type) {
        let (low, high) = (float(low)?, float(high)?);
        if low > high || !(high - low).is_finite() {
            return Err(empty());
        }
        return Ok(Distribution::Float(Series::Uniform { low, high }));
    }
    if whole_limits(data_type).is_none() {
        return Err(not_for("numbers, dates and times", data_type));
    }
    let value = |text: &str| whole(text, data_type).ok_or_else(|| not_a(text, data_type));
    let (from, to) = (value(low)?, value(high)?);
    if from > to {
        return Err(empty());
    }
    Ok(Distribution::Whole(Series::Uniform { low: from, high: to }))
}

fn zipf(arguments: &[String], data_type: &DataType) -> Result<Distribution, String> {
    let [exponent, n] = arguments else { return Err(String::new()) };
    if !is_float(data_type) && !data_type.is_integer() {
        return Err(not_for("whole numbers and DOUBLE", data_type));
    }
    let exponent = float(exponent)?;
    if exponent < 0.0 {
        return Err("the exponent is at least 0".to_owned());
    }
    let most = whole_limits(data_type).map_or(1 << 53, |(_, greatest)| greatest.min(1 << 53));
    let n: i128 = n
        .parse()
        .ok()
        .filter(|n| (1..=most).contains(n))
        .ok_or_else(|| format!("n is a whole number from 1 to {most}, and values are from 1 to n"))?;
    Ok(Distribution::Zipf { exponent, n: n as f64 })
}

fn normal(arguments: &[String], data_type: &DataType) -> Result<Distribution, String> {
    let [mean, deviation] = arguments else { return Err(String::new()) };
    if !is_float(data_type) && !is_exact(data_type) {
        return Err(not_for("numbers", data_type));
    }
    let one = if let DataType::Decimal128(_, scale) = data_type { ten_to(*scale) as f64 } else { 1.0 };
    let (mean, deviation) = (float(mean)? * one, float(deviation)? * one);
    if deviation < 0.0 {
        return Err("the deviation is at least 0".to_owned());
    }
    Ok(Distribution::Normal { mean, deviation })
}

fn choice(arguments: &[String], data_type: &DataType) -> Result<Distribution, String> {
    if arguments.is_empty() {
        return Err(String::new());
    }
    let too_long = |text: &str| *data_type != DataType::Utf8 && text.len() > LONGEST_NUMBER;
    let read = |text: &str| !too_long(text) && cast(&[text], data_type).is_some_and(|value| value.null_count() == 0);
    match arguments.iter().find(|text| !read(text)) {
        Some(text) => Err(not_a(text, data_type)),
        None => Ok(Distribution::Choice(arguments.to_vec())),
    }
}

fn text(arguments: &[String], data_type: &DataType) -> Result<Distribution, String> {
    if *data_type != DataType::Utf8 {
        return Err(not_for("VARCHAR", data_type));
    }
    let length = |text: &str| {
        let length = text.parse().ok().filter(|length| *length <= LONGEST);
        length.ok_or_else(|| format!("a length is a whole number from 0 to {LONGEST}"))
    };
    let (min, max) = match arguments {
        [both] => (length(both)?, length(both)?),
        [min, max] => (length(min)?, length(max)?),
        _ => return Err(String::new()),
    };
    if min > max {
        return Err(format!("{min} is greater than {max}"));
    }
    Ok(Distribution::Text { min, max })
}

fn timestamp(arguments: &[String], data_type: &DataType) -> Result<Distribution, String> {
    let [start, every, more @ ..] = arguments else { return Err(String::new()) };
    if more.len() > 1 {
        return Err(String::new());
    }
    if !matches!(data_type, DataType::Timestamp(..) | DataType::Date32) {
        return Err(not_for("TIMESTAMP and DATE", data_type));
    }
    let jitter = more.first().map_or(Ok(0), |jitter| step(jitter, data_type))?;
    if jitter < 0 {
        return Err("the jitter is at least 0".to_owned());
    }
    Ok(Distribution::Whole(Series::Sequence {
        start: whole(start, data_type).ok_or_else(|| not_a(start, data_type))?,
        step: step(every, data_type)?,
        jitter,
    }))
}
