//! Names of result columns that nobody named: an expression with constants is called what was typed, and
//! a column that is selected twice gets a number.

use thetis_parser::ast::{Expr, Ident, Query, SelectItem, SetExpr};

/// Longest name that is made of an expression, in characters.
const LONGEST: usize = 60;

/// The query with names for its own columns; those of its subqueries stay.
pub(crate) fn with_names(query: &Query) -> Query {
    let mut query = query.clone();
    name_body(&mut query.body);
    query
}

fn name_body(body: &mut SetExpr) {
    match body {
        SetExpr::Select(select) => name_items(&mut select.projection),
        SetExpr::Query(query) => name_body(&mut query.body),
        SetExpr::SetOperation { left, right, .. } => {
            name_body(left);
            name_body(right);
        }
        _ => {}
    }
}

fn name_items(items: &mut [SelectItem]) {
    let mut taken: Vec<String> = items.iter().filter_map(alias).collect();
    let mut seen: Vec<(String, String)> = Vec::new();
    for item in items {
        let (name, key, expr) = match item {
            SelectItem::UnnamedExpr(expr) => (name(expr), expr.to_string(), expr.clone()),
            SelectItem::ExprWithAlias { expr, alias } => (alias.value.clone(), format!("AS {alias}"), expr.clone()),
            _ => continue,
        };
        let plain = key.rsplit('.').next().unwrap_or(&key).to_owned();
        let twice = seen.iter().any(|(other, plain_other)| {
            *other == key || *plain_other == plain && !(other.contains('.') && key.contains('.'))
        });
        if twice {
            let numbered = (1..).map(|i| format!("{name}_{i}")).find(|name| !taken.contains(name));
            let alias = numbered.unwrap_or_else(|| name.clone());
            taken.push(alias.clone());
            *item = SelectItem::ExprWithAlias { expr, alias: quoted(&alias) };
        } else if matches!(item, SelectItem::UnnamedExpr(_)) && has_constants(&key) && !is_column(&expr) {
            *item = SelectItem::ExprWithAlias { expr, alias: quoted(&name) };
        }
        seen.push((key, plain));
    }
}

fn alias(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        _ => None,
    }
}

fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

fn has_constants(text: &str) -> bool {
    text.contains(|c: char| c.is_ascii_digit() || c == '\'')
}

fn name(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(parts) => parts.last().map_or_else(String::new, |name| name.value.clone()),
        other => other.to_string().chars().take(LONGEST).collect(),
    }
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

#[cfg(test)]
mod tests {
    use thetis_parser::{Statement, parse_statement};

    use super::*;

    #[test]
    fn names_are_what_was_typed_and_stand_once() {
        for (text, named) in [
            ("SELECT a, b FROM t", "SELECT a, b FROM t"),
            ("SELECT COUNT(*) FROM t", "SELECT COUNT(*) FROM t"),
            ("SELECT 1, a + 2 FROM t", "SELECT 1 AS \"1\", a + 2 AS \"a + 2\" FROM t"),
            ("SELECT a, a, t.a FROM t", "SELECT a, a AS \"a_1\", t.a AS \"a_2\" FROM t"),
            ("SELECT l.a, r.a FROM l, r", "SELECT l.a, r.a FROM l, r"),
            ("SELECT 1 AS x, 2 AS x", "SELECT 1 AS x, 2 AS \"x_1\""),
            ("SELECT NULL, 1, NULL", "SELECT NULL, 1 AS \"1\", NULL AS \"NULL_1\""),
            ("SELECT 1, 1 UNION SELECT 2, 2", "SELECT 1 AS \"1\", 1 AS \"1_1\" UNION SELECT 2 AS \"2\", 2 AS \"2_1\""),
        ] {
            let Ok(Statement::Query(query)) = parse_statement(text) else { panic!("{text}") };
            assert_eq!(with_names(&query).to_string(), named);
        }
    }
}
