//! The agent's loop: turns messages of the coordination engine into changes in the kernel.

use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use fanpcap_cluster::node::{Assignment, Command, Node};
use fanpcap_cluster::{Announcement, Revision};
use fanpcap_linux::wait::{clock, stop};
use fanpcap_terminal::notify::Notify;
use fanpcap_terminal::streams;

use super::capture::Capture;
use super::kernel::Kernel;
use super::metrics::{AgentCounters, Metrics};
use super::report::Reporter;
use super::say;
use super::stream::{Outcome, Stream};
use crate::coordination::NodeSide;
use crate::credentials::Reloader;
use crate::frames;
use crate::vlan_tags::TagWarnings;

/// How long each step of the loop waits for events of the coordination engine.
const WAIT: Duration = Duration::from_millis(200);

pub(super) struct Agent {
    core: Node,
    engine: Box<dyn NodeSide>,
    kernel: Kernel,
    stream: Stream,
    reporter: Reporter,
    metrics: Option<Metrics>,
    reloader: Reloader,
    notify: Notify,
    begun: Instant,
    tags: TagWarnings,
    /// The last reported failure: the topology whose table could not be loaded, and why.
    failure: Option<(Revision, String)>,
    /// The devices that were reported to get no packets, each with the reason.
    silent: Vec<(String, &'static str)>,
}

impl Agent {
    pub(super) fn new(
        engine: Box<dyn NodeSide>,
        kernel: Kernel,
        stream: Stream,
        reporter: Reporter,
        metrics: Option<Metrics>,
        reloader: Reloader,
    ) -> Self {
        Self {
            core: Node::new(reporter.node(), kernel.revision()),
            engine,
            kernel,
            stream,
            reporter,
            metrics,
            reloader,
            notify: Notify::from_environment(),
            begun: Instant::now(),
            tags: TagWarnings::default(),
            failure: None,
            silent: Vec::new(),
        }
    }

    /// Follows the topology until a signal comes. The selection stays in the kernel.
    pub(super) fn run(&mut self, announcement: &Announcement) -> Result<()> {
        if let Some(revision) = self.core.current() {
            say(&format!(
                "the kernel still selects by topology {revision}, which an earlier agent has loaded"
            ));
        } else {
            say(match self.reporter.capture() {
                _ if self.kernel.is_taken_over() => {
                    "no topology yet: until the first one, the selection of an earlier agent stays"
                }
                None => "no topology yet: until the first one, the host gets all packets",
                Some(_) => "no topology yet: until the first one, nothing is captured",
            });
        }
        self.read_pools(true)?;
        self.engine.announce(announcement);
        self.notify.ready();
        while !stop::is_requested() {
            let news = self.engine.poll(WAIT).context("the coordination engine")?;
            for event in news {
                let commands = self.core.take(event);
                self.obey(commands)?;
            }
            let due = self.core.tick(self.begun.elapsed());
            self.obey(due)?;
            self.handle_frames()?;
            if let Some(name) = self.kernel.lost()? {
                bail!("the device {name} is gone, or its selection was detached");
            }
            self.report_silence();
            self.report();
            self.reload();
            self.notify.alive();
        }
        self.notify.stopping();
        say("the agent ends; the selection stays on the devices ('--detach' removes it)");
        Ok(())
    }

    /// Reports devices that get no packets, and devices that get packets again.
    fn report_silence(&mut self) {
        let silent = self.kernel.silent();
        let silent: Vec<_> = silent.map(|(name, why)| (name.to_owned(), why)).collect();
        for (name, why) in silent.iter().filter(|it| !self.silent.contains(it)) {
            say(&format!("{name} {why}: this node misses its packets"));
        }
        for (name, _) in &self.silent {
            if silent.iter().all(|(still, _)| still != name) {
                say(&format!("{name} has its link again"));
            }
        }
        self.silent = silent;
    }

    fn reload(&mut self) {
        let Some(conf) = self.reloader.due() else {
            return;
        };
        let done = self.engine.reload(&conf).and_then(|()| {
            self.stream.listener.set_numbers(frames::numbers(&conf)?);
            Ok(())
        });
        if let Err(error) = done {
            say(&format!("the old keys stay: {}", streams::words(&error)));
        }
    }

    fn obey(&mut self, commands: Vec<Command>) -> Result<()> {
        let mut left: Vec<Command> = commands.into_iter().rev().collect();
        while let Some(command) = left.pop() {
            match command {
                Command::Load(assignment) => {
                    let more = self.load(&assignment);
                    left.extend(more.into_iter().rev());
                }
                Command::Acknowledge(revision) => {
                    self.engine.acknowledge(revision);
                }
                Command::Say(notice) => say(&notice.to_string()),
            }
        }
        Ok(())
    }

    /// Reports the counts to the analyzers and systemd.
    fn report(&mut self) {
        let Some(revision) = self.core.current() else {
            return;
        };
        let Some(sums) = self.reporter.tick(&self.kernel, revision) else {
            return;
        };
        let mut line = format!(
            "topology {revision}: {} packets seen, {} captured, {} lost in rings",
            sums.seen, sums.captured, sums.ring
        );
        if sums.filtered > 0 {
            line += &format!(", {} filtered", sums.filtered);
        }
        for (name, why) in &self.silent {
            line += &format!(", {name} {why}");
        }
        if sums.forged > 0 {
            line += &format!(", {} forged frames", sums.forged);
        }
        let shipped = self.reporter.capture().map(Capture::shipped);
        if let Some(metrics) = &mut self.metrics {
            metrics.write(&AgentCounters {
                revision,
                sums,
                shipped,
                forged: self.engine.forged(),
                is_synchronized: clock::is_synchronized(),
                silent: self.silent.len(),
            });
        }
        if let Some(shipped) = shipped {
            line += &format!(
                ", {} shipped, {} lost on the way",
                shipped.sent, shipped.lost
            );
        }
        self.notify.status(&line);
    }

    /// Handles the coordinator's frames in the mirrored stream.
    fn handle_frames(&mut self) -> Result<()> {
        let current = self.core.current().unwrap_or_default();
        match self.stream.tick(&self.kernel, current) {
            None => Ok(()),
            Some(Outcome::Ready(revision)) => {
                let commands = self.core.note_loaded(revision);
                self.obey(commands)
            }
            Some(Outcome::Silent(assignment)) => {
                say("no beacon comes: the change does not wait for a topology update");
                let commands = self.switch(&assignment);
                self.obey(commands)
            }
        }
    }

    /// Makes the kernel select by this assignment: at the next topology update, or at once.
    fn load(&mut self, assignment: &Assignment) -> Vec<Command> {
        let filter = assignment.filter.as_ref();
        let warnings = self.tags.warnings(filter, || self.kernel.tag_takers());
        warnings.iter().for_each(|it| say(it));
        match self.prepare(assignment) {
            Ok(true) => Vec::new(),
            Ok(false) => self.switch(assignment),
            Err(error) => self.fail(assignment.revision, &error),
        }
    }

    /// Prepares an assignment for the next topology update; `false` if it must be loaded at once.
    fn prepare(&mut self, assignment: &Assignment) -> Result<bool> {
        let Some(prepared) = self.stream.prepare(&mut self.kernel, assignment)? else {
            return Ok(false);
        };
        self.reporter.follow(&assignment.analyzers);
        self.read_pools(prepared.is_new)?;
        let (revision, epoch) = (assignment.revision, assignment.epoch);
        say(&format!(
            "topology {revision} (epoch {epoch}) waits for a topology update in the mirrored stream"
        ));
        Ok(true)
    }

    /// Gives the capture thread the topology of each mark, and the pools if they are new.
    fn read_pools(&self, is_new: bool) -> Result<()> {
        let Some(capture) = self.reporter.capture() else {
            return Ok(());
        };
        for (mark, revision) in self.kernel.marks() {
            capture.mark(mark, revision);
        }
        if is_new {
            capture.read(self.kernel.pools()?);
        }
        Ok(())
    }

    fn switch(&mut self, assignment: &Assignment) -> Vec<Command> {
        if let Some(capture) = self.reporter.capture() {
            capture.mark(self.kernel.next_mark(), assignment.revision);
        }
        self.reporter.follow(&assignment.analyzers);
        let loaded = self.kernel.load(assignment).and_then(|is_new| {
            if is_new {
                // If the driver refused the first BPF program, a second BPF program with a new mark
                // was loaded.
                self.read_pools(true)?;
            }
            Ok(is_new)
        });
        match loaded {
            Ok(is_new) => {
                if is_new {
                    self.stream.restart();
                }
                // The kernel must have the next frames' numbers before the node acknowledges.
                self.stream.announce(&self.kernel, assignment.revision);
                let how = if is_new { "loaded" } else { "switched to" };
                let (revision, epoch) = (assignment.revision, assignment.epoch);
                let buckets = assignment.claims.count();
                let line = format!("{how} topology {revision} (epoch {epoch}): {buckets} buckets");
                say(&line);
                self.core.note_loaded(revision)
            }
            Err(error) => self.fail(assignment.revision, &error),
        }
    }

    /// Plans another attempt to load the table of a topology. Reports the error only if it is new,
    /// because the next attempts may fail in the same way for days.
    fn fail(&mut self, revision: Revision, error: &Error) -> Vec<Command> {
        let notices = self.core.note_load_failure(revision, self.begun.elapsed());
        let failure = Some((revision, streams::words(error)));
        if self.failure == failure {
            return Vec::new();
        }
        say(&streams::words(error));
        self.failure = failure;
        notices
    }
}
