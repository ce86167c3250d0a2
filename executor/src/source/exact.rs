//! Whole numbers and decimals from the text of JSON numbers, to the last digit: `1.0` and `1e3` are
//! whole numbers, `1.5` is none, and nothing goes through floating point.

use std::str::FromStr;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, Decimal128Array, PrimitiveArray, StringArray};
use arrow::datatypes::{
    DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

/// Whether values of the type are read here.
pub(super) fn is_exact(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Decimal128(..))
}

/// The values of an exact type; the first text that is none, otherwise. `None` for another type.
pub(super) fn read<'a>(texts: &'a StringArray, data_type: &DataType) -> Option<Result<ArrayRef, &'a str>> {
    Some(match data_type {
        DataType::Int8 => whole::<Int8Type>(texts),
        DataType::Int16 => whole::<Int16Type>(texts),
        DataType::Int32 => whole::<Int32Type>(texts),
        DataType::Int64 => whole::<Int64Type>(texts),
        DataType::UInt8 => whole::<UInt8Type>(texts),
        DataType::UInt16 => whole::<UInt16Type>(texts),
        DataType::UInt32 => whole::<UInt32Type>(texts),
        DataType::UInt64 => whole::<UInt64Type>(texts),
        DataType::Decimal128(precision, scale) => decimal(texts, *precision, *scale),
        _ => return None,
    })
}

fn collect<T: ArrowPrimitiveType>(
    texts: &StringArray,
    parse: impl Fn(&str) -> Option<T::Native>,
) -> Result<PrimitiveArray<T>, &str> {
    let mut values = Vec::with_capacity(texts.len());
    for text in texts {
        values.push(match text {
            Some(text) => parse(text).ok_or(text)?,
            None => T::Native::default(),
        });
    }
    Ok(PrimitiveArray::new(values.into(), texts.nulls().cloned()))
}

fn whole<T>(texts: &StringArray) -> Result<ArrayRef, &str>
where
    T: ArrowPrimitiveType,
    T::Native: FromStr + TryFrom<i128>,
{
    let parse = |text: &str| text.parse().ok().or_else(|| T::Native::try_from(scaled(text, 0, false)?).ok());
    Ok(Arc::new(collect::<T>(texts, parse)?))
}

fn decimal(texts: &StringArray, precision: u8, scale: i8) -> Result<ArrayRef, &str> {
    let greatest = 10_i128.pow(u32::from(precision).min(38)) - 1;
    let parse = |text: &str| scaled(text, scale.into(), true).filter(|value| (-greatest..=greatest).contains(value));
    let values: Decimal128Array = collect(texts, parse)?;
    Ok(Arc::new(values.with_data_type(DataType::Decimal128(precision, scale))))
}

/// `text` times 10^`scale` as a whole number. Digits behind it are rounded, half away from zero,
/// or refused.
fn scaled(text: &str, scale: i64, round: bool) -> Option<i128> {
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, i64::from(exponent.parse::<i32>().ok()?)),
        None => (text, 0),
    };
    let (negative, digits) = match number.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let mut value: i128 = 0;
    for byte in whole.bytes().chain(fraction.bytes()) {
        let digit = byte.is_ascii_digit().then(|| i128::from(byte - b'0'))?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    let shift = exponent + scale - i64::try_from(fraction.len()).ok()?;
    let power = || 10_i128.checked_pow(u32::try_from(shift.unsigned_abs()).ok()?);
    let value = match (value, shift) {
        (0, _) | (_, 0) => value,
        (_, 1..) => value.checked_mul(power()?)?,
        _ => match power() {
            Some(power) if value % power == 0 => value / power,
            _ if !round => return None,
            Some(power) => value / power + i128::from(value % power >= power - value % power),
            None => 0,
        },
    };
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_read_to_the_last_digit() {
        for (text, whole) in [
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("9007199254740993.0", Some(9_007_199_254_740_993)),
            ("1e3", Some(1000)),
            ("-12.50e1", Some(-125)),
            ("1.5", None),
            ("1e-1", None),
            ("0e999999999", Some(0)),
            ("1e999999999", None),
            ("1e-999999999", None),
            ("1e99999999999", None),
            ("", None),
            (".", None),
            ("-", None),
            ("1-2", None),
            ("1.2.3", None),
            ("true", None),
        ] {
            assert_eq!(scaled(text, 0, false), whole, "{text}");
        }
        let money = [("1.005", 101), ("-1.005", -101), ("1.004999", 100), ("3", 300), ("1e-300", 0), ("2.5E+1", 2500)];
        for (text, cents) in money {
            assert_eq!(scaled(text, 2, true), Some(cents), "{text}");
        }
        assert_eq!(scaled(&"9".repeat(300), 2, true), None);
        assert_eq!(scaled(&format!("0.{}", "9".repeat(300)), 2, true), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in any::<i64>(), zeros in 0_usize..5, up in 0_u32..4) {
            let plain = format!("{value}.{}", "0".repeat(zeros));
            prop_assert_eq!(scaled(&plain, 0, false), Some(value.into()));
            let scale = 10_i128.pow(up);
            let exponent = format!("{value}e-{up}");
            let exact = i128::from(value) % scale == 0;
            prop_assert_eq!(scaled(&exponent, 0, false), exact.then_some(i128::from(value) / scale));
            prop_assert_eq!(scaled(&exponent, up.into(), false), Some(value.into()));
        }
    }
}
