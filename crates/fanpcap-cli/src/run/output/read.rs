//! Reads what copies print: lines, which are passed on whole, and captures, which are kept.

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use super::{Output, Stream};
use crate::run::merge::{is_capture, make_spool};

/// The most of a line that is held until its end comes. What is longer is cut.
const LINE_MAX: usize = 1 << 20;

const CHUNK: usize = 64 << 10;

/// What a stream's reader tells.
#[derive(Debug)]
pub(crate) enum Word {
    /// A capture comes, and there is nowhere to write it.
    CaptureUnasked,
    /// A capture came and was written there.
    Spooled(PathBuf),
    /// A line was too long and was cut.
    Cut,
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

/// What the readers of all streams do.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    waiting: AtomicUsize,
    reads: AtomicU64,
}

impl Activity {
    /// How many wait for a copy to print something, and how often one of them has begun to.
    pub(crate) fn seen(&self) -> (usize, u64) {
        let waiting = self.waiting.load(Ordering::SeqCst);
        (waiting, self.reads.load(Ordering::SeqCst))
    }
}

/// A pipe whose reads are told.
struct Watched<R> {
    pipe: R,
    activity: Arc<Activity>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.activity.reads.fetch_add(1, Ordering::SeqCst);
        self.activity.waiting.fetch_add(1, Ordering::SeqCst);
        let result = self.pipe.read(bytes);
        self.activity.waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

/// Reads a stream of a copy to its end on a thread of its own: lines go to `output`, each whole, a
/// capture to its spool. `tell` learns what happens, the end last.
pub(crate) fn follow(
    output: &Arc<Output>,
    pipe: impl Read + Send + 'static,
    way: Way,
    activity: &Arc<Activity>,
    tell: Sender<(usize, Word)>,
) {
    let output = Arc::clone(output);
    let activity = Arc::clone(activity);
    thread::spawn(move || {
        let mut pipe = Watched { pipe, activity };
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
    lines(output, pipe, way, held, tell)
}

fn lines(
    output: &Output,
    pipe: &mut impl Read,
    way: &Way,
    mut held: Vec<u8>,
    tell: &Sender<(usize, Word)>,
) -> io::Result<()> {
    let mut seen = 0;
    loop {
        if let Some(len) = whole(&held, seen) {
            let rest = held.split_off(len);
            output.pass(way.stream, prefixed(&way.prefix, held))?;
            held = rest;
        } else if held.len() >= LINE_MAX {
            let rest = held.split_off(LINE_MAX);
            held.push(b'\n');
            output.pass(way.stream, prefixed(&way.prefix, held))?;
            held = rest;
            let _ = tell.send((way.copy, Word::Cut));
        }
        seen = held.len();
        if !more(pipe, &mut held, CHUNK)? {
            break;
        }
    }
    if held.is_empty() {
        return Ok(());
    }
    // The last line had no end.
    held.push(b'\n');
    output.pass(way.stream, prefixed(&way.prefix, held))
}

/// How much of what is held can be written: up to the last newline, else up to the last carriage
/// return, with which programs show their progress. Before `seen` there is neither, but for a
/// return at its very end.
fn whole(held: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(1);
    let new = held.get(from..)?;
    let newline = new.iter().rposition(|&byte| byte == b'\n');
    // A return at the end may be half of a line's end.
    let before_last = new.split_last().map_or(new, |(_, before)| before);
    let last = newline.or_else(|| before_last.iter().rposition(|&byte| byte == b'\r'));
    last.map(|at| from + at + 1)
}

/// The same with the prefix before each line.
fn prefixed(prefix: &str, text: Vec<u8>) -> Vec<u8> {
    if prefix.is_empty() {
        return text;
    }
    let mut whole = Vec::with_capacity(text.len() + text.len() / 8 + prefix.len());
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        whole.extend_from_slice(prefix.as_bytes());
        whole.extend_from_slice(line);
    }
    whole
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
    let before = held.len();
    held.resize(before + len, 0);
    let result = loop {
        match pipe.read(&mut held[before..]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => break result,
        }
    };
    held.truncate(before + result.as_ref().copied().unwrap_or(0));
    result.map(|read| read > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_and_returns_are_ends_where_nothing_else_is() {
        for (text, seen, len) in [
            ("", 0, None),
            ("half", 0, None),
            ("one\nhalf", 0, Some(4)),
            ("one\ntwo\n", 0, Some(8)),
            ("10%\r", 0, None),
            ("10%\r20%", 4, Some(4)),
            ("10%\r20%\r", 0, Some(4)),
            ("dos\r\nhalf\r", 4, Some(5)),
        ] {
            assert_eq!(whole(text.as_bytes(), seen), len, "{text:?}");
        }
        assert_eq!(prefixed("1: ", b"a\rb\nc".to_vec()), b"1: a\rb\n1: c");
    }
}
