//! Sums without rounding, as wide as their terms need, and their rounding at the very end.
//!
//! A fixed-point accumulator (Kulisch 2008) that grows to the digits in use: one or two for whole
//! numbers, a few for floats of like magnitudes, 34 for all of DOUBLE.

use std::iter::repeat_n;

/// A number to be added: `limbs` is its magnitude over `2^(64 * place)`, least limb first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Term {
    negative: bool,
    limbs: [u64; 4],
    place: i32,
}

impl Term {
    /// A whole number of 257 bits: 256 and the sign.
    pub(super) fn whole(negative: bool, [low, high]: [u128; 2]) -> Self {
        Self { negative, limbs: [low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64], place: 0 }
    }

    /// A finite float.
    pub(super) fn float(value: f64) -> Self {
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
        // Subnormal numbers have no hidden bit.
        let (mantissa, exponent) =
            if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
        let shifted = u128::from(mantissa) << exponent.rem_euclid(64);
        let place = exponent.div_euclid(64);
        Self { negative: value < 0.0, limbs: [shifted as u64, (shifted >> 64) as u64, 0, 0], place }
    }

    fn each(&self) -> impl Iterator<Item = (i32, u64)> {
        (0..).zip(self.limbs).filter(|(_, limb)| *limb != 0)
    }
}

/// An exact sum: that of `digits[i] * 2^(64 * (low + i))`.
///
/// An addition changes a digit by less than 2^64, and a digit has 127 bits and a sign: carries wait
/// until the sum is read, and what is taken away leaves the digits as they were.
#[derive(Debug, Default, Clone)]
pub(super) struct Wide {
    low: i32,
    digits: Vec<i128>,
}

impl Wide {
    /// Adds a number `weight` times.
    pub(super) fn add(&mut self, term: &Term, weight: i64) {
        let weight = if term.negative { -i128::from(weight) } else { i128::from(weight) };
        term.each().for_each(|(place, limb)| self.add_limb(term.place + place, limb, weight));
    }

    /// Adds the square of a number `weight` times.
    pub(super) fn add_square(&mut self, term: &Term, weight: i64) {
        let weight = i128::from(weight);
        for (i, a) in term.each() {
            for (j, b) in term.each() {
                let product = u128::from(a) * u128::from(b);
                let place = 2 * term.place + i + j;
                self.add_limb(place, product as u64, weight);
                self.add_limb(place + 1, (product >> 64) as u64, weight);
            }
        }
    }

    fn add_limb(&mut self, place: i32, limb: u64, weight: i128) {
        if limb == 0 {
            return;
        }
        // Split by magnitude: the same weight with the other sign undoes it digit by digit.
        let product = i128::from(limb) * weight;
        let size = product.unsigned_abs();
        let (sign, low, high) = (product.signum(), size & u128::from(u64::MAX), size >> 64);
        *self.digit(place) += sign * low as i128;
        if high != 0 {
            *self.digit(place + 1) += sign * high as i128;
        }
    }

    fn digit(&mut self, place: i32) -> &mut i128 {
        if self.digits.is_empty() {
            self.low = place;
        }
        if place < self.low {
            self.digits.splice(0..0, repeat_n(0, (self.low - place) as usize));
            self.low = place;
        }
        let index = (place - self.low) as usize;
        if index >= self.digits.len() {
            self.digits.resize(index + 1, 0);
        }
        &mut self.digits[index]
    }

    /// Adds another sum.
    pub(super) fn merge(&mut self, other: &Self) {
        for (place, digit) in (other.low..).zip(&other.digits) {
            if *digit != 0 {
                *self.digit(place) += digit;
            }
        }
        // Digits of terms that are gone.
        let used = self.digits.iter().rposition(|digit| *digit != 0).map_or(0, |last| last + 1);
        self.digits.truncate(used);
    }

    /// The magnitude of the sum, its carries propagated.
    pub(super) fn magnitude(&self) -> Magnitude {
        let mut limbs = Vec::with_capacity(self.digits.len() + 2);
        let mut carry = 0_i128;
        for digit in &self.digits {
            let sum = digit + carry;
            limbs.push(sum as u64);
            carry = sum >> 64;
        }
        limbs.extend([carry as u64, (carry >> 64) as u64]);
        if carry < 0 {
            let mut borrow = true;
            for limb in &mut limbs {
                (*limb, borrow) = (!*limb).overflowing_add(u64::from(borrow));
            }
        }
        Magnitude { low: self.low, limbs }.trimmed()
    }
}

/// A number that is not negative: `limbs` over `2^(64 * low)`, least limb first, the last one not 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Magnitude {
    low: i32,
    limbs: Vec<u64>,
}

impl Magnitude {
    /// A whole number.
    pub(super) fn whole(value: u128) -> Self {
        Self { low: 0, limbs: vec![value as u64, (value >> 64) as u64] }.trimmed()
    }

    fn trimmed(mut self) -> Self {
        let used = self.limbs.iter().rposition(|limb| *limb != 0).map_or(0, |last| last + 1);
        self.limbs.truncate(used);
        self
    }

    /// The product.
    pub(super) fn times(&self, other: &Self) -> Self {
        let mut limbs = vec![0_u64; self.limbs.len() + other.limbs.len()];
        for (i, a) in self.limbs.iter().enumerate() {
            let mut carry = 0_u128;
            for (j, b) in other.limbs.iter().enumerate() {
                let sum = u128::from(*a) * u128::from(*b) + u128::from(limbs[i + j]) + carry;
                limbs[i + j] = sum as u64;
                carry = sum >> 64;
            }
            limbs[i + other.limbs.len()] = carry as u64;
        }
        Self { low: self.low + other.low, limbs }.trimmed()
    }

    /// The difference, or 0 if `other` is the greater one.
    pub(super) fn minus(&self, other: &Self) -> Self {
        if other.limbs.is_empty() {
            return self.clone();
        }
        let low = self.low.min(other.low);
        let digit = |number: &Self, place: i32| {
            usize::try_from(place - number.low).ok().and_then(|index| number.limbs.get(index)).copied().unwrap_or(0)
        };
        let end = self.end().max(other.end());
        let mut borrow = false;
        let mut limbs = Vec::with_capacity((end - low) as usize);
        for place in low..end {
            let (limb, first) = digit(self, place).overflowing_sub(digit(other, place));
            let (limb, second) = limb.overflowing_sub(u64::from(borrow));
            limbs.push(limb);
            borrow = first | second;
        }
        if borrow {
            limbs.clear();
        }
        Self { low, limbs }.trimmed()
    }

    fn end(&self) -> i32 {
        self.low + self.limbs.len() as i32
    }

    /// The number as `double * 2^(64 * place)`, with a relative error below 2^-104.
    pub(super) fn to_double(&self) -> (Double, i32) {
        const LIMB: f64 = 18_446_744_073_709_551_616.0;
        let top = &self.limbs[self.limbs.len().saturating_sub(3)..];
        let double = top.iter().rev().fold(Double::default(), |sum, limb| sum.scaled(LIMB).plus(Double::of(*limb)));
        (double, self.end() - top.len() as i32)
    }
}

/// Two floats that stand for their sum (Dekker 1971): 106 bits.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Double {
    high: f64,
    low: f64,
}

impl Double {
    /// A whole number, exactly.
    pub(super) fn of(value: u64) -> Self {
        let high = value as f64;
        // At most 2^64, which an i128 holds.
        Self { high, low: (i128::from(value) - high as i128) as f64 }
    }

    /// The sum of two floats of which the first is the greater one, exactly.
    fn sum(high: f64, low: f64) -> Self {
        let sum = high + low;
        Self { high: sum, low: low - (sum - high) }
    }

    /// `self * factor` for a power of two.
    fn scaled(self, factor: f64) -> Self {
        Self { high: self.high * factor, low: self.low * factor }
    }

    fn plus(self, other: Self) -> Self {
        let sum = self.high + other.high;
        let part = sum - self.high;
        let error = (self.high - (sum - part)) + (other.high - part);
        Self::sum(sum, error + self.low + other.low)
    }

    /// The product.
    pub(super) fn times(self, other: Self) -> Self {
        let product = self.high * other.high;
        let error = self.high.mul_add(other.high, -product);
        Self::sum(product, error + (self.high * other.low + self.low * other.high))
    }

    fn minus(self, other: Self) -> Self {
        self.plus(Self { high: -other.high, low: -other.low })
    }

    /// The quotient.
    pub(super) fn over(self, other: Self) -> Self {
        let first = self.high / other.high;
        let rest = self.minus(other.times(Self { high: first, low: 0.0 }));
        let second = rest.high / other.high;
        let rest = rest.minus(other.times(Self { high: second, low: 0.0 }));
        let third = rest.high / other.high;
        Self::sum(first, second).plus(Self { high: third, low: 0.0 })
    }

    /// The square root.
    pub(super) fn root(self) -> Self {
        if self.high == 0.0 {
            return self;
        }
        let root = self.high.sqrt();
        let near = Self { high: root, low: 0.0 };
        let rest = self.minus(near.times(near));
        Self::sum(root, rest.high / (2.0 * root))
    }

    /// `self * 2^exponent`, rounded.
    pub(super) fn rounded(self, exponent: i32) -> f64 {
        // 2^exponent may be out of range where the result is not.
        const MOST: i32 = 900;
        let mut value = self.high + self.low;
        let mut exponent = exponent;
        while exponent != 0 && value != 0.0 && value.is_finite() {
            let step = exponent.clamp(-MOST, MOST);
            value *= 2_f64.powi(step);
            exponent -= step;
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::i256;
    use proptest::prelude::*;

    use super::*;

    fn whole(value: i128) -> Term {
        Term::whole(value < 0, [value.unsigned_abs(), 0])
    }

    /// Any finite float, all exponents alike.
    fn finite() -> impl Strategy<Value = f64> {
        any::<u64>().prop_map(f64::from_bits).prop_filter("finite", |value| value.is_finite())
    }

    fn ulps(a: f64, b: f64) -> u64 {
        (a.to_bits() as i64).abs_diff(b.to_bits() as i64)
    }

    proptest! {
        #[test]
        fn sums_and_squares_are_those_of_256_bits(values in prop::collection::vec(any::<i64>(), 0..20)) {
            let (mut sum, mut squares) = (Wide::default(), Wide::default());
            let (mut naive, mut naive_squares) = (i256::ZERO, i256::ZERO);
            for value in values {
                sum.add(&whole(i128::from(value)), 3);
                squares.add_square(&whole(i128::from(value)), 3);
                let (value, three) = (i256::from_i128(i128::from(value)), i256::from_i128(3));
                naive += value * three;
                naive_squares += value * value * three;
            }
            for (wide, naive) in [(sum, naive), (squares, naive_squares)] {
                let (low, high) = naive.wrapping_abs().to_parts();
                let high = high as u128;
                let limbs = vec![low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64];
                let naive = Magnitude { low: 0, limbs }.trimmed();
                prop_assert!(wide.magnitude().minus(&naive).limbs.is_empty());
                prop_assert!(naive.minus(&wide.magnitude()).limbs.is_empty());
            }
        }

        #[test]
        fn a_float_comes_back(value in finite()) {
            let mut sum = Wide::default();
            sum.add(&Term::float(value), 1);
            let (double, place) = sum.magnitude().to_double();
            prop_assert_eq!(double.rounded(64 * place), value.abs());
        }

        #[test]
        fn what_is_taken_away_leaves_nothing(
            values in prop::collection::vec((finite(), 1_i64..5), 0..12),
            merged: bool,
        ) {
            let (mut sum, mut squares) = (Wide::default(), Wide::default());
            for (value, weight) in &values {
                sum.add(&Term::float(*value), *weight);
                squares.add_square(&Term::float(*value), *weight);
            }
            let (mut less, mut less_squares) = (Wide::default(), Wide::default());
            let (from, from_squares) =
                if merged { (&mut less, &mut less_squares) } else { (&mut sum, &mut squares) };
            for (value, weight) in values.iter().rev().flat_map(|(value, weight)| repeat_n((value, 1), *weight as usize)) {
                from.add(&Term::float(*value), -weight);
                from_squares.add_square(&Term::float(*value), -weight);
            }
            sum.merge(&less);
            squares.merge(&less_squares);
            prop_assert!(sum.magnitude().limbs.is_empty());
            prop_assert!(squares.magnitude().limbs.is_empty());
        }

        #[test]
        fn quotients_and_roots_are_rounded_once(a in 1_u64..1 << 53, b in 1_u64..1 << 53) {
            let quotient = Double::of(a).over(Double::of(b));
            prop_assert_eq!(quotient.rounded(0), a as f64 / b as f64);
            prop_assert_eq!(Double::of(a).root().rounded(0), (a as f64).sqrt());
            // Squared again, the root differs by less than the last of 106 bits.
            let squared = quotient.root().times(quotient.root());
            prop_assert!(squared.minus(quotient).high.abs() <= quotient.high * 2_f64.powi(-100));
        }

        #[test]
        fn products_and_differences_are_whole(a in any::<u64>(), b in any::<u64>(), c in any::<u64>()) {
            let [a, b, c] = [a, b, c].map(u128::from);
            let product = Magnitude::whole(a).times(&Magnitude::whole(b));
            prop_assert_eq!(&product, &Magnitude::whole(a * b));
            let expected = (a * b).saturating_sub(c * c);
            prop_assert_eq!(product.minus(&Magnitude::whole(c * c)).limbs, Magnitude::whole(expected).limbs);
        }
    }

    #[test]
    fn the_square_of_the_smallest_float_is_kept() {
        let mut squares = Wide::default();
        squares.add_square(&Term::float(5e-324), 1);
        squares.add_square(&Term::float(f64::MAX), 1);
        squares.add_square(&Term::float(f64::MAX), -1);
        let (double, place) = squares.magnitude().to_double();
        assert!(double.rounded(64 * place + 2 * 1074) == 1.0);
        assert_eq!(ulps(double.root().rounded(32 * place), 5e-324), 0);
    }
}
