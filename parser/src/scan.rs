//! The lexical skeleton of SQL text: quoted parts, comments and the rest. It is what the
//! splitter and the variable substitution share, and it never fails: an open quote or comment
//! is a segment that is not closed.

/// What a segment of the text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One character of ordinary SQL.
    Code(char),
    /// `'...'`, with `''` inside.
    Quoted,
    /// `"..."`.
    Identifier,
    /// `$tag$ ... $tag$`.
    Dollar,
    /// `-- ...` to the end of the line.
    LineComment,
    /// `/* ... */`, nested.
    BlockComment,
}

/// A segment: its kind, byte range, and whether its end was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) closed: bool,
}

/// The segments of `text`, in order and without gaps.
pub(crate) fn segments(text: &str) -> impl Iterator<Item = Segment> + '_ {
    segments_from(text, 0)
}

/// The segments of `text` from a place where one starts.
pub(crate) fn segments_from(text: &str, mut at: usize) -> impl Iterator<Item = Segment> + '_ {
    std::iter::from_fn(move || {
        let segment = segment_at(text, at)?;
        at = segment.end;
        Some(segment)
    })
}

fn segment_at(text: &str, start: usize) -> Option<Segment> {
    let rest = &text[start..];
    let first = rest.chars().next()?;
    let (kind, length) = if rest.starts_with("--") {
        (Kind::LineComment, Some(rest.find('\n').unwrap_or(rest.len())))
    } else if rest.starts_with("/*") {
        (Kind::BlockComment, block_comment(rest))
    } else {
        match first {
            '\'' if is_escaped(text, start) => (Kind::Quoted, escaped(rest)),
            '\'' => (Kind::Quoted, quoted(rest, '\'')),
            '"' => (Kind::Identifier, quoted(rest, '"')),
            '$' if !continues_word(text, start) => match dollar(rest) {
                Some(length) => (Kind::Dollar, length),
                None => (Kind::Code(first), Some(1)),
            },
            other => (Kind::Code(other), Some(other.len_utf8())),
        }
    };
    Some(Segment { kind, start, end: length.map_or(text.len(), |length| start + length), closed: length.is_some() })
}

fn continues_word(text: &str, at: usize) -> bool {
    text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// Whether the quote at `at` is that of `E'...'`.
fn is_escaped(text: &str, at: usize) -> bool {
    text[..at].ends_with(['e', 'E']) && !continues_word(text, at - 1)
}

/// Length of a text with backslash escapes that starts `rest`.
fn escaped(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '\'' if chars.peek().is_some_and(|(_, next)| *next == '\'') => drop(chars.next()),
            '\'' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// Length of a quoted part that starts `rest`; a doubled quote stands for itself.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            if chars.peek().is_some_and(|(_, next)| *next == quote) {
                chars.next();
            } else {
                return Some(at + 1);
            }
        }
    }
    None
}

fn block_comment(rest: &str) -> Option<usize> {
    let bytes = rest.as_bytes();
    let mut depth = 0_usize;
    let mut at = 0;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => at += 1,
        }
    }
    None
}

/// A dollar quote that starts `rest`: `Some(Some(length))` when closed, `Some(None)` when open,
/// `None` when this is no dollar quote (`$1` is a parameter).
fn dollar(rest: &str) -> Option<Option<usize>> {
    let tag_end = 1 + rest[1..].find('$')?;
    let tag = &rest[1..tag_end];
    let is_tag = !tag.starts_with(|c: char| c.is_ascii_digit()) && tag.chars().all(|c| c.is_alphanumeric() || c == '_');
    if !is_tag {
        return None;
    }
    let quote = &rest[..=tag_end];
    Some(rest[quote.len()..].find(quote).map(|at| quote.len() + at + quote.len()))
}
