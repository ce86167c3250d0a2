use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn numbers_are_those_of_the_library(number in r"-?[0-9]{0,20}(\.[0-9]{0,24})?(e-?[0-9]{1,3})?") {
        let expected = Float64Type::parse(&number);
        prop_assert_eq!(float(number.as_bytes()).map(f64::to_bits), expected.map(f64::to_bits));
    }

    #[test]
    fn integers_are_those_of_the_library(number in r"[-+ ]?[0-9]{0,21}") {
        let own = integer(number.as_bytes());
        // What is left to the general decoder is not judged here.
        prop_assert!(own.is_none() || own == Int64Type::parse(&number));
        let plain = number.parse::<i64>().is_ok() && !number.starts_with('+');
        prop_assert!(own.is_some() || !plain, "{}", number);
    }

    #[test]
    fn every_float_that_is_written_is_read(value: f64) {
        let read = float(value.to_string().as_bytes()).unwrap();
        prop_assert!(read.to_bits() == value.to_bits() || value.is_nan());
    }
}
