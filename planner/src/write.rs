//! INSERT, UPDATE and DELETE as queries: what they read becomes a plan, what they do with its rows is
//! for who stores the table.

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion_common::{Column, DFSchema, ScalarValue};
use datafusion_expr::{Expr, ExprSchemable, cast, lit};
use thetis_parser::ast::{self, Ident, Query, SetExpr, TableWithJoins};
use thetis_parser::{Delete, Insert, Position, Update};

use crate::catalog::{Catalog, Relation, Table, fold};
use crate::error::{PlanError, PlanErrorKind};
use crate::functions;
use crate::logical::{Resolved, resolve, resolve_rows};
use crate::types::sql_name;

/// The stored table that a statement changes.
///
/// # Errors
/// No such relation, or one that cannot be changed.
pub fn stored_table<'a>(catalog: &'a Catalog, name: &Ident) -> Result<&'a Table, PlanError> {
    match catalog.resolve(name)? {
        Relation::Table(table) if table.definition.is_none() => Ok(table),
        other => Err(PlanError::new(
            PlanErrorKind::Semantic,
            format!("'{}' is a {}, whose rows cannot be changed", fold(name), other.kind()),
        )
        .at(Position::of_span(name.span))
        .hint("INSERT, UPDATE and DELETE change tables made by CREATE TABLE name (columns)")),
    }
}

/// The rows of an INSERT as the table has them: its columns, cast to its types.
///
/// # Errors
/// Whatever is wrong with the query, or a number of columns that does not fit.
pub fn insert(
    insert: &Insert,
    table: &Table,
    catalog: &Catalog,
    parameters: &[DataType],
) -> Result<Resolved, PlanError> {
    let targets = targets(insert, &table.columns)?;
    if let Some(rows) = constant_rows(&insert.query) {
        let row = |texts: &[ast::Expr], values| constant_row(insert, table, &targets, texts, values);
        return resolve_rows(rows, catalog, parameters, row);
    }
    let rows = resolve(&insert.query, catalog, parameters)?;
    check_count(insert, rows.schema().fields().len(), &targets)?;
    let columns = table.columns.fields().iter().enumerate().map(|(position, field)| {
        let value = match targets.iter().position(|target| *target == position) {
            Some(value) => {
                let (qualifier, from) = rows.schema().qualified_field(value);
                let expr = Expr::Column(Column::new(qualifier.cloned(), from.name()));
                assigned(expr, from.data_type(), field, insert.columns.get(value).unwrap_or(&insert.target))?
            }
            None => typed_null(field.data_type()),
        };
        Ok(value.alias(field.name()))
    });
    let columns = columns.collect::<Result<_, PlanError>>()?;
    rows.project(columns)
}

fn check_count(insert: &Insert, given: usize, targets: &[usize]) -> Result<(), PlanError> {
    if given == targets.len() {
        return Ok(());
    }
    let message = format!("INSERT has {given} values for {} columns", targets.len());
    Err(PlanError::new(PlanErrorKind::Semantic, message)
        .at(Position::of_span(insert.target.span))
        .hint("name the columns that get values: INSERT INTO name (column, ...) VALUES (...)"))
}

/// The rows of a plain `VALUES (...), (...)`.
fn constant_rows(query: &Query) -> Option<&[ast::Parens<Vec<ast::Expr>>]> {
    let plain = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
    match query.body.as_ref() {
        SetExpr::Values(values) if plain => Some(&values.rows),
        _ => None,
    }
}

/// A constant row as the table has it: each value becomes its column's type by itself, whatever the other
/// rows are.
fn constant_row(
    insert: &Insert,
    table: &Table,
    targets: &[usize],
    texts: &[ast::Expr],
    values: Vec<Expr>,
) -> Result<Vec<Expr>, PlanError> {
    check_count(insert, values.len(), targets)?;
    let fields = table.columns.fields();
    let mut row: Vec<Expr> = fields.iter().map(|field| typed_null(field.data_type())).collect();
    for ((value, text), target) in values.into_iter().zip(texts).zip(targets) {
        let field = &fields[*target];
        let column = insert.columns.first().unwrap_or(&insert.target);
        row[*target] = match number(text) {
            // As it was written, not as the nearest DOUBLE.
            Some(digits) if field.data_type().is_decimal() || is_text(field.data_type()) => {
                cast(lit(digits), field.data_type().clone())
            }
            _ => {
                let from = value.get_type(&DFSchema::empty())?;
                assigned(value, &from, field, column)?
            }
        };
    }
    Ok(row)
}

/// The word DEFAULT.
pub(crate) fn is_default(value: &ast::Expr) -> bool {
    matches!(value, ast::Expr::Identifier(name)
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

/// The digits of a number, with its sign.
fn number(text: &ast::Expr) -> Option<String> {
    match text {
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Number(digits, _) => Some(digits.clone()),
            _ => None,
        },
        ast::Expr::UnaryOp { op: ast::UnaryOperator::Minus, expr } => number(expr).map(|digits| format!("-{digits}")),
        _ => None,
    }
}

/// The rows that a DELETE takes away.
///
/// # Errors
/// Whatever is wrong with the condition.
pub fn delete(
    delete: &Delete,
    table: &Table,
    catalog: &Catalog,
    parameters: &[DataType],
) -> Result<Resolved, PlanError> {
    let items = old_columns(&table.columns, &delete.table.from);
    resolve(&select(items, &delete.table.from, delete.condition.clone()), catalog, parameters)
}

/// The rows that an UPDATE changes: the columns as they were, then as they will be.
///
/// # Errors
/// Whatever is wrong with the condition or the values.
pub fn update(
    update: &Update,
    table: &Table,
    catalog: &Catalog,
    parameters: &[DataType],
) -> Result<Resolved, PlanError> {
    let null = ast::Expr::value(ast::Value::Null);
    let mut values: Vec<Option<&ast::Expr>> = vec![None; table.columns.fields().len()];
    for (column, value) in &update.assignments {
        // No column has another default.
        let value = if is_default(value) { &null } else { value };
        let place = &mut values[position(column, &table.columns)?];
        if place.replace(value).is_some() {
            let message = format!("column '{column}' is assigned twice");
            return Err(PlanError::new(PlanErrorKind::Semantic, message).at(Position::of_span(column.span)));
        }
    }
    let old = old_columns(&table.columns, &update.table.from);
    let new = values.iter().zip(&old).enumerate().map(|(i, (value, old))| ast::SelectItem::ExprWithAlias {
        expr: match (value, old) {
            (Some(value), _) => (*value).clone(),
            (None, ast::SelectItem::ExprWithAlias { expr, .. } | ast::SelectItem::UnnamedExpr(expr)) => expr.clone(),
            (None, _) => ast::Expr::value(ast::Value::Null),
        },
        alias: quoted(&format!("new {i}")),
    });
    let items = old.iter().cloned().chain(new).collect();
    let rows = resolve(&select(items, &update.table.from, update.condition.clone()), catalog, parameters)?;
    let fields = table.columns.fields();
    let mut exprs = Vec::with_capacity(2 * fields.len());
    for half in 0..2 {
        for (i, field) in fields.iter().enumerate() {
            let assigned_to = update.assignments.iter().find(|(column, _)| fold(column) == *field.name());
            let column = assigned_to.map_or(&update.table.name, |(column, _)| column);
            let (qualifier, from) = rows.schema().qualified_field(half * fields.len() + i);
            let value = Expr::Column(Column::new(qualifier.cloned(), from.name()));
            let value = assigned(value, from.data_type(), field, column)?;
            exprs.push(value.alias(format!("{} {i}", if half == 0 { "old" } else { "new" })));
        }
    }
    rows.project(exprs)
}

/// A query under new names for its columns; none keeps them.
///
/// # Errors
/// Another number of names than columns, or two columns of one name.
pub fn renamed(query: Resolved, names: &[Ident], owner: &Ident) -> Result<Resolved, PlanError> {
    let at = Position::of_span(owner.span);
    let columns = query.schema().columns();
    if !names.is_empty() && names.len() != columns.len() {
        let message = format!("{owner} names {} columns, its query has {}", names.len(), columns.len());
        return Err(PlanError::new(PlanErrorKind::Semantic, message).at(at));
    }
    let named: Vec<String> = match names {
        [] => columns.iter().map(|column| column.name.clone()).collect(),
        names => names.iter().map(fold).collect(),
    };
    if let Some((_, twice)) = named.iter().enumerate().find(|(i, name)| named[..*i].contains(name)) {
        let message = format!("{owner} would have two columns '{twice}'");
        return Err(PlanError::new(PlanErrorKind::Duplicate, message).at(at).hint("rename one with AS"));
    }
    let exprs = columns.into_iter().zip(named).map(|(column, name)| Expr::Column(column).alias(name));
    query.project(exprs.collect())
}

/// Positions of the columns that an INSERT gives, in its order.
fn targets(insert: &Insert, columns: &SchemaRef) -> Result<Vec<usize>, PlanError> {
    if insert.columns.is_empty() {
        return Ok((0..columns.fields().len()).collect());
    }
    let mut targets = Vec::with_capacity(insert.columns.len());
    for column in &insert.columns {
        let target = position(column, columns)?;
        if targets.contains(&target) {
            let message = format!("column '{column}' is named twice");
            return Err(PlanError::new(PlanErrorKind::Semantic, message).at(Position::of_span(column.span)));
        }
        targets.push(target);
    }
    Ok(targets)
}

fn position(column: &Ident, columns: &SchemaRef) -> Result<usize, PlanError> {
    let name = fold(column);
    columns.index_of(&name).map_err(|_| {
        let names = columns.fields().iter().map(|field| field.name().as_str());
        PlanError::new(PlanErrorKind::UndefinedColumn, format!("there is no column '{name}'"))
            .hint(format!("the columns are {}", names.clone().collect::<Vec<_>>().join(", ")))
            .suggest(&name, names)
            .at(Position::of_span(column.span))
    })
}

/// A value of type `from` as a column takes it. Numbers become numbers, rounded to whole ones
/// where they must be; text becomes anything that it spells; other types do not mix, as in PostgreSQL.
fn assigned(value: Expr, from: &DataType, to: &Field, column: &Ident) -> Result<Expr, PlanError> {
    let into = to.data_type();
    let fits = from == into
        || from.is_null()
        || is_text(from)
        || is_text(into)
        || from.is_numeric() && into.is_numeric()
        || from.is_temporal() && into.is_temporal()
        || from.is_nested() && into.is_nested()
        || from.is_binary() && into.is_binary();
    if !fits {
        let message = format!("column '{}' is {}, and the value is {}", to.name(), sql_name(into), sql_name(from));
        return Err(PlanError::new(PlanErrorKind::Type, message)
            .at(Position::of_span(column.span))
            .hint("write CAST(value AS type) if that is meant"));
    }
    let fraction = from.is_floating() || from.is_decimal();
    let value = match functions::scalar("round") {
        Some(round) if fraction && into.is_integer() => round.call(vec![value]),
        _ => value,
    };
    Ok(cast(value, into.clone()))
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn typed_null(data_type: &DataType) -> Expr {
    ScalarValue::try_from(data_type).map_or_else(|_| cast(lit(ScalarValue::Null), data_type.clone()), lit)
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// The table's columns, qualified by its name or alias, each under a name of its own.
fn old_columns(columns: &SchemaRef, from: &TableWithJoins) -> Vec<ast::SelectItem> {
    let table = match &from.relation {
        ast::TableFactor::Table { alias: Some(alias), .. } => Some(alias.name.clone()),
        ast::TableFactor::Table { name, .. } => name.0.last().and_then(|part| part.as_ident()).cloned(),
        _ => None,
    };
    let columns = columns.fields().iter().enumerate().map(|(i, field)| {
        let parts = table.iter().cloned().chain([quoted(field.name())]).collect();
        ast::SelectItem::ExprWithAlias {
            expr: ast::Expr::CompoundIdentifier(parts),
            alias: quoted(&format!("old {i}")),
        }
    });
    columns.collect()
}

/// `SELECT items FROM from WHERE condition`.
fn select(items: Vec<ast::SelectItem>, from: &TableWithJoins, condition: Option<ast::Expr>) -> Query {
    let mut query = TEMPLATE.clone();
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = items;
        select.from = vec![from.clone()];
        select.selection = condition;
    }
    query
}

static TEMPLATE: std::sync::LazyLock<Query> =
    std::sync::LazyLock::new(|| match thetis_parser::parse_statement("SELECT 1") {
        Ok(thetis_parser::Statement::Query(query)) => *query,
        _ => unreachable!("invariant: this text is a query"),
    });
