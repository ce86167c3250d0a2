//! `EXPLAIN [ANALYZE] [VERBOSE] query` and `EXPLAIN (option [value], ...) query`.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

use super::{QUERIES, StatementParser, parser_error};
use crate::error::{Position, SqlError};
use crate::statement::{Explain, ExplainFormat, Statement};
use crate::suggest::closest;

const OPTIONS: [&str; 3] = ["ANALYZE", "VERBOSE", "FORMAT"];

/// What stands between EXPLAIN and its query.
#[derive(Default)]
struct Options {
    analyze: bool,
    verbose: bool,
    format: ExplainFormat,
}

impl StatementParser<'_> {
    pub(super) fn explain(&mut self) -> Result<Statement, SqlError> {
        self.parser.next_token();
        let mut options = Options::default();
        if self.at_explain_options() {
            self.explain_options(&mut options)?;
        } else {
            self.explain_words(&mut options);
        }
        self.expect_query()?;
        let Options { analyze, verbose, format } = options;
        Ok(Statement::Explain(Explain { analyze, verbose, format, query: self.query()? }))
    }

    /// A parenthesis that opens a list of options, not a query.
    fn at_explain_options(&self) -> bool {
        self.parser.peek_token().token == Token::LParen
            && matches!(&self.parser.peek_nth_token(1).token, Token::Word(word) if !starts_query(&word.value))
    }

    fn explain_words(&mut self, options: &mut Options) {
        loop {
            if self.parser.parse_keyword(Keyword::ANALYZE) {
                options.analyze = true;
            } else if self.parser.parse_keyword(Keyword::VERBOSE) {
                options.verbose = true;
            } else {
                return;
            }
        }
    }

    fn explain_options(&mut self, options: &mut Options) -> Result<(), SqlError> {
        self.parser.next_token();
        loop {
            let token = self.parser.peek_token();
            let name = self.parser.parse_identifier().map_err(parser_error)?;
            match name.value.to_uppercase().as_str() {
                "ANALYZE" => options.analyze = self.explain_switch()?,
                "VERBOSE" => options.verbose = self.explain_switch()?,
                "FORMAT" => options.format = self.explain_format()?,
                _ => {
                    let error = SqlError::new(format!("EXPLAIN has no option {name}"));
                    return Err(suggest(error, &name.value, &OPTIONS, "options are ANALYZE, VERBOSE and FORMAT")
                        .at(Position::of_span(token.span)));
                }
            }
            if self.consume(&Token::RParen) {
                return Ok(());
            }
            self.expect(&Token::Comma, "a comma or a closing parenthesis")?;
        }
    }

    /// The value of an option that is on or off; without one it is on.
    fn explain_switch(&mut self) -> Result<bool, SqlError> {
        let next = self.parser.peek_token();
        if matches!(next.token, Token::Comma | Token::RParen | Token::EOF) {
            return Ok(true);
        }
        let value = self.plain_value()?;
        match value.to_lowercase().as_str() {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(SqlError::new(format!("expected true or false, found {value}")).at(Position::of_span(next.span))),
        }
    }

    fn explain_format(&mut self) -> Result<ExplainFormat, SqlError> {
        let next = self.parser.peek_token();
        let value = self.plain_value()?;
        let found = ExplainFormat::ALL.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(&value));
        found.map(|(_, format)| format).ok_or_else(|| {
            let error = SqlError::new(format!("EXPLAIN has no format {value}")).at(Position::of_span(next.span));
            suggest(error, &value, &ExplainFormat::ALL.map(|(name, _)| name), "formats are TEXT, JSON and DOT")
        })
    }

    /// A better error than the grammar's for a misspelt option.
    fn expect_query(&self) -> Result<(), SqlError> {
        let next = self.parser.peek_token();
        let Token::Word(word) = &next.token else { return Ok(()) };
        if starts_query(&word.value) {
            return Ok(());
        }
        let error = SqlError::new(format!("EXPLAIN takes a query, found {}", word.value));
        let known = ["ANALYZE", "VERBOSE"].into_iter().chain(QUERIES).collect::<Vec<_>>();
        let usage = "write EXPLAIN [ANALYZE] [VERBOSE] query, or EXPLAIN (FORMAT JSON) query";
        Err(suggest(error, &word.value, &known, usage).at(Position::of_span(next.span)))
    }
}

fn starts_query(word: &str) -> bool {
    QUERIES.iter().any(|start| start.eq_ignore_ascii_case(word))
}

/// "Did you mean", or else what there is.
fn suggest(error: SqlError, name: &str, known: &[&str], otherwise: &str) -> SqlError {
    match closest(name, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean {near}?")),
        None => error.hint(otherwise),
    }
}
