//! Stored tables and sinks: CREATE TABLE, CREATE SINK, INSERT, UPDATE, DELETE.

use sqlparser::ast::{self, Ident, ObjectName, Spanned, TableFactor, TableObject, TableWithJoins};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

use super::{StatementParser, parser_error};
use crate::error::{Position, SqlError};
use crate::statement::{CreateSink, CreateStream, CreateTable, Delete, Insert, Statement, TableName, Update};

/// What a clause of another system's dialect is answered with.
fn not_supported(what: &str, statement: &str, hint: &str) -> SqlError {
    SqlError::unsupported(format!("{what} is not supported in {statement}")).hint(hint)
}

impl StatementParser<'_> {
    pub(super) fn create_table(&mut self, or_replace: bool, if_not_exists: bool) -> Result<Statement, SqlError> {
        let name = self.name()?;
        let (columns, watermark) = self.columns()?;
        let options_at = Position::of_span(self.parser.peek_token().span);
        let options = self.with_options()?;
        if !options.is_empty() {
            // A table with a connector is what other systems call a stream.
            let stream = CreateStream { name, or_replace, if_not_exists, columns, watermark, options };
            if stream.options.iter().any(|option| option.key.value.eq_ignore_ascii_case("connector")) {
                return Ok(Statement::CreateStream(Box::new(stream)));
            }
            return Err(SqlError::new("a stored table has no options")
                .at(options_at)
                .hint("leave WITH out, or write CREATE STREAM name (columns) WITH (connector = ..., ...)"));
        }
        if let Some(watermark) = watermark {
            return Err(SqlError::new("a stored table has no watermark").at(Position::of_span(watermark.column.span)));
        }
        let query = if self.parser.parse_keyword(Keyword::AS) { Some(self.query()?) } else { None };
        if columns.is_empty() && query.is_none() {
            return Err(self.expected("the table's columns in parentheses"));
        }
        if let (Some(column), Some(_)) = (columns.first(), &query) {
            return Err(SqlError::unsupported("columns and a query together are not supported in CREATE TABLE")
                .at(Position::of_span(column.name.span))
                .hint("name and cast the columns in the query: CREATE TABLE t AS SELECT a AS x FROM ..."));
        }
        Ok(Statement::CreateTable(Box::new(CreateTable { name, or_replace, if_not_exists, columns, query })))
    }

    pub(super) fn create_sink(&mut self, or_replace: bool, if_not_exists: bool) -> Result<Statement, SqlError> {
        let name = self.name()?;
        if self.consume(&Token::LParen) {
            return Err(SqlError::new("a sink has no columns of its own")
                .at(Position::of_span(name.span))
                .hint("its columns are those of the query: INSERT INTO sink SELECT ..."));
        }
        let options = self.with_options()?;
        Ok(Statement::CreateSink(Box::new(CreateSink { name, or_replace, if_not_exists, options })))
    }

    pub(super) fn insert(&mut self) -> Result<Statement, SqlError> {
        let insert = match self.parser.parse_statement().map_err(parser_error)? {
            ast::Statement::Insert(insert) => insert,
            other => return Err(SqlError::unsupported(format!("{other} is not supported"))),
        };
        let refused = [
            (insert.on.is_some(), "ON CONFLICT", "DELETE the old rows first"),
            (insert.returning.is_some(), "RETURNING", "SELECT the rows afterwards"),
            (insert.or.is_some() || insert.replace_into || insert.ignore, "this form", "write INSERT INTO name SELECT"),
            (insert.overwrite, "OVERWRITE", "DELETE FROM the table first"),
            (!insert.assignments.is_empty(), "SET", "write INSERT INTO name (columns) VALUES (...)"),
            (insert.table_alias.is_some(), "an alias", "leave it out"),
            (insert.partitioned.is_some() || !insert.after_columns.is_empty(), "PARTITION", "leave it out"),
        ];
        refuse(&refused, "INSERT")?;
        let TableObject::TableName(name) = &insert.table else {
            return Err(not_supported("a table function", "INSERT", "name a table or a sink"));
        };
        let target = plain(name)?;
        let columns = insert.columns.iter().map(plain).collect::<Result<_, _>>()?;
        let Some(query) = insert.source else {
            return Err(SqlError::new("INSERT needs rows")
                .at(Position::of_span(target.span))
                .hint("write INSERT INTO name VALUES (...) or INSERT INTO name SELECT ..."));
        };
        Ok(Statement::Insert(Box::new(Insert { target, columns, query })))
    }

    pub(super) fn update(&mut self) -> Result<Statement, SqlError> {
        let update = match self.parser.parse_statement().map_err(parser_error)? {
            ast::Statement::Update(update) => update,
            other => return Err(SqlError::unsupported(format!("{other} is not supported"))),
        };
        let refused = [
            (update.from.is_some(), "FROM", "use a scalar subquery for the value, and IN or EXISTS in WHERE"),
            (update.returning.is_some(), "RETURNING", "SELECT the rows afterwards"),
            (update.limit.is_some() || !update.order_by.is_empty(), "LIMIT", "say in WHERE which rows change"),
        ];
        refuse(&refused, "UPDATE")?;
        let table = table_name(update.table, "UPDATE")?;
        let assignments = update.assignments.into_iter().map(|assignment| match assignment.target {
            ast::AssignmentTarget::ColumnName(name) => Ok((plain(&name)?, assignment.value)),
            ast::AssignmentTarget::Tuple(_) => {
                Err(not_supported("a list of columns on the left of =", "UPDATE", "write column = value for each"))
            }
        });
        let assignments = assignments.collect::<Result<_, SqlError>>()?;
        Ok(Statement::Update(Box::new(Update { table, assignments, condition: update.selection })))
    }

    pub(super) fn delete(&mut self) -> Result<Statement, SqlError> {
        let delete = match self.parser.parse_statement().map_err(parser_error)? {
            ast::Statement::Delete(delete) => delete,
            other => return Err(SqlError::unsupported(format!("{other} is not supported"))),
        };
        let refused = [
            (!delete.tables.is_empty(), "a list of tables", "delete from one table at a time"),
            (delete.using.is_some(), "USING", "use IN or EXISTS in WHERE"),
            (delete.returning.is_some(), "RETURNING", "SELECT the rows before"),
            (delete.limit.is_some() || !delete.order_by.is_empty(), "LIMIT", "say in WHERE which rows go"),
        ];
        refuse(&refused, "DELETE")?;
        let mut from = match delete.from {
            ast::FromTable::WithFromKeyword(from) => from,
            ast::FromTable::WithoutKeyword(_) => {
                return Err(SqlError::new("expected FROM after DELETE")
                    .at(Position::of_span(delete.delete_token.0.span))
                    .hint("write DELETE FROM name [WHERE condition]"));
            }
        };
        let table = match (from.pop(), from.is_empty()) {
            (Some(table), true) => table_name(table, "DELETE")?,
            _ => return Err(not_supported("a list of tables", "DELETE", "delete from one table at a time")),
        };
        Ok(Statement::Delete(Box::new(Delete { table, condition: delete.selection })))
    }
}

fn refuse(clauses: &[(bool, &str, &str)], statement: &str) -> Result<(), SqlError> {
    match clauses.iter().find(|(found, ..)| *found) {
        Some((_, what, hint)) => Err(not_supported(what, statement, hint)),
        None => Ok(()),
    }
}

/// A name without a schema before it.
fn plain(name: &ObjectName) -> Result<Ident, SqlError> {
    match name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(ident)] => Ok(ident.clone()),
        _ => Err(SqlError::unsupported(format!("a qualified name such as {name} is not supported"))
            .at(Position::of_span(name.span()))
            .hint("there is one catalogue with one schema: use the plain name")),
    }
}

fn table_name(from: TableWithJoins, statement: &str) -> Result<TableName, SqlError> {
    match &from.relation {
        TableFactor::Table { name, args: None, with_hints, version: None, partitions, sample: None, .. }
            if from.joins.is_empty() && with_hints.is_empty() && partitions.is_empty() =>
        {
            Ok(TableName { name: plain(name)?, from })
        }
        _ => Err(not_supported("anything but one table", statement, "use IN or EXISTS in WHERE")),
    }
}
