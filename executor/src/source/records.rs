//! Cuts bytes into records without decoding them: a record is a line, or in CSV goes on over line
//! ends in quotes. Lines are counted, a byte order mark is left out, and no record grows beyond a
//! bound.

use std::io::{self, Read};
use std::sync::Arc;

use memchr::{memchr, memchr_iter, memrchr};

const BLOCK: usize = 256 << 10;

/// Whole records, and the bytes that they point into.
#[derive(Debug)]
pub(super) struct Block {
    bytes: Arc<Vec<u8>>,
    pub(super) records: Vec<Record>,
}

impl Block {
    /// What [`Record`]s point into.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Each record with its line end, and the line on which it starts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], u64)> {
        self.records.iter().map(|record| (&self.bytes[record.start..record.end], record.line))
    }
}

/// One record's place in [`Block::bytes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) start: usize,
    /// After the line end.
    pub(super) end: usize,
    /// Line on which it starts, from 1.
    pub(super) line: u64,
}

/// Why there is no next record where there should be one.
#[derive(Debug)]
pub(super) enum Broken {
    /// The file cannot be read.
    Io(io::Error),
    /// A record is longer than the bound.
    TooLong {
        /// Line on which it starts.
        line: u64,
        /// Whether a quote can be the reason.
        quotes: bool,
    },
    /// A quote that opens in the record of this line is never closed.
    OpenQuote(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote inside of quotes: the field's end, or a doubled quote.
    Quote,
}

/// What holds line ends together.
#[derive(Debug, Clone, Copy)]
struct Quoting {
    delimiter: u8,
    quote: u8,
}

impl Quoting {
    fn step(self, state: State, byte: u8) -> State {
        match state {
            State::Quoted if byte == self.quote => State::Quote,
            State::Quoted => State::Quoted,
            State::FieldStart | State::Quote if byte == self.quote => State::Quoted,
            _ if byte == self.delimiter => State::FieldStart,
            _ => State::Plain,
        }
    }
}

/// Reads records in blocks.
#[derive(Debug)]
pub(super) struct Records<R> {
    input: R,
    quoting: Option<Quoting>,
    max_record: usize,
    /// Blocks that were given out may still hold it: then the next bytes go to another one.
    buffer: Arc<Vec<u8>>,
    /// Buffers that nobody holds any more.
    spare: Vec<Vec<u8>>,
    /// Bytes of the buffer that have been given out.
    taken: usize,
    /// Where the buffer's first byte is in the input.
    base: u64,
    line: u64,
    /// The byte order mark has been looked for.
    started: bool,
    ended: bool,
    read: u64,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

impl<R: Read> Records<R> {
    /// Every line is a record.
    pub(super) fn lines(input: R, max_record: usize) -> Self {
        Self::new(input, None, max_record)
    }

    /// Quotes hold line ends together.
    pub(super) fn quoted(input: R, delimiter: u8, quote: u8, max_record: usize) -> Self {
        Self::new(input, Some(Quoting { delimiter, quote }), max_record)
    }

    fn new(input: R, quoting: Option<Quoting>, max_record: usize) -> Self {
        let (buffer, spare, taken, line) = (Arc::default(), Vec::new(), 0, 1);
        let (base, read) = (0, 0);
        Self { input, quoting, max_record, buffer, spare, taken, base, line, started: false, ended: false, read }
    }

    /// Where the next record begins in the input, or blank lines before it.
    pub(super) fn offset(&self) -> u64 {
        self.base + self.taken as u64
    }

    /// Passes over the records that begin before `offset`.
    pub(super) fn pass(&mut self, offset: u64) -> io::Result<()> {
        while self.offset() < offset {
            if !self.pass_lines(offset)? && !self.pass_records(offset)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Passes over lines that are whole, before `offset` and without quotes, if the next ones are.
    fn pass_lines(&mut self, offset: u64) -> io::Result<bool> {
        if self.buffer.len() - self.taken < BLOCK && !self.ended {
            self.fill()?;
        }
        let most = usize::try_from(offset - self.offset()).unwrap_or(usize::MAX);
        let waiting = &self.buffer[self.taken..];
        let waiting = &waiting[..most.min(waiting.len())];
        let quote = self.quoting.and_then(|quoting| memchr(quoting.quote, waiting)).unwrap_or(waiting.len());
        // The line before `offset` may end behind it: it is left to be looked at closely.
        let Some(last) = memrchr(b'\n', &waiting[..quote]) else { return Ok(false) };
        self.line += memchr_iter(b'\n', &waiting[..=last]).count() as u64;
        self.taken += last + 1;
        self.started = true;
        Ok(true)
    }

    /// Passes over a few records; false at the end, or before one that is broken, which is found again.
    fn pass_records(&mut self, offset: u64) -> io::Result<bool> {
        match self.next(64) {
            Ok(Some(block)) => {
                let base = self.base;
                let (last, line) = match block.records.iter().find(|record| base + record.start as u64 >= offset) {
                    Some(record) => (record.start, record.line),
                    None => (self.taken, self.line),
                };
                (self.taken, self.line) = (last, line);
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(Broken::Io(error)) => Err(error),
            Err(Broken::TooLong { .. } | Broken::OpenQuote(_)) => self.skip_line().map(|()| true),
        }
    }

    /// The records of a block that was given out last, as far as they begin before `offset`.
    pub(super) fn up_to(&self, mut block: Block, offset: u64) -> Option<Block> {
        block.records.retain(|record| self.base + (record.start as u64) < offset);
        (!block.records.is_empty()).then_some(block)
    }

    /// Bytes read from the input since the last call.
    pub(super) fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.read)
    }

    /// Up to `most` records. None at the end of the file.
    pub(super) fn next(&mut self, most: usize) -> Result<Option<Block>, Broken> {
        let records = self.cut(most)?;
        Ok((!records.is_empty()).then(|| Block { bytes: Arc::clone(&self.buffer), records }))
    }

    /// Takes back a block that has been read.
    pub(super) fn recycle(&mut self, block: Block) {
        self.spare.extend(Arc::into_inner(block.bytes));
    }

    fn cut(&mut self, most: usize) -> Result<Vec<Record>, Broken> {
        self.start().map_err(Broken::Io)?;
        loop {
            let mut records = Vec::new();
            let rest = match self.quoting {
                Some(quoting) => self.scan_quoted(quoting, most, &mut records),
                None => self.scan_lines(most, &mut records),
            };
            if let Some(long) = records.iter().position(|record| record.end - record.start > self.max_record) {
                // It is the next one, once those before it are given out.
                (self.taken, self.line) = (records[long].start, records[long].line);
                records.truncate(long);
                if records.is_empty() {
                    return Err(Broken::TooLong { line: self.line, quotes: self.quoting.is_some() });
                }
            }
            if !records.is_empty() {
                return Ok(records);
            }
            if self.buffer.len() - self.taken > self.max_record {
                return Err(Broken::TooLong { line: self.line, quotes: self.quoting.is_some() });
            }
            if self.ended {
                return self.last(rest);
            }
            self.fill().map_err(Broken::Io)?;
        }
    }

    /// Gives up the record that is broken: everything up to the end of its first line.
    pub(super) fn skip_line(&mut self) -> io::Result<()> {
        loop {
            if let Some(end) = self.buffer[self.taken..].iter().position(|byte| *byte == b'\n') {
                self.taken += end + 1;
                self.line += 1;
                return Ok(());
            }
            self.taken = self.buffer.len();
            if self.ended {
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// Leaves out a byte order mark.
    fn start(&mut self) -> io::Result<()> {
        if self.started {
            return Ok(());
        }
        while self.buffer.len() < BYTE_ORDER_MARK.len() && !self.ended {
            self.fill()?;
        }
        self.started = true;
        if self.buffer.starts_with(BYTE_ORDER_MARK) {
            self.taken = BYTE_ORDER_MARK.len();
        }
        Ok(())
    }

    /// Finds whole lines in what is buffered. Blank ones are no records.
    fn scan_lines(&mut self, most: usize, records: &mut Vec<Record>) -> State {
        while records.len() < most
            && let Some(length) = memchr(b'\n', &self.buffer[self.taken..])
        {
            let record = Record { start: self.taken, end: self.taken + length + 1, line: self.line };
            if !is_blank(&self.buffer[record.start..record.end]) {
                records.push(record);
            }
            self.taken = record.end;
            self.line += 1;
        }
        State::Plain
    }

    /// Finds whole records in what is buffered. Blank lines are no records. Returns the state at
    /// the end of the buffer.
    fn scan_quoted(&mut self, quoting: Quoting, most: usize, records: &mut Vec<Record>) -> State {
        let mut state = State::FieldStart;
        let mut start = self.taken;
        let mut first_line = self.line;
        let mut line = self.line;
        let mut at = start;
        let next_quote = |from: usize| memchr(quoting.quote, &self.buffer[from..]).map_or(usize::MAX, |i| from + i);
        let mut quote = next_quote(start);
        while at < self.buffer.len() && records.len() < most {
            if at == start {
                if quote < start {
                    quote = next_quote(start);
                }
                // Up to the next quote, a record is a line.
                match memchr(b'\n', &self.buffer[start..]).map(|length| start + length) {
                    Some(end) if end < quote => {
                        at = end;
                        state = State::Plain;
                    }
                    None if quote == usize::MAX => {
                        state = State::Plain;
                        break;
                    }
                    _ => {}
                }
            }
            let byte = self.buffer[at];
            at += 1;
            if byte == b'\n' {
                line += 1;
                if state != State::Quoted {
                    if !self.buffer[start..at].iter().all(|byte| matches!(byte, b'\n' | b'\r')) {
                        records.push(Record { start, end: at, line: first_line });
                    }
                    start = at;
                    first_line = line;
                    state = State::FieldStart;
                    continue;
                }
            }
            state = quoting.step(state, byte);
        }
        self.taken = start;
        self.line = first_line;
        state
    }

    /// The end of the file: a last record without a line end.
    fn last(&mut self, state: State) -> Result<Vec<Record>, Broken> {
        if self.taken == self.buffer.len() {
            return Ok(Vec::new());
        }
        if state == State::Quoted {
            return Err(Broken::OpenQuote(self.line));
        }
        Arc::make_mut(&mut self.buffer).push(b'\n');
        let record = Record { start: self.taken, end: self.buffer.len(), line: self.line };
        self.taken = self.buffer.len();
        self.line += 1;
        let blank = match self.quoting {
            Some(_) => self.buffer[record.start..].iter().all(|byte| matches!(byte, b'\n' | b'\r')),
            None => is_blank(&self.buffer[record.start..]),
        };
        Ok(if blank { Vec::new() } else { vec![record] })
    }

    fn fill(&mut self) -> io::Result<()> {
        self.base += self.taken as u64;
        match Arc::get_mut(&mut self.buffer) {
            Some(buffer) => drop(buffer.drain(..self.taken)),
            None => {
                let mut next = self.spare.pop().unwrap_or_default();
                next.clear();
                next.extend_from_slice(&self.buffer[self.taken..]);
                self.buffer = Arc::new(next);
            }
        }
        self.taken = 0;
        let buffer = Arc::make_mut(&mut self.buffer);
        let from = buffer.len();
        // A long record is scanned again after each fill: fills that double keep that linear.
        buffer.resize(from + BLOCK.max(from), 0);
        let count = loop {
            match self.input.read(&mut buffer[from..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        buffer.truncate(from + *count.as_ref().unwrap_or(&0));
        let count = count?;
        self.ended = count == 0;
        self.read += count as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The records that begin in a range of bytes, with their lines; a broken one is passed over.
    fn in_range(text: &str, range: std::ops::Range<u64>) -> Vec<(String, u64)> {
        let mut records = Records::quoted(text.as_bytes(), b',', b'"', 64);
        records.pass(range.start).unwrap();
        let mut all = Vec::new();
        while records.offset() < range.end {
            match records.next(3) {
                Ok(Some(block)) => {
                    let block = records.up_to(block, range.end);
                    let texts = block.iter().flat_map(Block::iter);
                    all.extend(texts.map(|(text, line)| (String::from_utf8_lossy(text).into_owned(), line)));
                }
                Ok(None) => break,
                Err(_) => records.skip_line().unwrap(),
            }
        }
        all
    }

    proptest::proptest! {
        #[test]
        fn every_record_is_of_one_range(
            pieces in proptest::collection::vec("[a-c]{0,3}|,|\"|\n|\r\n|\"\"|x{30}|\"[a\n,]{0,6}\"", 0..60),
            cuts in proptest::collection::vec(0_u64..200, 0..4),
        ) {
            let text = pieces.concat();
            let mut bounds: Vec<u64> = cuts.into_iter().chain([0, u64::MAX]).collect();
            bounds.sort_unstable();
            let parts = bounds.windows(2).flat_map(|bounds| in_range(&text, bounds[0]..bounds[1]));
            assert_eq!(parts.collect::<Vec<_>>(), in_range(&text, 0..u64::MAX));
        }
    }

    fn all(text: &str) -> Result<Vec<(String, u64)>, Broken> {
        let mut records = Records::quoted(text.as_bytes(), b',', b'"', 1 << 20);
        let mut all = Vec::new();
        while let Some(next) = records.next(2)? {
            all.extend(next.iter().map(|(text, line)| (String::from_utf8_lossy(text).trim_end().to_owned(), line)));
        }
        Ok(all)
    }

    fn next(records: &mut Records<&[u8]>) -> Vec<Record> {
        records.next(10).unwrap().unwrap().records
    }

    #[test]
    fn quotes_hold_line_ends_and_blank_lines_are_no_records() {
        let found = all("a,b\n\n\"x\ny\",\"q\"\"\n\"\r\nlast,5\" pipe\nend").unwrap();
        let expected = [("a,b", 1), ("\"x\ny\",\"q\"\"\n\"", 3), ("last,5\" pipe", 6), ("end", 7)];
        let found: Vec<_> = found.iter().map(|(text, line)| (text.as_str(), *line)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_open_quote_is_told_with_its_line_and_can_be_skipped() {
        let mut records = Records::quoted(&b"a\n\"b\nc\nd"[..], b',', b'"', 100);
        assert_eq!(next(&mut records).len(), 1);
        assert!(matches!(records.next(10), Err(Broken::OpenQuote(2))));
        records.skip_line().unwrap();
        assert_eq!(next(&mut records).len(), 1);
        assert_eq!(next(&mut records)[0].line, 4);
    }

    #[test]
    fn a_long_record_is_bounded() {
        let text = format!("a\n{}\nb\n", "x".repeat(3 << 20));
        let mut records = Records::quoted(text.as_bytes(), b',', b'"', 1 << 20);
        assert_eq!(next(&mut records).len(), 1);
        assert!(matches!(records.next(10), Err(Broken::TooLong { line: 2, .. })));
        records.skip_line().unwrap();
        let next = next(&mut records);
        assert_eq!((next.len(), next[0].line), (1, 3));
    }

    #[test]
    fn lines_know_no_quotes_and_a_byte_order_mark_is_no_part_of_them() {
        // One byte at a time, as a slow pipe gives them.
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                let length = self.0.len().min(1).min(to.len());
                to[..length].copy_from_slice(&self.0[..length]);
                self.0 = &self.0[length..];
                Ok(length)
            }
        }
        let text = b"\xef\xbb\xbf{\"a\": \"x}\n \t\r\n\n{}\r\nlast";
        let mut records = Records::lines(Slow(text), 100);
        let mut found = Vec::new();
        while let Some(next) = records.next(10).unwrap() {
            found.extend(next.iter().map(|(line, number)| (line.to_vec(), number)));
        }
        let expected: [(&[u8], u64); 3] = [(b"{\"a\": \"x}\n", 1), (b"{}\r\n", 4), (b"last\n", 5)];
        assert_eq!(found, expected.map(|(line, number)| (line.to_vec(), number)));
    }
}
