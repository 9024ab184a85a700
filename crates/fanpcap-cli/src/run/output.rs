//! What the copies print, merged line by line, and what this command says itself.

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

/// Whoever reads our output and takes nothing for so long is not awaited when the command is to
/// end.
const STALL: Duration = Duration::from_secs(1);

/// The same after a second interrupt. What can be written at once, such as the summary, still is.
const STALL_AT_LAST: Duration = Duration::from_millis(200);

/// How often it is looked at whether all is written.
const PERIOD: Duration = Duration::from_millis(5);

/// Which of a copy's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Our own standard output and standard error. Copies wait for whoever reads them; this command
/// does not.
#[derive(Debug)]
pub(crate) struct Output {
    /// There is a line that shows the progress.
    live: bool,
    /// Standard error is a terminal.
    is_terminal: bool,
    /// Standard output; the same as `err` where both are one file, so that progress and lines keep
    /// apart.
    out: Arc<Queue>,
    err: Arc<Queue>,
    /// The command is to end: nobody who has stopped reading is awaited.
    hurried: AtomicBool,
    /// It has been told so twice.
    given_up: AtomicBool,
}

impl Output {
    /// With a line of progress if `live` and standard error is a terminal. Where the merged capture
    /// takes standard output, text goes to standard error.
    ///
    /// # Errors
    /// When a descriptor can't be duplicated or a thread not started.
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

    /// Whether progress is shown.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Whether standard error is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Says something on standard error. Does not wait.
    pub(crate) fn say(&self, text: &str) {
        let lines = text.lines().map(|line| format!("fanpcap: {line}\n"));
        self.err.say(lines.collect::<String>().into_bytes());
    }

    /// Shows the progress in the place of what was shown before; nothing to clear it. Does not
    /// wait.
    pub(crate) fn show(&self, text: &str) {
        if self.live {
            self.err.show(text);
        }
    }

    /// Writes what a copy has printed, when its turn comes.
    ///
    /// # Errors
    /// What write(2) has said, now or before.
    fn pass(&self, stream: Stream, bytes: Vec<u8>) -> io::Result<()> {
        match stream {
            Stream::Out => self.out.push(stream, bytes),
            Stream::Err => self.err.push(stream, bytes),
        }
    }

    /// From here on whoever has stopped reading is not awaited.
    pub(crate) fn hurry(&self) {
        self.hurried.store(true, Ordering::Relaxed);
    }

    /// From here on hardly anybody is awaited.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Whether all is written that was passed, as far as it ever will be.
    pub(crate) fn is_written(&self) -> bool {
        self.out.is_empty() && self.err.is_empty()
    }

    /// Gives up what nobody takes and what is not awaited, so that copies that print get to know
    /// that nobody reads. Tells how many bytes of theirs are lost.
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

    /// Waits until all is written.
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
