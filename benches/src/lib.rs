//! Micro-benchmarks of the pieces that every row passes, and what they share.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use thetis_executor::frame::{Epoch, FRAME_ROWS, Frame, Units};
use thetis_executor::operator::{Operator, Step};
use thetis_executor::query::operator_for;
use thetis_parser::{Statement, ast, parse_statement};
use thetis_planner::catalog::{Conflict, Relation, Sample, Stream, Volume};
use thetis_planner::connector::SourceSpec;
use thetis_planner::physical::{OperatorId, OperatorKind};
use thetis_planner::{Catalog, Output, Settings, plan};

/// The streams `r` and `s` (k BIGINT, v BIGINT), of unknown size.
pub fn catalog() -> Catalog {
    let columns = ["k", "v"].map(|name| Field::new(name, DataType::Int64, true));
    let columns = Arc::new(Schema::new(columns.to_vec()));
    let mut catalog = Catalog::default();
    for name in ["r", "s"] {
        let stream = Stream {
            name: name.to_owned(),
            columns: Arc::clone(&columns),
            watermark: None,
            spec: SourceSpec::Values(Vec::new()),
            volume: Volume::default(),
            sample: Sample::default(),
        };
        let name = ast::Ident::new(name);
        catalog.add(&name, Relation::Stream(Arc::new(stream)), Conflict::Fail).expect("the name is free");
    }
    catalog
}

/// A query, parsed.
pub fn query(sql: &str) -> Box<ast::Query> {
    match parse_statement(sql) {
        Ok(Statement::Query(query)) => query,
        other => panic!("not a query: {other:?}"),
    }
}

/// The first operator of a query over [`catalog`] for which `is` holds, with one task each.
pub fn operator(sql: &str, is: fn(&OperatorKind) -> bool) -> impl Fn() -> Box<dyn Operator> {
    let dag = plan(&query(sql), &catalog(), &Settings::new(1), Output::Result).expect("the query is right").dag;
    let found = dag.operators.iter().position(|operator| is(&operator.kind)).expect("the query has the operator");
    move || operator_for(&dag, OperatorId(found as u32)).expect("the plan is right")
}

/// A full frame of keys that are spread over `domain`, and values.
pub fn frame(seed: i64, domain: i64) -> Frame {
    let rows = FRAME_ROWS as i64;
    let keys: Int64Array = (0..rows).map(|row| (row + seed).wrapping_mul(2_654_435_761) % domain).collect();
    let values: Int64Array = (0..rows).collect();
    let columns: [(&str, ArrayRef); 2] = [("k", Arc::new(keys)), ("v", Arc::new(values))];
    let batch = RecordBatch::try_from_iter(columns).expect("the columns have one length");
    let units = Units { buckets: vec![0; FRAME_ROWS].into(), slices: vec![0; FRAME_ROWS].into() };
    Frame { units: Some(units), ..Frame::inserts(batch, Epoch::FIRST) }
}

/// Resumes an operator until it is idle; the rows that it emitted.
pub fn drain(operator: &mut dyn Operator) -> usize {
    let mut out = Vec::new();
    while operator.resume(&mut out).expect("nothing overflows") == Step::Full {}
    out.iter().map(Frame::rows).sum()
}
