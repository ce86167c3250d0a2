//! The one statement splitter, for files and prompts: text is cut at each `;` that is not
//! inside a quote, a comment or parentheses.

use crate::error::Position;
use crate::scan::{Kind, segments};

/// One statement's text and where it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The text, from its first character that is neither blank nor comment, without the `;`.
    pub text: &'a str,
    /// Where the text starts.
    pub start: Position,
    /// What is still open at the end; [`Open::Nothing`] when the statement was ended by `;`.
    pub open: Open,
}

/// What a text still waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// Nothing: the statement has its `;`.
    Nothing,
    /// The `;` of a statement.
    Statement,
    /// A closing `)`.
    Parenthesis,
    /// A closing `'`.
    Quote,
    /// A closing `"`.
    Identifier,
    /// A closing `$tag$`.
    Dollar,
    /// A closing `*/`.
    Comment,
}

/// Cuts `text` into statements; empty ones are left out. The last piece may be open.
pub fn split(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut cursor = Cursor { text, at: 0, position: Position::START };
    let mut start = None;
    let mut depth = 0_usize;
    let mut open = Open::Nothing;
    for segment in segments(text) {
        let comment = matches!(segment.kind, Kind::LineComment | Kind::BlockComment);
        let blank = matches!(segment.kind, Kind::Code(c) if c.is_whitespace());
        let end_of_statement = segment.kind == Kind::Code(';') && depth == 0;
        if !comment && !blank && !end_of_statement && start.is_none() {
            start = Some((segment.start, cursor.advance(segment.start)));
        }
        match segment.kind {
            Kind::Code('(') => depth += 1,
            Kind::Code(')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if end_of_statement {
            depth = 0;
            if let Some((from, position)) = start.take() {
                pieces.push(Piece { text: text[from..segment.start].trim_end(), start: position, open: Open::Nothing });
            }
        } else if !segment.closed {
            open = match segment.kind {
                Kind::Quoted => Open::Quote,
                Kind::Identifier => Open::Identifier,
                Kind::Dollar => Open::Dollar,
                _ => Open::Comment,
            };
        }
    }
    if let Some((from, position)) = start {
        if open == Open::Nothing {
            open = if depth > 0 { Open::Parenthesis } else { Open::Statement };
        }
        pieces.push(Piece { text: text[from..].trim_end(), start: position, open });
    } else if open != Open::Nothing {
        pieces.push(Piece { text: "", start: cursor.advance(text.len()), open });
    }
    pieces
}

/// Turns ascending byte offsets into positions in one pass over the text.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
    position: Position,
}

impl Cursor<'_> {
    fn advance(&mut self, to: usize) -> Position {
        for c in self.text[self.at..to].chars() {
            if c == '\n' {
                self.position = Position { line: self.position.line + 1, column: 1 };
            } else {
                self.position.column += 1;
            }
        }
        self.at = to;
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        split(text).into_iter().map(|piece| piece.text).collect()
    }

    #[test]
    fn cuts_at_semicolons_outside_quotes_and_comments() {
        let text = "SELECT ';' AS a; -- no; cut\nSELECT \"a;b\" /* ; /* ; */ */ FROM t;;\n$$a;b$$";
        assert_eq!(texts(text), ["SELECT ';' AS a", "SELECT \"a;b\" /* ; /* ; */ */ FROM t", "$$a;b$$"]);
    }

    #[test]
    fn tells_where_a_statement_starts() {
        let pieces = split("-- é\n  SELECT 1;\nSELECT 2");
        assert_eq!(pieces[0].start, Position { line: 2, column: 3 });
        assert_eq!(pieces[1].start, Position { line: 3, column: 1 });
    }

    #[test]
    fn tells_what_is_open() {
        let open = |text| split(text).last().map(|piece| piece.open);
        assert_eq!(open("SELECT 1;"), Some(Open::Nothing));
        assert_eq!(open("SELECT 1"), Some(Open::Statement));
        assert_eq!(open("SELECT (1;"), Some(Open::Parenthesis));
        assert_eq!(open("SELECT 'a;"), Some(Open::Quote));
        assert_eq!(open("SELECT \"a"), Some(Open::Identifier));
        assert_eq!(open("SELECT $x$ a $y$"), Some(Open::Dollar));
        assert_eq!(open("SELECT 1; /* a"), Some(Open::Comment));
        assert_eq!(open("  -- nothing\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn never_fails_and_loses_no_code(text in "[a;'\"$/*() \n-]{0,60}") {
            let kept: usize = split(&text).iter().map(|piece| piece.text.len()).sum();
            proptest::prop_assert!(kept <= text.len());
        }
    }
}
