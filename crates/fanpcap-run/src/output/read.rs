//! Reads the copies' output: passes on whole lines, and keeps captures.

use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use super::{Output, Stream};
use fanpcap_merge::{is_capture, make_spool};

/// Length in bytes of the longest line that is kept whole. Longer lines are cut.
const LINE_MAX: usize = 1 << 20;

const CHUNK: usize = 64 << 10;

/// Events of a stream's reader.
#[derive(Debug)]
pub(crate) enum Word {
    /// A capture arrived, but [`Way::spool`] names no file for it.
    CaptureUnasked,
    /// A capture arrived and was written to this spool.
    Spooled(PathBuf),
    /// A line was too long and was cut.
    Cut,
    Ended(Option<io::Error>),
}

/// How to read a stream.
#[derive(Debug)]
pub(crate) struct Way {
    /// The copy's number.
    pub(crate) copy: usize,
    /// Which of the copy's streams to read.
    pub(crate) stream: Stream,
    /// Text before each line.
    pub(crate) prefix: String,
    /// Path of the file that a capture is written to.
    pub(crate) spool: Option<PathBuf>,
}

/// Activity of the readers of all streams.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    waiting: AtomicUsize,
    reads: AtomicU64,
}

impl Activity {
    /// How many readers wait for output of their copy, and how often a reader has started to wait.
    pub(crate) fn seen(&self) -> (usize, u64) {
        let waiting = self.waiting.load(Ordering::SeqCst);
        (waiting, self.reads.load(Ordering::SeqCst))
    }
}

/// A pipe that counts the waits of its reader.
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

/// Reads a stream of a copy to its end, on its own thread. Sends whole lines to `output`, and
/// writes a capture to its spool. `tell` gets the events; the last event is the stream's end.
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
        // Close the pipe first: a copy that continues to write gets EPIPE, as it would without this
        // command.
        drop(pipe);
        // Sending fails only when this command ends and has dropped the receiver.
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
    // The last line had no newline.
    held.push(b'\n');
    output.pass(way.stream, prefixed(&way.prefix, held))
}

/// Length of the part of `held` that can be written now. The part ends at the last newline. If
/// `held` has no newline, the part ends at the last carriage return, which ends a progress line.
/// The bytes before `seen` contain neither of the two characters, except perhaps a carriage return
/// at their end.
fn whole(held: &[u8], seen: usize) -> Option<usize> {
    let from = seen.saturating_sub(1);
    let new = held.get(from..)?;
    let newline = new.iter().rposition(|&byte| byte == b'\n');
    // A carriage return at the end may be the first half of a CRLF, so it ends no part yet.
    let before_last = new.split_last().map_or(new, |(_, before)| before);
    let last = newline.or_else(|| before_last.iter().rposition(|&byte| byte == b'\r'));
    last.map(|at| from + at + 1)
}

/// The text with the prefix before each line. Carriage returns become newlines: otherwise the
/// copies would overwrite each other's progress lines.
fn prefixed(prefix: &str, text: Vec<u8>) -> Vec<u8> {
    if prefix.is_empty() {
        return text;
    }
    let mut whole = Vec::with_capacity(text.len() + text.len() / 8 + prefix.len());
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_one = !line.contains(&b'\r');
        let parts = line.split(|&byte| byte == b'\r');
        for part in parts.filter(|part| is_one || !part.is_empty()) {
            whole.extend_from_slice(prefix.as_bytes());
            whole.extend_from_slice(part);
            whole.push(b'\n');
        }
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

/// Reads at most `len` more bytes; false at the end of the stream.
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
    }

    #[test]
    fn progress_lines_do_not_run_into_those_of_other_copies() {
        for (text, whole) in [
            ("a\rb\nc\n", "1: a\n1: b\n1: c\n"),
            ("Packets: 18 \r", "1: Packets: 18 \n"),
            (
                "\rPackets: 18 \rPackets: 19 \n",
                "1: Packets: 18 \n1: Packets: 19 \n",
            ),
            ("dos\r\n\nlast\n", "1: dos\n1: \n1: last\n"),
        ] {
            let found = prefixed("1: ", text.into());
            assert_eq!(String::from_utf8(found).unwrap(), whole);
        }
        assert_eq!(prefixed("", b"10%\r".to_vec()), b"10%\r");
    }
}
