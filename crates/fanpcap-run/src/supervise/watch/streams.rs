//! Follows the copies' output, from the start of the copies until all output is written.

use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_linux::wait::events;
use fanpcap_merge as merge;

use super::Watch;
use crate::output::{self, Stream, Way, Word};

/// After the last copy's end, the command waits this long for silent processes that still have a
/// copy's output open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Interval of checks whether all output is written.
const PERIOD: Duration = Duration::from_millis(5);

impl Watch<'_> {
    /// Starts to read the output of a copy.
    pub(super) fn follow(
        &mut self,
        number: usize,
        stream: Stream,
        pipe: Option<impl Read + Send + 'static>,
    ) {
        let Some(pipe) = pipe else {
            return;
        };
        let (run, start) = (self.run, self.copies[number].starts);
        // With several copies, an error message is useless without the copy's number.
        let numbered = run.arguments.prefix || (stream == Stream::Err && self.copies.len() > 1);
        let merged = run
            .arguments
            .merge
            .as_deref()
            .filter(|_| stream == Stream::Out);
        let way = Way {
            copy: number,
            stream,
            prefix: if numbered {
                format!("{number}: ")
            } else {
                String::new()
            },
            spool: merged.map(|to| merge::spool(to, number, start)),
        };
        output::follow(run.output, pipe, way, &self.activity, self.tell.clone());
        self.streams += 1;
    }

    /// Handles the readers' events.
    pub(super) fn take_words(&mut self) {
        while let Ok((copy, word)) = self.told.try_recv() {
            self.take_word(copy, word);
        }
        let lost = self.run.output.abandon();
        if lost > 0 {
            self.say(&format!(
                "{lost} bytes that the copies printed are lost, because the output is not read"
            ));
        }
    }

    fn take_word(&mut self, copy: usize, word: Word) {
        match word {
            Word::Spooled(path) => self.copies[copy].spools.push(path),
            Word::CaptureUnasked => self.abort(format!(
                "copy {copy} writes a capture to standard output, where the captures of several copies would mix: --merge FILE merges them"
            )),
            Word::Cut => {
                if self.cut.insert(copy) {
                    self.say(&format!(
                        "copy {copy} prints lines of more than 1 MiB: they are cut"
                    ));
                }
            }
            Word::Ended(error) => {
                self.streams -= 1;
                // EPIPE is no error of the copy: the reader of our output has closed it.
                if let Some(error) = error.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
                    self.say(&format!("the output of copy {copy}: {error}"));
                }
            }
        }
    }

    /// Reads the output that the copies left in their streams, and waits until all is written.
    ///
    /// # Errors
    /// Signals can't be read.
    pub(super) fn last_words(&mut self) -> Result<()> {
        self.run.output.show("");
        let (mut reads, mut since) = (None, Instant::now());
        loop {
            self.take_words();
            if self.streams == 0 && self.run.output.is_written() {
                return Ok(());
            }
            // Count only time without output, not the time of our own writes.
            let (waiting, seen) = self.activity.seen();
            if waiting < self.streams || reads != Some(seen) || !self.run.output.is_written() {
                (reads, since) = (Some(seen), Instant::now());
            } else if since.elapsed() >= LAST_WORDS {
                self.say("a process left behind by a copy still has the copy's output open");
                return Ok(());
            }
            events::poll(&[self.signals.as_fd()], Some(PERIOD)).context("waiting for output")?;
            self.take_signals()?;
        }
    }
}
