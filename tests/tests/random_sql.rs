//! Three hundred random queries; the binary `random_sql` runs any number.

#[test]
fn random_queries_follow_their_tables() {
    if let Err(difference) = thetis_tests::block_on(thetis_tests::random::run(1, 300)) {
        panic!("{difference}");
    }
}
