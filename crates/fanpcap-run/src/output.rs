//! The copies' output, merged line by line, and this command's own messages.

mod queue;
mod read;

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use queue::{Files, Queue};
pub(crate) use read::{Activity, Way, Word, follow};

/// When the command ends, it stops waiting for a reader of its output that reads nothing for this
/// time.
const STALL: Duration = Duration::from_secs(1);

/// This limit replaces [`STALL`] after a second interrupt. Text that can be written immediately,
/// such as the summary, is still written.
const STALL_AT_LAST: Duration = Duration::from_millis(200);

/// Interval of checks whether all output is written.
const PERIOD: Duration = Duration::from_millis(5);

/// A stream of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Our standard output and standard error. If the reader of one of these streams is slow, a copy
/// that prints must wait, but the messages of this command do not.
#[derive(Debug)]
pub(crate) struct Output {
    /// The last line of the terminal shows the progress.
    pub(crate) live: bool,
    /// Standard error is a terminal.
    pub(crate) is_terminal: bool,
    /// Standard output. It is the same queue as `err` if both streams are one file, so that the
    /// progress line and the copies' lines do not mix.
    out: Arc<Queue>,
    err: Arc<Queue>,
    /// The command is ending: it does not wait for a reader that has stopped reading.
    hurried: AtomicBool,
    /// The command got two signals to end.
    given_up: AtomicBool,
}

impl Output {
    /// Shows a progress line if `live` and standard error is a terminal. If the merged capture goes
    /// to standard output, all text goes to standard error.
    ///
    /// # Errors
    /// A descriptor can't be duplicated or a thread can't be started.
    pub(crate) fn new(live: bool, capture_on_stdout: bool) -> Result<Self> {
        let duplicate = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map(File::from);
        let files = || -> io::Result<Files> {
            let out = if capture_on_stdout {
                duplicate(&io::stderr())?
            } else {
                duplicate(&io::stdout())?
            };
            let err = duplicate(&io::stderr())?;
            Ok(Files { out, err })
        };
        let start = || Queue::start(files()?).context("a thread that writes the output");
        let err = start()?;
        let out = if capture_on_stdout || is_one_file() {
            Arc::clone(&err)
        } else {
            start()?
        };
        let is_terminal = io::stderr().is_terminal();
        Ok(Self {
            live: live && is_terminal,
            is_terminal,
            out,
            err,
            hurried: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
        })
    }

    /// Prints a message on standard error, without waiting.
    pub(crate) fn say(&self, text: &str) {
        let lines = text.lines().map(|line| format!("fanpcap: {line}\n"));
        self.err.say(lines.collect::<String>().into_bytes());
    }

    /// Replaces the progress line, without waiting; an empty text clears it.
    pub(crate) fn show(&self, text: &str) {
        if self.live {
            self.err.show(text);
        }
    }

    /// Appends output of a copy to the queue of a stream; waits while the queue is full.
    ///
    /// # Errors
    /// This or an earlier write(2) failed.
    fn pass(&self, stream: Stream, bytes: Vec<u8>) -> io::Result<()> {
        match stream {
            Stream::Out => self.out.push(stream, bytes),
            Stream::Err => self.err.push(stream, bytes),
        }
    }

    /// From now on, does not wait for readers that have read nothing for [`STALL`].
    pub(crate) fn hurry(&self) {
        self.hurried.store(true, Ordering::Relaxed);
    }

    /// From now on, does not wait for readers that have read nothing for [`STALL_AT_LAST`].
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Whether all output is written or discarded.
    pub(crate) fn is_written(&self) -> bool {
        self.out.is_empty() && self.err.is_empty()
    }

    /// Discards output that no reader reads in time, so that copies that print get an error.
    /// Returns how many bytes of the copies' output were lost.
    pub(crate) fn abandon(&self) -> usize {
        let limit = if self.given_up.load(Ordering::Relaxed) {
            STALL_AT_LAST
        } else if self.hurried.load(Ordering::Relaxed) {
            STALL
        } else {
            return 0;
        };
        let is_stuck = |queue: &Queue| queue.stalled() >= limit;
        let queues = [&self.out, &self.err].into_iter();
        queues
            .filter(|queue| is_stuck(queue))
            .map(|queue| queue.abandon())
            .sum()
    }

    /// Waits until all output is written.
    pub(crate) fn close(&self) {
        while !self.is_written() {
            self.abandon();
            std::thread::sleep(PERIOD);
        }
    }
}

/// Whether standard output and standard error lead to the same file, pipe or terminal.
fn is_one_file() -> bool {
    let file = |fd: u8| {
        let file = fs::metadata(format!("/proc/self/fd/{fd}")).ok()?;
        Some((file.dev(), file.ino()))
    };
    file(1).is_some_and(|out| file(2) == Some(out))
}
