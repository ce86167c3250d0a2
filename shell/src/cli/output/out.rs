//! Where results go: standard output, or the file of `\o`.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::rc::Rc;

/// A place for results; clones are the same place.
#[derive(Clone)]
pub(crate) struct Out {
    to: Rc<RefCell<BufWriter<Box<dyn Write>>>>,
    file: Option<Rc<str>>,
}

impl Out {
    pub(crate) fn stdout() -> Self {
        Self { to: Rc::new(RefCell::new(BufWriter::new(Box::new(io::stdout())))), file: None }
    }

    /// A file, which is emptied.
    pub(crate) fn file(path: &str) -> io::Result<Self> {
        let file = File::create(path)?;
        Ok(Self { to: Rc::new(RefCell::new(BufWriter::new(Box::new(file)))), file: Some(path.into()) })
    }

    pub(crate) fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    /// Its name for messages.
    pub(crate) fn name(&self) -> &str {
        self.file.as_deref().unwrap_or("standard output")
    }

    pub(crate) fn write_text(&self, text: &str) -> io::Result<()> {
        let mut to = self.to.borrow_mut();
        to.write_all(text.as_bytes())?;
        to.flush()
    }

    pub(crate) fn flush_all(&self) -> io::Result<()> {
        self.to.borrow_mut().flush()
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_all()
    }
}
