//! What the copies print, merged line by line, and what this command says itself.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::merge::{is_capture, make_spool};

/// The most of a line that is held until its end comes. Longer ones keep the others waiting instead.
const LINE_MAX: usize = 1 << 20;

/// Which of a copy's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Our own standard output and standard error, one line at a time.
#[derive(Debug)]
pub(crate) struct Output {
    /// Standard output is taken by the merged capture: text goes to standard error.
    capture_on_stdout: bool,
    /// The line that shows the progress, rewritten in its place; none where that is not shown.
    progress: Mutex<Option<String>>,
}

/// What a stream's reader tells.
#[derive(Debug)]
pub(crate) enum Word {
    /// A capture comes, and there is nowhere to write it.
    CaptureUnasked,
    /// A capture came and was written there.
    Spooled(PathBuf),
    /// The stream has ended, or failed with an error.
    Ended(Option<io::Error>),
}

/// How a stream is read.
#[derive(Debug)]
pub(crate) struct Way {
    /// The copy.
    pub(crate) copy: usize,
    /// Which of its streams.
    pub(crate) stream: Stream,
    /// What comes before each line.
    pub(crate) prefix: String,
    /// Where a capture is written.
    pub(crate) spool: Option<PathBuf>,
}

impl Output {
    /// With a line of progress if `live` and standard error is a terminal.
    pub(crate) fn new(live: bool, capture_on_stdout: bool) -> Self {
        let live = live && io::stderr().is_terminal();
        Self {
            capture_on_stdout,
            progress: Mutex::new(live.then(String::new)),
        }
    }

    /// Whether progress is shown.
    pub(crate) fn is_live(&self) -> bool {
        self.lock().is_some()
    }

    /// Says something on standard error.
    pub(crate) fn say(&self, text: &str) {
        let mut progress = self.lock();
        for line in text.lines() {
            // Nobody is left to tell.
            let _ = self.write(&mut progress, Stream::Err, "fanpcap: ", line.as_bytes());
        }
    }

    /// Shows the progress in the place of what was shown before; nothing to clear it.
    pub(crate) fn show(&self, text: &str) {
        if let Some(shown) = self.lock().as_mut() {
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
            text.clone_into(shown);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes prefix, text and a newline.
    fn write(
        &self,
        progress: &mut MutexGuard<'_, Option<String>>,
        stream: Stream,
        prefix: &str,
        text: &[u8],
    ) -> io::Result<()> {
        let shown = progress.as_deref().filter(|shown| !shown.is_empty());
        if shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
        let line = [prefix.as_bytes(), text, b"\n"].concat();
        let result = self.put(stream, &line);
        if let Some(shown) = shown {
            let _ = write!(io::stderr(), "{shown}");
        }
        result
    }

    fn put(&self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        if stream == Stream::Err || self.capture_on_stdout {
            return io::stderr().write_all(bytes);
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        stdout.flush()
    }
}

/// Reads a stream of a copy to its end on a thread of its own: lines go to `output`, each whole, a
/// capture to its spool. `tell` learns what happens, the end last.
pub(crate) fn follow(
    output: &Arc<Output>,
    mut pipe: impl Read + Send + 'static,
    way: Way,
    tell: Sender<(usize, Word)>,
) {
    let output = Arc::clone(output);
    thread::spawn(move || {
        let result = read(&output, &mut pipe, &way, &tell);
        let copy = way.copy;
        // Closed first: a copy that goes on writing gets to know it as it would without us.
        drop(pipe);
        // The receiver is gone only when this command ends.
        let _ = tell.send((copy, Word::Ended(result.err())));
    });
}

fn read(
    output: &Output,
    pipe: &mut impl Read,
    way: &Way,
    tell: &Sender<(usize, Word)>,
) -> io::Result<()> {
    let mut held = Vec::new();
    if way.stream == Stream::Out {
        let capture = loop {
            match is_capture(&held) {
                Some(known) => break known,
                None if !more(pipe, &mut held, 4)? => break false,
                None => {}
            }
        };
        if capture {
            return spool(pipe, &held, way, tell);
        }
    }
    lines(output, pipe, way, held)
}

fn lines(output: &Output, pipe: &mut impl Read, way: &Way, mut held: Vec<u8>) -> io::Result<()> {
    let write = |progress: &mut MutexGuard<'_, Option<String>>, line: &[u8]| {
        output.write(progress, way.stream, &way.prefix, line)
    };
    loop {
        while let Some(end) = held.iter().position(|&byte| byte == b'\n') {
            let rest = held.split_off(end + 1);
            held.pop();
            write(&mut output.lock(), &held)?;
            held = rest;
        }
        if held.len() > LINE_MAX {
            held = long_line(output, pipe, way, &held)?;
            continue;
        }
        if !more(pipe, &mut held, CHUNK)? {
            break;
        }
    }
    if held.is_empty() {
        return Ok(());
    }
    // The last line had no end.
    write(&mut output.lock(), &held)
}

/// Writes a line as it comes, while nobody else writes; returns what came after it.
fn long_line(
    output: &Output,
    pipe: &mut impl Read,
    way: &Way,
    begin: &[u8],
) -> io::Result<Vec<u8>> {
    let _nobody_else = output.lock();
    output.put(way.stream, way.prefix.as_bytes())?;
    output.put(way.stream, begin)?;
    let mut held = Vec::new();
    loop {
        let ended = !more(pipe, &mut held, CHUNK)?;
        let end = held.iter().position(|&byte| byte == b'\n');
        let rest = end.map(|end| held.split_off(end + 1));
        output.put(way.stream, &held)?;
        held.clear();
        match rest {
            Some(rest) => return Ok(rest),
            None if ended => return output.put(way.stream, b"\n").map(|()| held),
            None => {}
        }
    }
}

fn spool(
    pipe: &mut impl Read,
    begin: &[u8],
    way: &Way,
    tell: &Sender<(usize, Word)>,
) -> io::Result<()> {
    let Some(path) = &way.spool else {
        let _ = tell.send((way.copy, Word::CaptureUnasked));
        return Ok(());
    };
    let _ = tell.send((way.copy, Word::Spooled(path.clone())));
    let mut file = BufWriter::new(make_spool(path)?);
    file.write_all(begin)?;
    io::copy(pipe, &mut file)?;
    file.flush()
}

/// Reads more, at most `len` bytes; false at the end.
fn more(pipe: &mut impl Read, held: &mut Vec<u8>, len: usize) -> io::Result<bool> {
    let mut bytes = vec![0; len];
    loop {
        match pipe.read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(read) => {
                held.extend(&bytes[..read]);
                return Ok(true);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

const CHUNK: usize = 64 << 10;
