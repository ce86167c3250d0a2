//! One statement's text to a [`Statement`]: sqlparser for queries, types and expressions, and
//! a thin layer for the statements that no dialect of it has.

mod explain;

use sqlparser::ast::{self, Ident};
use sqlparser::dialect::GenericDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, TokenizerError};

use crate::error::{Position, SqlError};
use crate::statement::{CreateStream, CreateView, DropKind, Show, Statement, StreamColumn, StreamOption, Watermark};
use crate::suggest::closest;

/// The SQL grammar of queries and expressions.
pub static GRAMMAR: GenericDialect = GenericDialect {};

/// Longest statement that is parsed, in bytes.
const MAX_STATEMENT: usize = 4 << 20;
/// Deepest nesting of parentheses, subqueries and the like.
const MAX_NESTING: usize = 100;

/// Most parameters of a statement.
const MAX_PARAMETERS: usize = 1_000;
/// Most conditions that AND and OR may connect in one clause.
const MAX_CONDITIONS: usize = 4_000;
/// Longest chain of arithmetic operators: each is one level of the expression's tree.
const MAX_CHAIN: usize = 1_000;

/// The words that start a query.
const QUERIES: [&str; 4] = ["SELECT", "WITH", "VALUES", "FROM"];

const STATEMENTS: [&str; 14] = [
    "SELECT", "CREATE", "INSERT", "UPDATE", "DELETE", "EXPLAIN", "SHOW", "DESCRIBE", "SET", "RESET", "DROP", "WITH",
    "VALUES", "DESC",
];

/// The statements, for people.
const KNOWN: &str = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, EXPLAIN, SHOW, DESCRIBE and SET";

/// Parses one statement (without its `;`).
///
/// # Errors
/// A [`SqlError`] with the position in `text` where one is known.
pub fn parse_statement(text: &str) -> Result<Statement, SqlError> {
    parse_tokens(text, tokenize(text)?)
}

/// Parses one statement with parameters: `$1`, `$2`, ..., or `?` for each in turn. The second value is
/// their number.
///
/// # Errors
/// As for [`parse_statement`], and both kinds of parameters in one statement.
pub fn parse_parameterized(text: &str) -> Result<(Statement, usize), SqlError> {
    let mut tokens = tokenize(text)?;
    let mut asked = 0;
    let mut numbered = 0;
    for token in &mut tokens {
        let Token::Placeholder(name) = &mut token.token else { continue };
        let position = Position::of_span(token.span);
        if name == "?" {
            asked += 1;
            *name = format!("${asked}");
        } else {
            let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
            numbered = match number.filter(|number| (1..=MAX_PARAMETERS).contains(number)) {
                Some(number) => numbered.max(number),
                None => {
                    return Err(SqlError::new(format!("{name} is no parameter"))
                        .at(position)
                        .hint(format!("parameters are ?, or $1 to ${MAX_PARAMETERS}")));
                }
            };
        }
        if asked > MAX_PARAMETERS || asked > 0 && numbered > 0 {
            return Err(
                SqlError::new("a statement has ? or numbered parameters, not both, and not too many").at(position)
            );
        }
    }
    Ok((parse_tokens(text, tokens)?, asked.max(numbered)))
}

fn tokenize(text: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    if text.len() > MAX_STATEMENT {
        return Err(SqlError::new(format!(
            "the statement has {} bytes; the longest that is accepted has {MAX_STATEMENT}",
            text.len()
        )));
    }
    Tokenizer::new(&GRAMMAR, text).tokenize_with_location().map_err(tokenizer_error)
}

fn parse_tokens(text: &str, tokens: Vec<TokenWithSpan>) -> Result<Statement, SqlError> {
    check_chains(&tokens)?;
    let parser = Parser::new(&GRAMMAR).with_recursion_limit(MAX_NESTING).with_tokens_with_locations(tokens);
    let mut statement = StatementParser { parser, text };
    let parsed = statement.statement()?;
    statement.end()?;
    Ok(parsed)
}

/// Refuses chains such as `1 + 1 + ...` that would take the planner for ever. Commas and keywords
/// end a chain of arithmetic, keywords other than NOT, NULL and the like one of conditions.
fn check_chains(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    use Keyword as K;
    let (mut operators, mut conditions) = (0, 0);
    for token in tokens {
        match &token.token {
            Token::Word(word) if word.quote_style.is_none() && word.keyword == K::TABLESAMPLE => {
                return Err(SqlError::unsupported("TABLESAMPLE is not supported")
                    .at(Position::of_span(token.span))
                    .hint("write a condition such as id % 100 = 0"));
            }
            Token::Comma | Token::SemiColon => operators = 0,
            Token::Word(word) if matches!(word.keyword, K::AND | K::OR) => {
                operators = 0;
                conditions += 1;
            }
            Token::Word(word)
                if matches!(word.keyword, K::SELECT | K::WHERE | K::ON | K::HAVING | K::WHEN | K::THEN) =>
            {
                (operators, conditions) = (0, 0);
            }
            Token::Word(word) if word.keyword != K::NoKeyword => operators = 0,
            Token::Plus
            | Token::Minus
            | Token::Mul
            | Token::Div
            | Token::Mod
            | Token::StringConcat
            | Token::DoubleColon
            | Token::Eq => operators += 1,
            _ => {}
        }
        let (found, most, what) = if operators > MAX_CHAIN {
            (operators, MAX_CHAIN, "operators in a row")
        } else {
            (conditions, MAX_CONDITIONS, "conditions connected by AND and OR")
        };
        if found > most {
            return Err(SqlError::new(format!("an expression has more than {most} {what}"))
                .at(Position::of_span(token.span))
                .hint("compute parts of it in a subquery or a view; x IN (...) takes long lists"));
        }
    }
    Ok(())
}

struct StatementParser<'a> {
    parser: Parser<'a>,
    text: &'a str,
}

impl StatementParser<'_> {
    fn statement(&mut self) -> Result<Statement, SqlError> {
        let first = self.parser.peek_token();
        let word = match &first.token {
            Token::LParen => return self.query().map(Statement::Query),
            Token::Word(word) => word.value.to_uppercase(),
            other => {
                return Err(
                    SqlError::new(format!("a statement cannot start with {other}")).at(Position::of_span(first.span))
                );
            }
        };
        match word.as_str() {
            word if QUERIES.contains(&word) => self.query().map(Statement::Query),
            "CREATE" => self.create(),
            "EXPLAIN" => self.explain(),
            "SHOW" => self.show(),
            "DESCRIBE" | "DESC" => {
                self.parser.next_token();
                Ok(Statement::Describe { name: self.name()? })
            }
            "SET" => self.set(),
            "RESET" => {
                self.parser.next_token();
                Ok(Statement::Set { name: self.name()?, value: None, position: None })
            }
            "DROP" => self.drop(),
            "INSERT" => self.insert(),
            "UPDATE" => self.update(),
            "DELETE" => self.delete(),
            _ => Err(self.unknown_statement(&word, Position::of_span(first.span))),
        }
    }

    fn unknown_statement(&mut self, word: &str, position: Option<Position>) -> SqlError {
        if self.parser.parse_statement().is_ok() {
            return SqlError::unsupported(format!("{word} is not supported"))
                .at(position)
                .hint(format!("statements are {KNOWN}"));
        }
        let error = SqlError::new(format!("unknown statement {word}")).at(position);
        match closest(word, STATEMENTS) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error.hint(format!("statements are {KNOWN}")),
        }
    }

    fn create(&mut self) -> Result<Statement, SqlError> {
        self.parser.next_token();
        let or_replace = self.parser.parse_keywords(&[Keyword::OR, Keyword::REPLACE]);
        let what = self.parser.next_token();
        let position = Position::of_span(what.span);
        let word = what.token.to_string().to_uppercase();
        match word.as_str() {
            "STREAM" | "SOURCE" => {
                let if_not_exists = self.if_not_exists();
                self.create_stream(or_replace, if_not_exists)
            }
            "VIEW" => {
                let if_not_exists = self.if_not_exists();
                self.create_view(or_replace, if_not_exists, false)
            }
            "TABLE" => {
                let if_not_exists = self.if_not_exists();
                self.create_table(or_replace, if_not_exists)
            }
            "MATERIALIZED" => {
                self.expect_word("VIEW")?;
                let if_not_exists = self.if_not_exists();
                self.create_view(or_replace, if_not_exists, true)
            }
            "SINK" => {
                let if_not_exists = self.if_not_exists();
                self.create_sink(or_replace, if_not_exists)
            }
            _ => {
                let error = SqlError::new(format!("CREATE {word} is not known")).at(position);
                Err(match closest(&word, ["STREAM", "SOURCE", "TABLE", "VIEW", "MATERIALIZED", "SINK"]) {
                    Some(near) => error.hint(format!("did you mean CREATE {near}?")),
                    None => error.hint("there are CREATE STREAM, TABLE, VIEW, MATERIALIZED VIEW and SINK"),
                })
            }
        }
    }

    fn if_not_exists(&mut self) -> bool {
        self.parser.parse_keywords(&[Keyword::IF, Keyword::NOT, Keyword::EXISTS])
    }

    fn create_stream(&mut self, or_replace: bool, if_not_exists: bool) -> Result<Statement, SqlError> {
        let name = self.name()?;
        let (columns, watermark) = self.columns()?;
        let options = self.with_options()?;
        Ok(Statement::CreateStream(Box::new(CreateStream {
            name,
            or_replace,
            if_not_exists,
            columns,
            watermark,
            options,
        })))
    }

    /// `(column, ... [, WATERMARK FOR ...])`, or nothing.
    fn columns(&mut self) -> Result<(Vec<StreamColumn>, Option<Watermark>), SqlError> {
        let mut columns = Vec::new();
        let mut watermark = None;
        if self.consume(&Token::LParen) && !self.consume(&Token::RParen) {
            loop {
                if self.at_word("WATERMARK") {
                    watermark = Some(self.watermark()?);
                } else {
                    columns.push(self.column()?);
                }
                if self.consume(&Token::RParen) {
                    break;
                }
                self.expect(&Token::Comma, "a comma or a closing parenthesis")?;
            }
        }
        Ok((columns, watermark))
    }

    fn column(&mut self) -> Result<StreamColumn, SqlError> {
        let name = self.parser.parse_identifier().map_err(parser_error)?;
        let position = Position::of_span(self.parser.peek_token().span);
        let data_type = self.parser.parse_data_type().map_err(parser_error)?;
        let mut not_null = false;
        while let Some(option) = self.parser.parse_optional_column_option().map_err(parser_error)? {
            match option {
                ast::ColumnOption::NotNull => not_null = true,
                ast::ColumnOption::Null => {}
                other => {
                    return Err(SqlError::unsupported(format!("{other} is not supported on a column"))
                        .at(position)
                        .hint("a column has a name, a type and perhaps NOT NULL"));
                }
            }
        }
        Ok(StreamColumn { name, data_type, not_null, position })
    }

    fn watermark(&mut self) -> Result<Watermark, SqlError> {
        self.parser.next_token();
        self.expect_word("FOR")?;
        let column = self.name()?;
        self.expect_word("AS")?;
        let expression = self.parser.parse_expr().map_err(parser_error)?;
        Ok(Watermark { column, expression })
    }

    fn with_options(&mut self) -> Result<Vec<StreamOption>, SqlError> {
        if !self.parser.parse_keyword(Keyword::WITH) {
            return Ok(Vec::new());
        }
        self.expect(&Token::LParen, "an opening parenthesis after WITH")?;
        let mut options = Vec::new();
        while !self.consume(&Token::RParen) {
            if !options.is_empty() {
                self.expect(&Token::Comma, "a comma or a closing parenthesis")?;
            }
            let mut key = self.parser.parse_identifier().map_err(parser_error)?;
            while self.consume(&Token::Period) {
                let next = self.parser.parse_identifier().map_err(parser_error)?;
                key.value = format!("{}.{}", key.value, next.value);
            }
            self.expect(&Token::Eq, "an equals sign after the option's name")?;
            let position = Position::of_span(self.parser.peek_token().span);
            let value = self.plain_value()?;
            options.push(StreamOption { key, value, position });
        }
        Ok(options)
    }

    fn create_view(
        &mut self,
        or_replace: bool,
        if_not_exists: bool,
        materialized: bool,
    ) -> Result<Statement, SqlError> {
        let name = self.name()?;
        let mut columns = Vec::new();
        if self.consume(&Token::LParen) {
            loop {
                columns.push(self.parser.parse_identifier().map_err(parser_error)?);
                if self.consume(&Token::RParen) {
                    break;
                }
                self.expect(&Token::Comma, "a comma or a closing parenthesis")?;
            }
        }
        self.expect_word("AS")?;
        let query = self.query()?;
        Ok(Statement::CreateView(Box::new(CreateView {
            name,
            or_replace,
            if_not_exists,
            materialized,
            columns,
            query,
        })))
    }

    fn show(&mut self) -> Result<Statement, SqlError> {
        self.parser.next_token();
        let name = self.name()?;
        Ok(Statement::Show(match name.value.to_uppercase().as_str() {
            "STREAMS" | "SOURCES" => Show::Streams,
            "TABLES" => Show::Tables,
            "SINKS" => Show::Sinks,
            "VIEWS" => Show::Views,
            "WORKERS" => Show::Workers,
            "QUERIES" => Show::Queries,
            "TASKS" => Show::Tasks,
            "SETTINGS" | "ALL" => Show::Settings,
            _ => Show::Setting(name),
        }))
    }

    fn set(&mut self) -> Result<Statement, SqlError> {
        self.parser.next_token();
        let name = self.name()?;
        if !self.consume(&Token::Eq) && !self.parser.parse_keyword(Keyword::TO) {
            let found = self.parser.peek_token();
            return Err(SqlError::new(format!("expected = after the setting's name, found {}", found.token))
                .at(Position::of_span(found.span))
                .hint("write SET name = value"));
        }
        let position = Position::of_span(self.parser.peek_token().span);
        let value = if self.parser.parse_keyword(Keyword::DEFAULT) { None } else { Some(self.plain_value()?) };
        Ok(Statement::Set { name, value, position })
    }

    fn drop(&mut self) -> Result<Statement, SqlError> {
        self.parser.next_token();
        let what = self.parser.next_token();
        let kind = match what.token.to_string().to_uppercase().as_str() {
            "STREAM" | "SOURCE" => DropKind::Stream,
            "TABLE" => DropKind::Table,
            "VIEW" => DropKind::View,
            "SINK" => DropKind::Sink,
            "MATERIALIZED" => {
                self.expect_word("VIEW")?;
                DropKind::MaterializedView
            }
            other => {
                return Err(SqlError::new(format!("DROP {other} is not known"))
                    .at(Position::of_span(what.span))
                    .hint("there are DROP STREAM, TABLE, VIEW, MATERIALIZED VIEW and SINK, each with a name"));
            }
        };
        let if_exists = self.parser.parse_keywords(&[Keyword::IF, Keyword::EXISTS]);
        Ok(Statement::Drop { kind, name: self.name()?, if_exists })
    }

    fn query(&mut self) -> Result<Box<ast::Query>, SqlError> {
        self.parser.parse_query().map_err(parser_error)
    }

    /// A literal, a number with a sign, or bare words such as `on` and `block`.
    fn plain_value(&mut self) -> Result<String, SqlError> {
        let token = self.parser.next_token();
        match token.token {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => Ok(text),
            Token::DollarQuotedString(text) => Ok(text.value),
            Token::Number(number, _) => Ok(number),
            Token::Word(word) => Ok(word.value),
            Token::Minus => Ok(format!("-{}", self.plain_value()?)),
            other => Err(SqlError::new(format!("expected a value, found {other}"))
                .at(Position::of_span(token.span))
                .hint("a value is a number, a word or a text in single quotes")),
        }
    }

    fn name(&mut self) -> Result<Ident, SqlError> {
        let name = self.parser.parse_identifier().map_err(parser_error)?;
        if self.parser.peek_token().token == Token::Period {
            return Err(SqlError::unsupported(format!("a qualified name such as {name}.… is not supported"))
                .at(Position::of_span(name.span))
                .hint("there is one catalogue with one schema: use the plain name"));
        }
        Ok(name)
    }

    fn consume(&mut self, token: &Token) -> bool {
        self.parser.consume_token(token)
    }

    fn at_word(&self, word: &str) -> bool {
        matches!(&self.parser.peek_token().token, Token::Word(found)
            if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
    }

    fn expect(&mut self, token: &Token, what: &str) -> Result<(), SqlError> {
        if self.consume(token) {
            return Ok(());
        }
        Err(self.expected(what))
    }

    fn expect_word(&mut self, word: &str) -> Result<(), SqlError> {
        if self.at_word(word) {
            self.parser.next_token();
            return Ok(());
        }
        Err(self.expected(word))
    }

    fn expected(&self, what: &str) -> SqlError {
        let found = self.parser.peek_token();
        SqlError::new(format!("expected {what}, found {}", found.token)).at(self.position_or_end(found.span))
    }

    fn end(&mut self) -> Result<(), SqlError> {
        let next = self.parser.peek_token();
        if next.token == Token::EOF {
            return Ok(());
        }
        Err(SqlError::new(format!("unexpected {} after the end of the statement", next.token))
            .at(Position::of_span(next.span)))
    }

    /// The end of input has no span of its own: point behind the last character.
    fn position_or_end(&self, span: sqlparser::tokenizer::Span) -> Option<Position> {
        Position::of_span(span).or_else(|| {
            let line = self.text.lines().count().max(1) as u64;
            let column = self.text.lines().last().map_or(0, |last| last.chars().count()) as u64 + 1;
            Some(Position { line, column })
        })
    }
}

fn tokenizer_error(error: TokenizerError) -> SqlError {
    SqlError::new(error.message).at(Position::of(error.location))
}

/// sqlparser's errors carry their position only as text at the end of the message.
fn parser_error(error: ParserError) -> SqlError {
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message,
        ParserError::RecursionLimitExceeded => {
            return SqlError::new(format!("the statement is nested more than {MAX_NESTING} levels deep"))
                .hint("remove redundant parentheses, or name parts of it with CREATE VIEW or WITH");
        }
    };
    let Some((head, tail)) = message.rsplit_once(" at Line: ") else {
        return SqlError::new(lower_first(&message));
    };
    let position = tail
        .split_once(", Column: ")
        .and_then(|(line, column)| Some(Position { line: line.parse().ok()?, column: column.trim().parse().ok()? }));
    SqlError::new(lower_first(head)).at(position)
}

fn lower_first(message: &str) -> String {
    let mut chars = message.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

mod tables;

#[cfg(test)]
mod tests;
