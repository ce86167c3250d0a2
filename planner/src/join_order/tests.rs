use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema};
use datafusion_expr::LogicalPlan;
use thetis_parser::{ExplainFormat, Statement, ast, parse_statement};

use crate::catalog::{Conflict, Relation, Sample, Stream, Volume};
use crate::connector::SourceSpec;
use crate::logical::{Logical, plan_query};
use crate::{Catalog, Output, PlanError, Settings};

/// Streams a, b, c, ... with columns x, y, z and these sizes.
fn catalog(sizes: &[Option<f64>]) -> Catalog {
    let mut catalog = Catalog::default();
    for (name, rows) in ["a", "b", "c", "d", "e"].into_iter().zip(sizes) {
        let columns = ["x", "y", "z"].map(|name| Field::new(name, DataType::Int64, true));
        let stream = Stream {
            name: name.to_owned(),
            columns: Arc::new(Schema::new(columns.to_vec())),
            watermark: None,
            spec: SourceSpec::Values(Vec::new()),
            volume: Volume { rows: *rows, bytes: None },
            sample: Sample::default(),
        };
        catalog.add(&ast::Ident::new(name), Relation::Stream(Arc::new(stream)), Conflict::Fail).unwrap();
    }
    catalog
}

fn logical(sizes: &[Option<f64>], sql: &str) -> Result<Logical, PlanError> {
    let Statement::Query(query) = parse_statement(sql).unwrap() else { panic!("not a query: {sql}") };
    plan_query(&query, &catalog(sizes))
}

/// The streams in the order in which they are joined, with brackets around each join.
fn order(plan: &LogicalPlan) -> String {
    match plan {
        LogicalPlan::TableScan(scan) => scan.table_name.table().to_owned(),
        LogicalPlan::Join(join) => format!("({} {})", order(&join.left), order(&join.right)),
        other => other.inputs().into_iter().map(order).collect(),
    }
}

fn ordered(sizes: &[Option<f64>], sql: &str) -> String {
    let logical = logical(sizes, sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    assert_eq!(
        logical.optimized.schema().columns(),
        logical.analyzed.schema().columns(),
        "the columns of {sql} are others"
    );
    order(&logical.optimized)
}

const EQUAL: [Option<f64>; 5] = [Some(1e4); 5];
const UNKNOWN: [Option<f64>; 5] = [None; 5];

#[test]
fn two_relations_stay_as_they_are_written() {
    let sizes = [Some(1e6), Some(1.0)];
    assert_eq!(ordered(&sizes, "SELECT * FROM a JOIN b ON a.x < b.x"), "(a b)");
    assert_eq!(ordered(&sizes, "SELECT * FROM b JOIN a ON a.x < b.x"), "(b a)");
}

#[test]
fn equal_costs_stay_as_they_are_written() {
    for sizes in [EQUAL, UNKNOWN] {
        for (from, expected) in [
            ("c JOIN a ON c.x = a.x JOIN b ON a.x = b.x", "((c a) b)"),
            ("c JOIN a ON c.x < a.x JOIN b ON a.y < b.y", "((c a) b)"),
            ("a CROSS JOIN b CROSS JOIN c", "((a b) c)"),
        ] {
            assert_eq!(ordered(&sizes, &format!("SELECT * FROM {from}")), expected, "{from}");
        }
    }
}

#[test]
fn conditions_come_before_products() {
    for sizes in [EQUAL, UNKNOWN] {
        assert_eq!(ordered(&sizes, "SELECT * FROM a, b, c WHERE a.x < c.x AND c.y < b.y"), "((a c) b)");
        assert_eq!(ordered(&sizes, "SELECT * FROM a, b, c, d WHERE a.x < c.x AND b.y < d.y"), "((a c) (b d))");
        // A condition of three needs one product.
        assert_eq!(ordered(&sizes, "SELECT * FROM a, b, c, d WHERE a.x + b.x < c.x AND d.x < c.x"), "((a b) (c d))");
    }
}

#[test]
fn small_results_come_first() {
    let sizes = [Some(1e6), Some(1e6), Some(10.0), Some(1e3), Some(1e3)];
    assert_eq!(ordered(&sizes, "SELECT * FROM a, b, c WHERE a.x < b.x AND b.y < c.y"), "(a (b c))");
    // A band keeps less than an inequality, an equality less than that.
    let sql = "SELECT * FROM a, b, d WHERE a.x < b.x AND b.y BETWEEN d.y - 1 AND d.y + 1";
    assert_eq!(ordered(&EQUAL, sql), "(a (b d))");
    let sql = "SELECT * FROM a, b, d WHERE b.y BETWEEN d.y - 1 AND d.y + 1 AND a.x = d.x";
    assert_eq!(ordered(&EQUAL, sql), "((a d) b)");
    // A filter makes a relation smaller.
    let sql = "SELECT * FROM a, b, c WHERE a.x < b.x AND b.y < c.y AND c.x = 1 AND c.z = 2";
    assert_eq!(ordered(&EQUAL, sql), "(a (b c))");
}

#[test]
fn renamed_and_repeated_relations_are_looked_through() {
    let sizes = [Some(1e6), Some(1e6), Some(10.0), Some(10.0), Some(10.0)];
    let sql = "SELECT q.k, c.x FROM (SELECT a.x AS k, b.y FROM a JOIN b ON a.z < b.z) AS q JOIN c ON q.y < c.y";
    assert_eq!(ordered(&sizes, sql), "(a (b c))");
    let sql = "SELECT * FROM a AS p, a AS q, c WHERE p.x < c.x AND c.y < q.y";
    assert_eq!(ordered(&sizes, sql), "((a c) a)");
    // The columns of a stand on both sides under one name.
    let sql = "SELECT p.x, q.x, p.y FROM (SELECT a.x, d.y FROM a JOIN d ON a.z < d.z) AS p,
               (SELECT a.x, c.y FROM a JOIN c ON a.z < c.z) AS q WHERE p.y = q.y";
    assert_eq!(ordered(&sizes, sql), "((a (d c)) a)");
}

#[test]
fn what_multiplies_or_drops_rows_is_a_relation() {
    let sizes = [Some(1e6), Some(1e6), Some(10.0), Some(10.0), Some(10.0)];
    let sql =
        "SELECT * FROM a, (SELECT b.x, COUNT(*) AS n FROM b, c, d WHERE b.x < d.x AND d.y < c.y GROUP BY b.x) AS g, e
               WHERE a.x < e.x AND e.y < g.n";
    assert_eq!(ordered(&sizes, sql), "(a ((b (c d)) e))");
}

#[test]
fn only_needed_columns_flow() {
    let sql = "SELECT a.z FROM a, b, c WHERE a.x < c.x AND c.y < b.y";
    let Statement::Query(query) = parse_statement(sql).unwrap() else { panic!("a query") };
    let plan = crate::plan(&query, &catalog(&EQUAL), &Settings::new(2), Output::Result).unwrap();
    let text = plan.explain(false, ExplainFormat::Text, None);
    assert!(text.contains("  <- join 3\n     project: z, y\n"), "{text}");
    assert!(!text.contains("cross product"), "{text}");
}
