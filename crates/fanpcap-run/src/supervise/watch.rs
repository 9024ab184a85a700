//! Supervises the copies from the first start to the last end.

mod ends;
mod joins;
mod last_packets;
mod signals;
mod streams;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::process;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::terminal;
use fanpcap_group::founder::Founder;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::monitor::LinkMonitor;
use fanpcap_linux::process::child;
use fanpcap_linux::wait::clock;
use fanpcap_linux::wait::events::{self, Signals};
use fanpcap_snapshot::HostUse;

use super::{Failures, Run, Supervised};
use crate::copy::Copy;
use crate::founding::{self, Attending};
use crate::group;
use crate::guard::Guard;
use crate::ledger::{Account, Book, Ledger, PolledLedger};
use crate::orphans::Orphans;
use crate::output::{Activity, Stream, Word};
use crate::progress::Progress;
use joins::Outsiders;
use last_packets::LastPackets;
use turns::Turns;

/// Interval of searches for members and of readings of their counters. The interval is shorter
/// while a copy is younger than [`YOUNG`] and has no member, so that the member is found early.
const PERIOD: Duration = Duration::from_millis(200);
const PERIOD_YOUNG: Duration = Duration::from_millis(20);

/// Interval while the start of the next copy waits until the copy before it has its share.
const PERIOD_TURN: Duration = Duration::from_millis(5);

/// Interval while a member leaves: the member's place in the group becomes free only when this
/// process, too, has closed the member's socket.
const PERIOD_PRESSED: Duration = Duration::from_millis(2);

/// Age of a copy without a member page at which this command looks for the reason.
const YOUNG: Duration = Duration::from_secs(3);

/// The copies, and what is needed to supervise them.
pub(super) struct Watch<'a> {
    run: &'a Run<'a>,
    /// A name that no other `fanpcap run` has. The copies' member names begin with it.
    name: String,
    copies: Vec<Copy>,
    ledger: Box<dyn Book>,
    /// Answers newcomers of a group that this command has founded.
    attending: Option<Attending>,
    progress: Progress,
    orphans: Orphans,
    guard: Guard,
    signals: Signals,
    /// Notifications of devices. Without them, a copy that waits for a device is started later.
    links: Option<LinkMonitor>,
    activity: Arc<Activity>,
    /// Copies that have printed a line that was too long. Each copy is reported once.
    cut: BTreeSet<usize>,
    turns: Turns,
    tell: Sender<(usize, Word)>,
    told: Receiver<(usize, Word)>,
    /// Number of the copies' output streams that are still open.
    streams: usize,
    /// A signal to end that has come and was not forwarded yet, because the copies take their last
    /// packets.
    last_packets: Option<LastPackets>,
    /// When this command got the first signal to end, or sent the copies such a signal because of
    /// an error. When it forwards a signal to end later, the time of that.
    stopped: Option<Instant>,
    /// Whether the message about copies that did not end in time was printed.
    has_said_stays: bool,
    /// Whether the hint about devices that are gone was printed.
    has_said_gone: bool,
    /// Signals that were forwarded, with their times.
    forwarded: BTreeMap<i32, Instant>,
    scanned: Option<Instant>,
    outsiders: Outsiders,
    host_use: HostUse,
    /// Devices whose packets the host may need but does not get, with the reported reasons.
    stolen: BTreeSet<(u32, &'static str)>,
    /// The group's mode, once a copy has joined it.
    mode: Option<String>,
    /// Whether the message that all copies have joined was printed.
    has_said_joined: bool,
    failures: Failures,
}

impl<'a> Watch<'a> {
    /// The copies of `run`, before their start.
    ///
    /// # Errors
    /// Signals can't be blocked, or the guard can't be started.
    pub(super) fn new(
        run: &'a Run<'a>,
        copies: Vec<Copy>,
        founder: Option<Arc<Founder>>,
    ) -> Result<Self> {
        child::adopt_orphans().context("becoming the parent of orphans")?;
        let signals = signals::take()?;
        let mut orphans = Orphans::new();
        let guard = Guard::start()?;
        orphans.spare(guard.pid());
        let (tell, told) = mpsc::channel();
        Ok(Self {
            run,
            name: format!("run-{}-{:x}", process::id(), clock::monotonic_ns()),
            attending: founder.as_ref().map(|it| attend(run, it)).transpose()?,
            ledger: ledger(run, founder)?,
            progress: Progress::new(copies.len()),
            copies,
            orphans,
            guard,
            signals,
            links: LinkMonitor::new().ok(),
            activity: Arc::default(),
            cut: BTreeSet::new(),
            turns: Turns::default(),
            tell,
            told,
            streams: 0,
            last_packets: None,
            stopped: None,
            has_said_stays: false,
            has_said_gone: false,
            forwarded: BTreeMap::new(),
            scanned: None,
            outsiders: Outsiders::new(),
            host_use: HostUse::default(),
            stolen: BTreeSet::new(),
            mode: None,
            has_said_joined: false,
            failures: Failures::default(),
        })
    }

    /// Starts the copies and supervises them until all have ended and none will be restarted.
    ///
    /// # Errors
    /// The copies can't be started or supervised.
    pub(super) fn run(mut self) -> Result<Supervised> {
        loop {
            self.take_signals()?;
            self.ledger.settle(false);
            self.complain();
            self.take_words();
            self.scan();
            self.reap()?;
            self.start_in_turn();
            self.end_when_read();
            self.say_who_stays();
            self.tend();
            self.start_again();
            self.question();
            self.look_for_outsiders();
            self.look_at_host();
            self.note_mode();
            self.say_who_joined();
            self.show();
            if self.copies.iter().all(Copy::is_done) && self.orphans.is_clean() {
                break;
            }
            self.wait()?;
        }
        self.ledger.close();
        drop(self.attending.take());
        self.complain();
        self.last_words()?;
        if let Some(error) = self.turns.error.take() {
            return Err(error);
        }
        let accounts = self.accounts();
        let ceiling = self.ledger.ceiling(&accounts);
        Ok(Supervised {
            accounts: accounts.into_iter().map(|it| it.below(ceiling)).collect(),
            ceiling,
            absent: self.ledger.absent(),
            nowhere: self.ledger.nowhere(),
            at_poller: self.ledger.at_poller(),
            without_share: self.ledger.without_share(),
            none_joined: self.has_none_joined(),
            had_no_members: self.ledger.had_no_members(),
            mode: self.mode.unwrap_or_else(|| self.run.fanout.text.clone()),
            copies: self.copies,
            failures: self.failures,
        })
    }

    fn wait(&self) -> Result<()> {
        let mut fds = vec![self.signals.as_fd()];
        // The copies that wait for a device look for it after each wait.
        let monitor = self.links.as_ref();
        let monitor = monitor.filter(|_| self.copies.iter().any(Copy::awaits_devices));
        fds.extend(monitor.map(AsFd::as_fd));
        fds.extend(self.ledger.fds());
        let is_ending = self.last_packets.is_some() || self.ledger.awaits_newcomers();
        let is_pressed = is_ending || self.ledger.is_pressed();
        let pressed = is_pressed.then_some(PERIOD_PRESSED);
        events::poll(&fds, Some(pressed.unwrap_or_else(|| self.period())))
            .context("waiting for the copies")?;
        if let Some(monitor) = monitor {
            monitor.clear();
        }
        Ok(())
    }

    fn period(&self) -> Duration {
        if self.awaits_turn() {
            return PERIOD_TURN;
        }
        if self.orphans.has_groups() || self.copies.iter().all(Copy::is_done) {
            return PERIOD_YOUNG;
        }
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
        self.found_again();
        let run = self.run;
        // With a name, a restarted copy becomes the successor of its former member.
        let member = run
            .arguments
            .restart
            .then(|| format!("{}-{number}", self.name));
        let copy = &mut self.copies[number];
        copy.members_before = self.ledger.members(number);
        let child = copy.start(&run.arguments.command, |command| {
            let fanout = run.fanout.variable(number);
            group::lead(command, run.library, (run.group, fanout), member);
        })?;
        let (pid, out, err) = (child.id(), child.stdout.take(), child.stderr.take());
        self.guard.watch(pid);
        self.ledger.started(pid, number);
        self.follow(number, Stream::Out, out);
        self.follow(number, Stream::Err, err);
        Ok(())
    }

    /// Founds the group again if its device has come back with another index.
    fn found_again(&mut self) {
        let before = self.ledger.founder().map(|founder| founder.ifindex());
        let Some((before, device)) = before.zip(self.run.device) else {
            return;
        };
        if interface::index(device).is_none_or(|index| index == before) {
            return;
        }
        let fanout = self.run.fanout.variable(0);
        let founder =
            founding::of_copies(self.run.group, Some(device), self.run.named_engine, fanout);
        let attending = founder.as_ref().map(|it| attend(self.run, it));
        // Without a founder, the first copy begins the group.
        self.attending = attending.and_then(Result::ok);
        self.ledger
            .found(founder.filter(|_| self.attending.is_some()));
    }

    /// Ends processes that copies have left behind.
    fn tend(&mut self) {
        let copies: Vec<u32> = self.copies.iter().filter_map(Copy::pid).collect();
        let all = self.copies.iter().all(Copy::is_done);
        for text in self.orphans.tend(&copies, all, &mut self.guard) {
            self.say(&text);
        }
    }

    fn scan(&mut self) {
        let period = self.period();
        let early = |scanned: Instant| scanned.elapsed() < period;
        if self.scanned.is_some_and(early) {
            return;
        }
        self.scanned = Some(Instant::now());
        let running = self.running();
        self.ledger.scan(&running);
        self.complain();
    }

    /// Prints a message of this command.
    fn say(&self, text: &str) {
        self.run.output.say(text);
    }

    fn complain(&mut self) {
        while let Some(complaint) = self.ledger.take_complaint() {
            self.say(&complaint);
        }
    }

    /// The processes of the copies, with the copies' numbers.
    fn running(&self) -> Vec<(u32, usize)> {
        let running = self.copies.iter();
        running
            .filter_map(|copy| Some((copy.pid()?, copy.number)))
            .collect()
    }

    fn accounts(&self) -> Vec<Account> {
        let account = |copy: &Copy| match copy.starts {
            0 => Account::ZERO,
            _ => self.ledger.account(copy.number),
        };
        self.copies.iter().map(account).collect()
    }

    fn show(&mut self) {
        if !self.run.output.live {
            return;
        }
        let accounts = self.accounts();
        // Some terminals report 0 columns.
        let width = terminal::size().map_or(0, |(columns, _)| usize::from(columns));
        let width = if width == 0 { 80 } else { width };
        if let Some(line) = self.progress.line(&accounts, width) {
            self.run.output.show(&line);
        }
    }
}

/// The ledger of the copies, before their start.
///
/// # Errors
/// The copies' poller does not reply.
fn ledger(run: &Run<'_>, founder: Option<Arc<Founder>>) -> Result<Box<dyn Book>> {
    Ok(match run.poller.zip(run.device) {
        Some((engine, device)) => Box::new(PolledLedger::new(run.group, engine.name(), device)?),
        None => Box::new(Ledger::new(run.group, run.devices, founder)),
    })
}

/// Answers the founded group's newcomers from now on.
fn attend(run: &Run<'_>, founder: &Arc<Founder>) -> Result<Attending> {
    let output = Arc::clone(run.output);
    Attending::start(founder, move |text: &str| output.say(text))
}
