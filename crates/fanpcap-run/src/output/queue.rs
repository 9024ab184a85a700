//! The queue of one of our own output streams, and the thread that writes it. No thread holds the
//! lock during a write, so that a slow reader of the stream does not block this command's messages.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_linux::process::signal::Blocked;

use super::Stream;

/// Limit for the bytes of copies' output in the queue. Above it, the copies wait.
const PASSED_MAX: usize = 1 << 20;

/// Limit for the bytes of this command's messages in the queue. Further messages are only counted.
const SAID_MAX: usize = 256 << 10;

/// Pause before the next write to a descriptor that can take no more bytes and that another process
/// has made non-blocking.
const FULL: Duration = Duration::from_millis(10);

/// Where the queue writes.
#[derive(Debug)]
pub(super) struct Files {
    /// For the copies' standard output.
    pub(super) out: File,
    /// For the copies' standard error, messages, and the progress line.
    pub(super) err: File,
}

#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Entry>,
    /// Bytes of the copies' output in the queue, and bytes of this command's messages.
    passed: usize,
    said: usize,
    /// Number of messages dropped for lack of room.
    unsaid: u64,
    /// The progress line to show, and the line that is shown now.
    progress: String,
    shown: String,
    /// Bytes of a copy's output that are being written.
    in_flight: usize,
    /// A write is in progress.
    writing: bool,
    /// Time of the last successful write(2). If the queue was empty after that, the time when it
    /// got the next entry.
    moved: Option<Instant>,
    failed: Option<Failure>,
}

#[derive(Debug)]
struct Entry {
    stream: Stream,
    bytes: Vec<u8>,
    is_said: bool,
}

/// The error of a write. Every later [`Queue::push`] returns the error.
#[derive(Clone, Copy, Debug)]
struct Failure {
    number: Option<i32>,
    kind: ErrorKind,
}

enum Job {
    Entry(Entry),
    Progress(String),
}

impl Queue {
    /// Starts an empty queue and its thread, which blocks all signals.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(super) fn start(files: Files) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&queue);
        let _blocked = Blocked::new();
        thread::Builder::new().spawn(move || of_thread.serve(&files))?;
        Ok(queue)
    }

    /// Appends output of a copy; waits while the queue is full.
    ///
    /// # Errors
    /// A write has failed.
    pub(super) fn push(&self, stream: Stream, bytes: Vec<u8>) -> io::Result<()> {
        let mut state = self.lock();
        while state.passed >= PASSED_MAX && state.failed.is_none() {
            state = self.wait(state);
        }
        if let Some(Failure { number, kind }) = state.failed {
            return Err(number.map_or_else(|| kind.into(), io::Error::from_raw_os_error));
        }
        state.passed += bytes.len();
        state.append(stream, bytes, false);
        self.changed.notify_all();
        Ok(())
    }

    /// Appends a message for standard error, without waiting. If the queue is full, the message is
    /// only counted.
    pub(super) fn say(&self, bytes: Vec<u8>) {
        let mut state = self.lock();
        if state.said >= SAID_MAX {
            state.unsaid += 1;
        } else if state.failed.is_none() {
            state.said += bytes.len();
            state.append(Stream::Err, bytes, true);
            self.changed.notify_all();
        }
    }

    /// Sets the progress line, which is shown when the queue is empty.
    pub(super) fn show(&self, text: &str) {
        text.clone_into(&mut self.lock().progress);
        self.changed.notify_all();
    }

    /// Whether all output is written or discarded.
    pub(super) fn is_empty(&self) -> bool {
        let state = self.lock();
        state.failed.is_some() || (!state.is_busy() && state.progress == state.shown)
    }

    /// How long no byte has been written although output waits; 0 if no output waits.
    pub(super) fn stalled(&self) -> Duration {
        let state = self.lock();
        let is_waiting = state.failed.is_none() && state.is_busy();
        let moved = state.moved.filter(|_| is_waiting);
        moved.map_or(Duration::ZERO, |moved| moved.elapsed())
    }

    /// Discards the output that is not written yet, as if the reader had closed the stream. Returns
    /// how many bytes of the copies' output were lost.
    pub(super) fn abandon(&self) -> usize {
        let (lost, busy) = {
            let state = self.lock();
            let lost = state.passed + state.in_flight;
            (lost, state.failed.is_none() && state.is_busy())
        };
        if busy {
            self.fail(&ErrorKind::BrokenPipe.into());
        }
        lost
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, files: &Files) {
        loop {
            let result = match self.next() {
                Job::Entry(entry) => self.write_entry(files, &entry),
                Job::Progress(text) => {
                    let result = self.write(&files.err, format!("\r{text}\x1b[K").as_bytes());
                    self.lock().shown = text;
                    result
                }
            };
            if let Err(error) = result {
                self.fail(&error);
                return;
            }
            let mut state = self.lock();
            (state.writing, state.in_flight) = (false, 0);
        }
    }

    fn next(&self) -> Job {
        let mut state = self.lock();
        loop {
            if let Some(entry) = state.entries.pop_front() {
                if entry.is_said {
                    state.said -= entry.bytes.len();
                } else {
                    state.passed -= entry.bytes.len();
                    state.in_flight = entry.bytes.len();
                }
                state.writing = true;
                self.changed.notify_all();
                return Job::Entry(entry);
            }
            if state.unsaid > 0 {
                let unsaid = std::mem::take(&mut state.unsaid);
                let text =
                    format!("fanpcap: {unsaid} messages are lost: standard error was not read\n");
                state.said += text.len();
                state.append(Stream::Err, text.into_bytes(), true);
            } else if state.progress == state.shown {
                state = self.wait(state);
            } else {
                state.writing = true;
                state.moved.get_or_insert_with(Instant::now);
                return Job::Progress(state.progress.clone());
            }
        }
    }

    fn write_entry(&self, files: &Files, entry: &Entry) -> io::Result<()> {
        let shown = std::mem::take(&mut self.lock().shown);
        if !shown.is_empty() {
            self.write(&files.err, b"\r\x1b[K")?;
        }
        let file = match entry.stream {
            Stream::Out => &files.out,
            Stream::Err => &files.err,
        };
        self.write(file, &entry.bytes)
    }

    fn write(&self, mut file: &File, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    bytes = &bytes[written..];
                    self.lock().moved = Some(Instant::now());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(FULL),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn fail(&self, error: &io::Error) {
        let mut state = self.lock();
        state.failed = Some(Failure {
            number: error.raw_os_error(),
            kind: error.kind(),
        });
        state.entries.clear();
        (state.passed, state.said, state.in_flight) = (0, 0, 0);
        self.changed.notify_all();
    }
}

impl State {
    fn append(&mut self, stream: Stream, bytes: Vec<u8>, is_said: bool) {
        if !self.is_busy() {
            self.moved = Some(Instant::now());
        }
        self.entries.push_back(Entry {
            stream,
            bytes,
            is_said,
        });
    }

    fn is_busy(&self) -> bool {
        self.writing || !self.entries.is_empty()
    }
}
