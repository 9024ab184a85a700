//! Looks after the copies from their start to the end of the last one.

mod ends;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_linux::child::{self, SIGCHLD, SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1, SIGUSR2};
use fanpcap_linux::events::{self, Arrived, Signals};
use ratatui::crossterm::terminal;

use super::{Run, Supervised};
use crate::run::copy::Copy;
use crate::run::group;
use crate::run::guard::Guard;
use crate::run::ledger::{Account, Ledger};
use crate::run::merge;
use crate::run::output::{self, Stream, Way, Word};
use crate::run::progress::Progress;

/// How often members are looked for and read; and while a copy is young, so that it is known early.
const PERIOD: Duration = Duration::from_millis(200);
const PERIOD_YOUNG: Duration = Duration::from_millis(20);

/// The same while a member leaves, whose place in the group is to be freed.
const PERIOD_PRESSED: Duration = Duration::from_millis(2);

/// A copy that has no page when it is so old is looked at.
const YOUNG: Duration = Duration::from_secs(3);

/// An interrupt that comes so long after the first one kills.
const PATIENCE: Duration = Duration::from_secs(2);

/// What has inherited a copy's output is awaited so long after the last copy has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The copies as they run.
pub(super) struct Watch<'a> {
    run: &'a Run<'a>,
    copies: Vec<Copy>,
    ledger: Ledger,
    progress: Progress,
    guard: Guard,
    signals: Signals,
    tell: Sender<(usize, Word)>,
    told: Receiver<(usize, Word)>,
    /// Streams that are open.
    streams: usize,
    /// When the copies were first told to end.
    stopped: Option<Instant>,
    /// Signals that were sent on.
    forwarded: BTreeMap<i32, Instant>,
    scanned: Option<Instant>,
    error: Option<String>,
    failure: Option<u8>,
    failure_when_told: Option<u8>,
}

impl<'a> Watch<'a> {
    /// The copies of `run`, none of which is started yet.
    ///
    /// # Errors
    /// When signals can't be taken, or the guard can't be started.
    pub(super) fn new(run: &'a Run<'a>, copies: Vec<Copy>) -> Result<Self> {
        let all = [SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2];
        let signals = Signals::take(&all).context("taking signals")?;
        let guard = Guard::start()?;
        let (tell, told) = mpsc::channel();
        Ok(Self {
            run,
            ledger: Ledger::new(run.group),
            progress: Progress::new(copies.len()),
            copies,
            guard,
            signals,
            tell,
            told,
            streams: 0,
            stopped: None,
            forwarded: BTreeMap::new(),
            scanned: None,
            error: None,
            failure: None,
            failure_when_told: None,
        })
    }

    /// Starts them and looks after them until the last one has ended for good.
    ///
    /// # Errors
    /// When they can't be started or looked after.
    pub(super) fn run(mut self) -> Result<Supervised> {
        for number in 0..self.copies.len() {
            if let Err(error) = self.start(number) {
                self.signal(SIGTERM);
                for pid in self.copies.iter().filter_map(Copy::pid) {
                    self.guard.forget(pid);
                }
                return Err(error);
            }
        }
        while !self.copies.iter().all(Copy::is_done) {
            self.wait()?;
            while let Some(signal) = self.signals.next().context("reading signals")? {
                self.forward(signal);
            }
            self.ledger.settle(false);
            self.take_words();
            self.scan();
            self.reap()?;
            self.start_again();
            self.question();
            self.show();
        }
        self.ledger.close();
        self.complain();
        self.last_words();
        self.run.output.show("");
        Ok(Supervised {
            accounts: self.accounts(),
            copies: self.copies,
            error: self.error,
            failure: self.failure,
            failure_when_told: self.failure_when_told,
        })
    }

    fn wait(&self) -> Result<()> {
        let mut fds = vec![self.signals.as_fd()];
        fds.extend(self.ledger.fd());
        let pressed = self.ledger.is_pressed().then_some(PERIOD_PRESSED);
        events::poll(&fds, Some(pressed.unwrap_or_else(|| self.period())))
            .context("waiting for the copies")?;
        Ok(())
    }

    fn period(&self) -> Duration {
        let young = |copy: &Copy| {
            copy.pid().is_some() && copy.age() < YOUNG && !self.ledger.has_members(copy.number)
        };
        if self.copies.iter().any(young) {
            PERIOD_YOUNG
        } else {
            PERIOD
        }
    }

    fn start(&mut self, number: usize) -> Result<()> {
        let run = self.run;
        let copies = self.copies.len();
        let copy = &mut self.copies[number];
        copy.members_before = self.ledger.members(number);
        let child = copy.start(run.command, |command| {
            group::lead(command, run.library, run.group, run.mode);
        })?;
        let (pid, out, err) = (child.id(), child.stdout.take(), child.stderr.take());
        self.guard.watch(pid);
        let prefix = |wanted: bool| {
            if wanted {
                format!("{number}: ")
            } else {
                String::new()
            }
        };
        let way = |stream, prefix| Way {
            copy: number,
            stream,
            prefix,
            spool: None,
        };
        if let Some(pipe) = out {
            let spool = run.merge.map(|to| merge::spool(to, number, copy.starts));
            let way = Way {
                spool,
                ..way(Stream::Out, prefix(run.prefix))
            };
            output::follow(run.output, pipe, way, self.tell.clone());
            self.streams += 1;
        }
        if let Some(pipe) = err {
            // What several copies complain of is of no use without a number.
            let way = way(Stream::Err, prefix(run.prefix || copies > 1));
            output::follow(run.output, pipe, way, self.tell.clone());
            self.streams += 1;
        }
        Ok(())
    }

    /// Sends a signal on to the copies.
    fn forward(&mut self, arrived: Arrived) {
        let Arrived {
            signal,
            from_kernel,
        } = arrived;
        if signal == SIGCHLD {
            return;
        }
        let again = self
            .stopped
            .is_some_and(|stopped| stopped.elapsed() >= PATIENCE);
        if again && [SIGINT, SIGTERM].contains(&signal) {
            self.run.output.say("killing the copies");
            self.signal(SIGKILL);
            return;
        }
        // A hangup is the terminal's end when the kernel sends it; else programs take it as they like.
        if [SIGINT, SIGTERM].contains(&signal) || (signal == SIGHUP && from_kernel) {
            self.stop();
        }
        self.forwarded.insert(signal, Instant::now());
        self.signal(signal);
    }

    /// From here on no copy is started.
    fn stop(&mut self) {
        self.stopped.get_or_insert_with(Instant::now);
        for copy in &mut self.copies {
            if copy.pid().is_none() {
                copy.stay_down();
            }
        }
    }

    fn signal(&self, signal: i32) {
        for pid in self.copies.iter().filter_map(Copy::pid) {
            if let Err(error) = child::signal_group(pid, signal) {
                self.run
                    .output
                    .say(&format!("signal {signal} to process {pid}: {error}"));
            }
        }
    }

    /// Ends everything, as it makes no sense to go on.
    fn abort(&mut self, error: String) {
        if self.error.is_none() {
            self.error = Some(error);
            self.stop();
            self.signal(SIGTERM);
        }
    }

    fn take_words(&mut self) {
        while let Ok((copy, word)) = self.told.try_recv() {
            self.take_word(copy, word);
        }
    }

    fn take_word(&mut self, copy: usize, word: Word) {
        match word {
            Word::Spooled(path) => self.copies[copy].spools.push(path),
            Word::CaptureUnasked => self.abort(format!(
                "copy {copy} writes a capture to standard output, where several would mix: --merge FILE merges them"
            )),
            Word::Ended(error) => {
                self.streams -= 1;
                // Whoever reads our output may have enough of it.
                if let Some(error) = error.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
                    self.run.output.say(&format!("the output of copy {copy}: {error}"));
                }
            }
        }
    }

    /// Takes in what streams still have that the copies have left.
    fn last_words(&mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        while self.streams > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.told.recv_timeout(left) {
                Ok((copy, word)) => self.take_word(copy, word),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.run
                        .output
                        .say("a process that a copy has left behind keeps its output open");
                    break;
                }
            }
        }
    }

    fn scan(&mut self) {
        let period = self.period();
        let early = self
            .scanned
            .is_some_and(|scanned| scanned.elapsed() < period);
        if early && !self.ledger.has_news() {
            return;
        }
        self.scanned = Some(Instant::now());
        let running = self
            .copies
            .iter()
            .filter_map(|copy| Some((copy.pid()?, copy.number)));
        let running: Vec<(u32, usize)> = running.collect();
        self.ledger.scan(&running);
        self.complain();
    }

    fn complain(&mut self) {
        while let Some(complaint) = self.ledger.take_complaint() {
            self.run.output.say(&complaint);
        }
    }

    fn accounts(&self) -> Vec<Account> {
        self.copies
            .iter()
            .map(|copy| self.ledger.account(copy.number))
            .collect()
    }

    fn show(&mut self) {
        if !self.run.output.is_live() {
            return;
        }
        let accounts = self.accounts();
        // Some terminals say 0.
        let width = terminal::size().map_or(0, |(columns, _)| usize::from(columns));
        let width = if width == 0 { 80 } else { width };
        if let Some(line) = self.progress.line(&accounts, width) {
            self.run.output.show(&line);
        }
    }
}
