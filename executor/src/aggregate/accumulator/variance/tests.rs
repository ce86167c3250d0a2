use arrow::array::{Decimal128Array, Decimal256Array, Int64Array};
use arrow::datatypes::i256;
use proptest::prelude::*;

use super::*;
use crate::aggregate::accumulator::Selected;

/// `numerator / denominator` or its square root, correctly rounded, by integers alone.
pub(in crate::aggregate) fn quotient(numerator: i256, denominator: i256, root: bool) -> f64 {
    if numerator == i256::ZERO {
        return 0.0;
    }
    let bits = 256 - numerator.leading_zeros() as i32;
    // The quotient's last bit stands for all that is below it.
    let shift = (120 + 256 - denominator.leading_zeros() as i32 - bits) & !1;
    let (scaled, lost) = if shift >= 0 {
        (numerator << shift as u8, false)
    } else {
        let scaled = numerator >> -shift as u8;
        (scaled, scaled << -shift as u8 != numerator)
    };
    let (mut digits, _) = (scaled / denominator).to_parts();
    let mut inexact = lost || scaled % denominator != i256::ZERO;
    let mut exponent = shift;
    if root {
        let root = digits.isqrt();
        inexact |= root * root != digits;
        (digits, exponent) = (root << 1, shift / 2 + 1);
    }
    (digits | u128::from(inexact)) as f64 * 2_f64.powi(-exponent)
}

/// The variance of whole numbers over `10^scale` in 256 bits.
pub(in crate::aggregate) fn naive(function: AggregateFunction, values: &[i256], scale: u32) -> Option<f64> {
    use AggregateFunction as F;
    let sample = matches!(function, F::VarSamp | F::StddevSamp);
    let number = |value: usize| i256::from_i128(value as i128);
    let count = values.len();
    if count == 0 || (sample && count == 1) {
        return None;
    }
    let sum = values.iter().fold(i256::ZERO, |sum, value| sum + *value);
    let squares = values.iter().fold(i256::ZERO, |sum, value| sum + *value * *value);
    let degrees = if sample { count - 1 } else { count };
    let denominator = number(count * degrees) * number(100).checked_pow(scale).unwrap();
    let root = matches!(function, F::StddevSamp | F::StddevPop);
    Some(quotient(number(count) * squares - sum * sum, denominator, root))
}

const FUNCTIONS: [AggregateFunction; 4] = [
    AggregateFunction::VarSamp,
    AggregateFunction::VarPop,
    AggregateFunction::StddevSamp,
    AggregateFunction::StddevPop,
];

/// Inserts, or deletes of what is there, by epochs.
type Changes<T> = Vec<Vec<(T, Option<prop::sample::Index>)>>;

fn changes<T: std::fmt::Debug + Clone + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Changes<T>> {
    let delete = prop::option::weighted(0.4, any::<prop::sample::Index>());
    prop::collection::vec(prop::collection::vec((value, delete), 0..8), 1..6).boxed()
}

fn update(accumulator: &mut Variance, values: ArrayRef, weights: &[i64]) {
    let rows: Vec<u32> = (0..weights.len() as u32).collect();
    let groups = vec![0; weights.len()];
    accumulator.resize(1);
    let weights = Some(weights);
    accumulator
        .update(&Update { values: &[values], order: &[], rows: Selected::Rows(&rows), groups: Some(&groups), weights })
        .unwrap();
}

/// Runs the changes, an epoch at a time; `check` gets the functions' results and the live values.
fn run<T: Clone>(
    changes: &Changes<T>,
    data_type: &DataType,
    array: impl Fn(&[T]) -> ArrayRef,
    mut check: impl FnMut(AggregateFunction, Option<f64>, &[T]) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    for function in FUNCTIONS {
        let new = || Variance::new(function, data_type);
        let mut base = new();
        base.resize(1);
        let mut live: Vec<T> = Vec::new();
        for epoch in changes {
            let (mut values, mut weights) = (Vec::new(), Vec::new());
            for (value, delete) in epoch {
                match delete {
                    Some(pick) if !live.is_empty() => {
                        values.push(live.swap_remove(pick.index(live.len())));
                        weights.push(-1);
                    }
                    _ => {
                        live.push(value.clone());
                        values.push(value.clone());
                        weights.push(1);
                    }
                }
            }
            let mut table = new();
            update(&mut table, array(&values), &weights);
            base.merge(&table, &[0]).unwrap();
            let mut fresh = new();
            update(&mut fresh, array(&live), &vec![1; live.len()]);
            // To the bit what a batch query would say.
            prop_assert_eq!(base.value(0).map(f64::to_bits), fresh.value(0).map(f64::to_bits));
            check(function, base.value(0), &live)?;
        }
    }
    Ok(())
}

/// Any finite float, all exponents alike; and some that are neither.
fn wild() -> impl Strategy<Value = f64> {
    prop_oneof![
        12 => any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |value| value.is_finite()),
        4 => (-20_i32..20).prop_map(|n| 1e9 + f64::from(n) / 1024.0),
        1 => prop_oneof![Just(-0.0), Just(f64::MAX), Just(f64::MIN), Just(5e-324)],
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)],
    ]
}

/// Two passes over the values divided by a power of two near the greatest, so that nothing overflows.
fn two_passes(function: AggregateFunction, values: &[f64]) -> Option<f64> {
    use AggregateFunction as F;
    let sample = matches!(function, F::VarSamp | F::StddevSamp);
    let degrees = if sample { values.len().saturating_sub(1) } else { values.len() };
    if degrees == 0 {
        return None;
    }
    let greatest = values.iter().fold(0.0, |most: f64, value| most.max(value.abs()));
    let half = ((greatest.max(1e-300)).log2() / 2.0) as i32;
    let (up, down) = (2_f64.powi(half), 2_f64.powi(-half));
    let values: Vec<f64> = values.iter().map(|value| value * down * down).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / degrees as f64;
    let root = matches!(function, F::StddevSamp | F::StddevPop);
    Some(if root { variance.sqrt() * up * up } else { variance * up * up * up * up })
}

proptest! {
    #[test]
    fn whole_numbers_are_rounded_once(
        changes in changes(prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -3_i64..4]),
    ) {
        let array = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
        run(&changes, &DataType::Int64, array, |function, found, live| {
            let live: Vec<i256> = live.iter().map(|value| i256::from_i128(i128::from(*value))).collect();
            prop_assert_eq!(found, naive(function, &live, 0));
            Ok(())
        })?;
    }

    #[test]
    fn decimals_are_rounded_once(
        changes in changes((-10_i128.pow(28)..10_i128.pow(28), 0_u32..28).prop_map(|(value, cut)| value / 10_i128.pow(cut))),
        scale in 0_u32..6, wide: bool,
    ) {
        let small = DataType::Decimal128(38, scale as i8);
        let data_type = if wide { DataType::Decimal256(76, scale as i8) } else { small.clone() };
        let array = |values: &[i128]| {
            let values = Decimal128Array::from(values.to_vec()).with_data_type(small.clone());
            cast(&values, &data_type).unwrap()
        };
        run(&changes, &data_type, array, |function, found, live| {
            let live: Vec<i256> = live.iter().map(|value| i256::from_i128(*value)).collect();
            prop_assert_eq!(found, naive(function, &live, scale));
            Ok(())
        })?;
    }

    #[test]
    fn floats_of_all_magnitudes(changes in changes(wild())) {
        let array = |values: &[f64]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
        run(&changes, &DataType::Float64, array, |function, found, live| {
            let expected = two_passes(function, live);
            let finite = live.iter().all(|value| value.is_finite());
            match (found, expected) {
                (Some(found), Some(_)) if !finite => prop_assert!(found.is_nan()),
                (Some(found), Some(expected)) => {
                    // The two passes themselves are only as good as their mean.
                    let greatest = live.iter().fold(0.0, |most: f64, value| most.max(value.abs())) * 1e-14;
                    let root = matches!(function, AggregateFunction::StddevSamp | AggregateFunction::StddevPop);
                    let slack = if root { greatest } else { greatest * greatest };
                    let near = (found - expected).abs() <= 1e-6 * expected.abs() + slack + 1e-300;
                    prop_assert!(found == expected || near, "{:?}: {} instead of {}", function, found, expected);
                }
                (found, expected) => prop_assert_eq!(found, expected),
            }
            Ok(())
        })?;
    }
}

#[test]
fn the_widest_decimals_do_not_overflow() {
    let nines = 10_i128.pow(38) - 1;
    let mut accumulator = Variance::new(AggregateFunction::VarPop, &DataType::Decimal128(38, 0));
    let values = Decimal128Array::from(vec![nines, -nines]).with_data_type(DataType::Decimal128(38, 0));
    update(&mut accumulator, Arc::new(values), &[1 << 40, 1 << 40]);
    assert_eq!(accumulator.value(0), Some(1e76));
    let nines = i256::from_string(&"9".repeat(76)).unwrap();
    let mut accumulator = Variance::new(AggregateFunction::StddevPop, &DataType::Decimal256(76, 2));
    let values = Decimal256Array::from(vec![nines, nines.wrapping_neg()]).with_data_type(DataType::Decimal256(76, 2));
    update(&mut accumulator, Arc::new(values), &[5, 5]);
    assert_eq!(accumulator.value(0), Some(1e74));
}

#[test]
fn what_floats_share_does_not_drown_what_they_do_not() {
    let mut accumulator = Variance::new(AggregateFunction::VarSamp, &DataType::Float64);
    let values: Vec<f64> = [4.0, 7.0, 13.0, 16.0].map(|value| 1e15 + value).to_vec();
    update(&mut accumulator, Arc::new(Float64Array::from(values)), &[1; 4]);
    assert_eq!(accumulator.value(0), Some(30.0));
    update(&mut accumulator, Arc::new(Float64Array::from(vec![1e300, f64::NAN])), &[1, 1]);
    assert!(accumulator.value(0).is_some_and(f64::is_nan));
    update(&mut accumulator, Arc::new(Float64Array::from(vec![f64::NAN, 1e300])), &[-1, -1]);
    assert_eq!(accumulator.value(0), Some(30.0));
}
