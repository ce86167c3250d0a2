//! Random SQL against another database: queries of a grammar become materialized views over three
//! tables, random statements change the tables, and after each of them every view must hold what SQLite
//! answers to the same text over the same rows.

use std::fmt::Write;

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rusqlite::types::ValueRef;
use thetis::{Connection, Driver};

use crate::{Value, difference, query};

/// Views of one scenario.
const VIEWS: usize = 10;
/// Statements that change the tables of one scenario.
const CHANGES: usize = 8;

const TABLES: [&str; 3] = ["l", "r", "e"];

/// Runs `queries` random queries from `seed` on.
///
/// # Errors
/// What differs first, with all that is needed to see it again.
pub async fn run(seed: u64, queries: usize) -> Result<(), String> {
    for scenario in 0..queries.div_ceil(VIEWS) {
        let views = VIEWS.min(queries - scenario * VIEWS);
        Scenario::new(seed + scenario as u64).run(views).await?;
    }
    Ok(())
}

struct Scenario {
    seed: u64,
    random: Random,
    history: String,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        Self { seed, random: Random(ChaCha8Rng::seed_from_u64(seed)), history: String::new() }
    }

    async fn run(mut self, views: usize) -> Result<(), String> {
        let thetis = Driver::open("thetis:").expect("an embedded engine");
        let sqlite = rusqlite::Connection::open_in_memory().expect("a database in memory");
        let setting = self.random.one(&[
            "SET parallelism = 1",
            "SET parallelism = 2",
            "SET parallelism = 3",
            "SET matrix = '2x2'",
            "SET matrix = '1x3'",
        ]);
        self.thetis(&thetis, setting).await?;
        for table in TABLES {
            let create = format!("CREATE TABLE {table} (id BIGINT, a BIGINT, b BIGINT, s VARCHAR)");
            self.both(&thetis, &sqlite, &create).await?;
        }
        let queries: Vec<String> = (0..views).map(|_| self.random.query(2)).collect();
        let mut kept = Vec::new();
        for (number, text) in queries.iter().enumerate() {
            // Some views are there before the first row, some come when there are rows.
            if self.random.chance(0.5) {
                self.thetis(&thetis, &format!("CREATE MATERIALIZED VIEW v{number} AS {text}")).await?;
                kept.push(number);
            }
        }
        for step in 0..CHANGES {
            let change = self.random.change(step);
            self.both(&thetis, &sqlite, &change).await?;
            for (number, text) in queries.iter().enumerate() {
                if step == CHANGES / 2 && !kept.contains(&number) {
                    self.thetis(&thetis, &format!("CREATE MATERIALIZED VIEW v{number} AS {text}")).await?;
                    kept.push(number);
                }
                if kept.contains(&number) {
                    let expected = self.sqlite(&sqlite, text)?;
                    self.compare(&thetis, &format!("SELECT * FROM v{number}"), text, expected).await?;
                }
            }
        }
        for text in &queries {
            let expected = self.sqlite(&sqlite, text)?;
            self.compare(&thetis, text, text, expected).await?;
        }
        Ok(())
    }

    async fn both(&mut self, thetis: &Connection, sqlite: &rusqlite::Connection, sql: &str) -> Result<(), String> {
        self.thetis(thetis, sql).await?;
        sqlite.execute_batch(sql).map_err(|error| self.report(&format!("sqlite: {error}"), sql))
    }

    async fn thetis(&mut self, thetis: &Connection, sql: &str) -> Result<(), String> {
        let _ = writeln!(self.history, "{sql};");
        let done = thetis.statement().execute(sql).await;
        done.map(|_| ()).map_err(|error| self.report(&format!("thetis: {error}"), sql))
    }

    fn sqlite(&self, sqlite: &rusqlite::Connection, sql: &str) -> Result<Vec<Vec<Value>>, String> {
        let rows = || -> rusqlite::Result<Vec<Vec<Value>>> {
            let mut statement = sqlite.prepare(sql)?;
            let columns = statement.column_count();
            let rows = statement.query_map([], |row| (0..columns).map(|i| Ok(value(row.get_ref(i)?))).collect())?;
            rows.collect()
        };
        rows().map_err(|error| self.report(&format!("sqlite: {error}"), sql))
    }

    async fn compare(
        &self,
        thetis: &Connection,
        sql: &str,
        text: &str,
        expected: Vec<Vec<Value>>,
    ) -> Result<(), String> {
        let found = query(thetis, sql).await.map_err(|error| self.report(&format!("thetis: {error}"), text))?;
        match difference(found, expected) {
            None => Ok(()),
            Some(difference) => Err(self.report(&difference, text)),
        }
    }

    fn report(&self, what: &str, sql: &str) -> String {
        format!("seed {}: {what}\n{sql}\n\nafter\n{}", self.seed, self.history)
    }
}

fn value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Text(value.to_string()),
        ValueRef::Real(value) => Value::Float(value),
        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(_) => Value::Text("a blob".to_owned()),
    }
}

/// The grammar. Every function gives text that both databases take and mean the same by.
struct Random(ChaCha8Rng);

/// The columns in scope: names of numbers, names of texts.
#[derive(Clone, Default)]
struct Scope {
    numbers: Vec<String>,
    texts: Vec<String>,
}

impl Scope {
    fn add(&mut self, alias: &str) {
        self.numbers.extend(["id", "a", "b"].map(|column| format!("{alias}.{column}")));
        self.texts.push(format!("{alias}.s"));
    }
}

impl Random {
    fn chance(&mut self, share: f64) -> bool {
        self.0.random_bool(share)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0.random_range(0..end)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.choose(&mut self.0).copied().unwrap_or_default()
    }

    fn column(&mut self, of: &[String]) -> String {
        of.choose(&mut self.0).cloned().unwrap_or_else(|| "1".to_owned())
    }

    /// A query with at most `depth` levels of queries in it.
    fn query(&mut self, depth: usize) -> String {
        if depth > 0 && self.chance(0.2) {
            let op = self.one(&["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]);
            let (left, right) = (self.plain_pair(depth - 1), self.plain_pair(depth - 1));
            return format!("{left} {op} {right}");
        }
        if self.chance(0.5) { self.grouped(depth) } else { self.plain(depth) }
    }

    /// One number and one text.
    fn plain_pair(&mut self, depth: usize) -> String {
        let (from, scope) = self.from(depth, 2);
        let (number, text) = (self.number(&scope, 1), self.text(&scope));
        let condition = self.filter(&scope, depth);
        format!("SELECT {number} AS x, {text} AS y FROM {from}{condition}")
    }

    fn plain(&mut self, depth: usize) -> String {
        let (from, scope) = self.from(depth, 3);
        let distinct = if self.chance(0.2) { "DISTINCT " } else { "" };
        let mut items = format!("{} AS x", self.number(&scope, 2));
        for i in 0..self.below(3) {
            let item = if self.chance(0.3) { self.text(&scope) } else { self.number(&scope, 2) };
            let _ = write!(items, ", {item} AS y{i}");
        }
        let condition = self.filter(&scope, depth);
        format!("SELECT {distinct}{items} FROM {from}{condition}")
    }

    fn grouped(&mut self, depth: usize) -> String {
        let (from, scope) = self.from(depth, 3);
        let condition = self.filter(&scope, depth);
        let mut groups = Vec::new();
        for _ in 0..self.below(3) {
            let group = if self.chance(0.4) { self.column(&scope.texts) } else { self.column(&scope.numbers) };
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        let mut items: Vec<String> = groups.iter().enumerate().map(|(i, group)| format!("{group} AS g{i}")).collect();
        for i in 0..=self.below(3) {
            items.push(format!("{} AS f{i}", self.aggregate(&scope)));
        }
        let mut text = format!("SELECT {} FROM {from}{condition}", items.join(", "));
        if !groups.is_empty() {
            let _ = write!(text, " GROUP BY {}", groups.join(", "));
            if self.chance(0.3) {
                let aggregate = self.one(&["COUNT(*)", "COUNT(*) - 1"]);
                let _ = write!(text, " HAVING {aggregate} {} {}", self.comparison(), self.below(4));
            }
        }
        text
    }

    fn aggregate(&mut self, scope: &Scope) -> String {
        let argument = self.number(scope, 1);
        let distinct = if self.chance(0.2) { "DISTINCT " } else { "" };
        let call = match self.below(7) {
            0 => "COUNT(*)".to_owned(),
            1 => format!("COUNT({distinct}{argument})"),
            2 => format!("SUM({distinct}{argument})"),
            3 => format!("AVG({argument})"),
            4 => format!("MIN({argument})"),
            5 => format!("MAX({})", self.column(&scope.texts)),
            _ => format!("MAX({argument})"),
        };
        if self.chance(0.2) { format!("{call} FILTER (WHERE {})", self.condition(scope, 1)) } else { call }
    }

    /// FROM with up to `most` relations, and what is in scope by that.
    fn from(&mut self, depth: usize, most: usize) -> (String, Scope) {
        let mut scope = Scope::default();
        let count = 1 + self.below(most);
        let mut text = String::new();
        for i in 0..count {
            let alias = format!("t{i}");
            let relation = self.relation(depth);
            scope.add(&alias);
            if i == 0 {
                let _ = write!(text, "{relation} AS {alias}");
                continue;
            }
            // The condition names the new relation, so that results stay small.
            let mut own = Scope::default();
            own.add(&alias);
            let (left, right) = (self.column(&own.numbers), self.column(&scope.numbers));
            let shift = self.below(7) as i64 - 3;
            let condition = match self.below(4) {
                0 => format!("{left} = {right}"),
                1 => format!("{left} BETWEEN {right} - 2 AND {right} + {shift}"),
                2 => format!("{left} {} {right} + {shift}", self.comparison()),
                _ => format!("{left} = {right} AND {}", self.condition(&scope, 1)),
            };
            let _ = write!(text, " JOIN {relation} AS {alias} ON {condition}");
        }
        (text, scope)
    }

    fn relation(&mut self, depth: usize) -> String {
        if depth > 0 && self.chance(0.2) {
            let (from, scope) = self.from(depth - 1, 2);
            let [id, a, b] = [(); 3].map(|()| self.number(&scope, 1));
            let s = self.text(&scope);
            let condition = self.filter(&scope, depth - 1);
            return format!("(SELECT {id} AS id, {a} AS a, {b} AS b, {s} AS s FROM {from}{condition})");
        }
        self.one(&TABLES).to_owned()
    }

    fn filter(&mut self, scope: &Scope, depth: usize) -> String {
        if self.chance(0.4) {
            return String::new();
        }
        let mut condition = self.condition(scope, 2);
        if depth > 0 && self.chance(0.4) {
            let _ = write!(condition, " AND {}", self.subquery(scope));
        }
        format!(" WHERE {condition}")
    }

    /// A condition with a subquery.
    fn subquery(&mut self, scope: &Scope) -> String {
        let table = self.one(&TABLES);
        let outer = self.column(&scope.numbers);
        let not = if self.chance(0.4) { "NOT " } else { "" };
        let mut inner = Scope::default();
        inner.add("q");
        let condition = self.condition(&inner, 1);
        match self.below(3) {
            0 => format!("{outer} {not}IN (SELECT q.a FROM {table} AS q WHERE {condition})"),
            1 => format!("{not}EXISTS (SELECT 1 FROM {table} AS q WHERE q.b = {outer} AND {condition})"),
            _ => format!(
                "{outer} {} (SELECT {} FROM {table} AS q WHERE {condition})",
                self.comparison(),
                self.one(&["MAX(q.a)", "MIN(q.b)", "COUNT(*)", "SUM(q.a)"])
            ),
        }
    }

    fn comparison(&mut self) -> &'static str {
        self.one(&["<", "<=", ">", ">=", "=", "<>"])
    }

    fn condition(&mut self, scope: &Scope, depth: usize) -> String {
        if depth > 0 && self.chance(0.3) {
            let op = self.one(&["AND", "OR"]);
            let (left, right) = (self.condition(scope, depth - 1), self.condition(scope, depth - 1));
            return format!("({left} {op} {right})");
        }
        match self.below(7) {
            0 => format!("{} IS NULL", self.column(&scope.numbers)),
            1 => format!("{} IS NOT NULL", self.column(&scope.texts)),
            2 => format!("{} = '{}'", self.column(&scope.texts), self.one(&["x", "y", "z", "w"])),
            3 => format!("{} IN ({}, {})", self.column(&scope.numbers), self.below(20), self.below(20)),
            4 => format!("NOT ({} {} {})", self.number(scope, 1), self.comparison(), self.below(20)),
            5 => format!("{} BETWEEN {} AND {}", self.number(scope, 1), self.below(10), self.below(30)),
            _ => format!("{} {} {}", self.number(scope, 1), self.comparison(), self.number(scope, 1)),
        }
    }

    fn number(&mut self, scope: &Scope, depth: usize) -> String {
        if depth == 0 || self.chance(0.4) {
            return self.column(&scope.numbers);
        }
        let (left, right) = (self.number(scope, depth - 1), self.number(scope, depth - 1));
        match self.below(7) {
            0 => format!("({left} + {right})"),
            1 => format!("({left} - {right})"),
            2 => format!("({left} * {})", self.below(5)),
            3 => format!("({left} % {})", 2 + self.below(5)),
            4 => format!("COALESCE({left}, {})", self.below(9)),
            5 => format!("CASE WHEN {} THEN {left} ELSE {right} END", self.condition(scope, 0)),
            _ => format!("ABS({left})"),
        }
    }

    fn text(&mut self, scope: &Scope) -> String {
        let text = self.column(&scope.texts);
        match self.below(4) {
            0 => format!("UPPER({text})"),
            1 => format!("COALESCE({text}, 'none')"),
            _ => text,
        }
    }

    /// A statement that changes a table; the first ones fill them.
    fn change(&mut self, step: usize) -> String {
        let table = TABLES[if step < 3 { step } else { self.below(3) }];
        if step < 3 || self.chance(0.5) {
            let rows: Vec<String> = (0..2 + self.below(9))
                .map(|_| {
                    let [a, b] = [(); 2].map(|()| self.maybe_null());
                    let s = if self.chance(0.15) { "NULL" } else { self.one(&["'x'", "'y'", "'z'", "'w'"]) };
                    format!("({}, {a}, {b}, {s})", self.below(30))
                })
                .collect();
            return format!("INSERT INTO {table} VALUES {}", rows.join(", "));
        }
        let condition = match self.below(4) {
            0 => format!("id % 3 = {}", self.below(3)),
            1 => "a IS NULL OR b > 12".to_owned(),
            2 => format!("s = '{}'", self.one(&["x", "y"])),
            _ => format!("a IN (SELECT q.b FROM {} AS q)", self.one(&TABLES)),
        };
        if self.chance(0.5) {
            return format!("DELETE FROM {table} WHERE {condition}");
        }
        let value = self.one(&["a = a + 1", "a = b, b = a", "s = 'x', b = NULL", "a = (SELECT MAX(q.a) FROM l AS q)"]);
        format!("UPDATE {table} SET {value} WHERE {condition}")
    }

    fn maybe_null(&mut self) -> String {
        if self.chance(0.15) { "NULL".to_owned() } else { self.below(20).to_string() }
    }
}
