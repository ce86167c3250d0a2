//! The one statement splitter, for files and prompts: text is cut at each `;` that is not
//! inside a quote, a comment or parentheses.

use crate::error::Position;
use crate::scan::{Kind, Segment, segments, segments_from};

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
    let mut scan = Scan::default();
    let mut piece = |from: usize, to: usize, open| {
        let start = cursor.advance(from);
        pieces.push(Piece { text: text[from..to].trim_end(), start, open });
    };
    for segment in segments(text) {
        if let Some(from) = scan.take(segment).flatten() {
            piece(from, segment.start, Open::Nothing);
        }
    }
    match (scan.start, scan.open()) {
        (Some(from), open) => piece(from, text.len(), open),
        (None, Open::Nothing) => {}
        (None, open) => piece(text.len(), text.len(), open),
    }
    pieces
}

/// Where a scan over segments stands.
#[derive(Debug, Clone, Copy, Default)]
struct Scan {
    /// Where the statement starts that is not yet ended.
    start: Option<usize>,
    /// Its open parentheses.
    depth: usize,
    /// The quote or comment whose end is not found.
    unclosed: Option<Open>,
}

impl Scan {
    /// Takes the next segment. `Some` when it is a `;` that ends a statement, with the statement's
    /// start; an empty one has none.
    fn take(&mut self, segment: Segment) -> Option<Option<usize>> {
        let nothing = match segment.kind {
            Kind::Code(';') if self.depth == 0 => return Some(self.start.take()),
            Kind::Code(c) => c.is_whitespace(),
            Kind::LineComment | Kind::BlockComment => true,
            _ => false,
        };
        if !nothing {
            self.start.get_or_insert(segment.start);
        }
        match segment.kind {
            Kind::Code('(') => self.depth += 1,
            Kind::Code(')') => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if !segment.closed {
            self.unclosed = Some(match segment.kind {
                Kind::Quoted => Open::Quote,
                Kind::Identifier => Open::Identifier,
                Kind::Dollar => Open::Dollar,
                _ => Open::Comment,
            });
        }
        None
    }

    fn open(&self) -> Open {
        match (self.unclosed, self.start) {
            (Some(open), _) => open,
            (None, None) => Open::Nothing,
            (None, Some(_)) if self.depth > 0 => Open::Parenthesis,
            (None, Some(_)) => Open::Statement,
        }
    }
}

/// Cuts text that comes line by line, for prompts and pipes. A line is scanned once, unless a quote
/// or comment is open at its end.
#[derive(Debug)]
pub struct Splitter {
    text: String,
    /// Where the text starts in all that was pushed.
    base: Position,
    /// Everything before this is scanned.
    scanned: usize,
    scan: Scan,
    open: Open,
    /// Behind the last `;` that ended a statement.
    ended: usize,
}

impl Default for Splitter {
    fn default() -> Self {
        Self {
            text: String::new(),
            base: Position::START,
            scanned: 0,
            scan: Scan::default(),
            open: Open::Nothing,
            ended: 0,
        }
    }
}

impl Splitter {
    /// Adds a line, with or without its end.
    pub fn push(&mut self, line: &str) {
        self.text.push_str(line.strip_suffix('\n').unwrap_or(line));
        self.text.push('\n');
        let mut scan = self.scan;
        for segment in segments_from(&self.text, self.scanned) {
            if scan.take(segment).is_some() {
                self.ended = segment.end;
            }
            if segment.closed {
                self.scanned = segment.end;
                self.scan = scan;
            }
        }
        self.open = scan.open();
    }

    /// What the text still waits for.
    pub fn open(&self) -> Open {
        self.open
    }

    /// The text that is still to be taken.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The statements that have ended, as one text, and where it starts in all that was pushed.
    pub fn take(&mut self) -> Option<(String, Position)> {
        let start = self.base;
        if self.ended == 0 {
            if self.open == Open::Nothing {
                // Blanks and comments that belong to no statement.
                self.drop_text(self.text.len());
            }
            return None;
        }
        let ended = std::mem::take(&mut self.ended);
        let text = self.text[..ended].to_owned();
        self.drop_text(ended);
        if self.open == Open::Nothing {
            self.drop_text(self.text.len());
        }
        Some((text, start))
    }

    /// Everything that is left, ended or not.
    pub fn take_rest(&mut self) -> (String, Position) {
        let start = self.base;
        let text = self.text.clone();
        self.clear();
        (text, start)
    }

    /// Forgets what is left.
    pub fn clear(&mut self) {
        self.drop_text(self.text.len());
        (self.scan, self.open, self.ended) = (Scan::default(), Open::Nothing, 0);
    }

    /// Counts a line that was used for something else.
    pub fn skip_line(&mut self) {
        self.base = Position { line: self.base.line + 1, column: 1 };
    }

    fn drop_text(&mut self, to: usize) {
        let mut cursor = Cursor { text: &self.text, at: 0, position: self.base };
        self.base = cursor.advance(to);
        self.text.drain(..to);
        self.scanned = self.scanned.saturating_sub(to);
        self.scan.start = self.scan.start.map(|start| start.saturating_sub(to));
    }
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
        assert_eq!(open(r"SELECT E'a\'b;';"), Some(Open::Nothing));
        assert_eq!(open(r"SELECT E'a\';"), Some(Open::Quote));
        assert_eq!(open(r"SELECT one'a\';"), Some(Open::Nothing));
        assert_eq!(open("  -- nothing\n"), None);
    }

    #[test]
    fn lines_become_statements_when_they_end() {
        let mut splitter = Splitter::default();
        for (line, open, taken) in [
            ("-- nothing", Open::Nothing, None),
            ("SELECT (1", Open::Parenthesis, None),
            ("+ 2), 'a;", Open::Quote, None),
            ("b' -- ';", Open::Statement, None),
            ("; SELECT 2; SELECT $x$", Open::Dollar, Some("SELECT (1\n+ 2), 'a;\nb' -- ';\n; SELECT 2;")),
            ("$x$;", Open::Nothing, Some(" SELECT $x$\n$x$;")),
        ] {
            splitter.push(line);
            assert_eq!(splitter.open(), open, "{line}");
            assert_eq!(splitter.take().map(|(text, _)| text).as_deref(), taken, "{line}");
        }
        splitter.skip_line();
        splitter.push("SELECT 3;");
        assert_eq!(splitter.take(), Some(("SELECT 3;".to_owned(), Position { line: 8, column: 1 })));
        splitter.push("SELECT 4");
        assert_eq!(splitter.take_rest().0, "SELECT 4\n");
        assert_eq!(splitter.open(), Open::Nothing);
    }

    proptest::proptest! {
        #[test]
        fn line_by_line_is_as_at_once(lines in proptest::collection::vec("[a;'\"$/*() -]{0,12}", 0..8)) {
            let whole: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut splitter = Splitter::default();
            let mut parts = Vec::new();
            for line in &lines {
                splitter.push(line);
                parts.extend(splitter.take());
            }
            let last = splitter.open();
            parts.push(splitter.take_rest());
            let pieces: Vec<_> = parts
                .iter()
                .flat_map(|(text, base)| split(text).into_iter().map(|piece| (piece.text, piece.start.within(*base))))
                .collect();
            let expected = split(&whole);
            proptest::prop_assert_eq!(
                pieces.iter().map(|(text, start)| (*text, *start)).collect::<Vec<_>>(),
                expected.iter().map(|piece| (piece.text, piece.start)).collect::<Vec<_>>()
            );
            proptest::prop_assert_eq!(last, expected.last().map_or(Open::Nothing, |piece| piece.open));
        }

        #[test]
        fn never_fails_and_loses_no_code(text in "[a;'\"$/*() \n-]{0,60}") {
            let kept: usize = split(&text).iter().map(|piece| piece.text.len()).sum();
            proptest::prop_assert!(kept <= text.len());
        }
    }
}
