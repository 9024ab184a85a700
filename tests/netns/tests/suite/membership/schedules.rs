//! Random schedules: members join, leave, are killed, are stopped, hang, are drained, or get
//! weights or filters; or all members are stopped together. Several of these actions happen at the
//! same time.
//! After each step, the flows of other members must not have moved. At the end each packet must
//! have been recorded once, each flow in order, and nothing may be left behind.
//!
//! A schedule follows from its seed. `FANPCAP_RUNS` sets the number of schedules, `FANPCAP_SEED`
//! the first schedule's seed.
//!
//! On the engines of a poller, `fanpcap poller` runs as a process of its own, and its account is
//! checked as well. Decision 67 promises the same there as on the other engines, except for what
//! the functions of [`Engine`] say.

mod plan;
mod step;
mod engine;
mod tables;
mod polled;
mod hanging;
mod chosen;

use std::collections::BTreeMap;
use std::env;
use std::ops::Range;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fanpcap_netns::remains::{leaves_nothing, leaves_nothing_soon};
use fanpcap_netns::{DEVICE, Wire, on_wire, wait_for_shares};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::dpdk;
use fanpcap_testkit::member::signal;

use super::load::{Load, Sent, print};
use super::recorder::Recorder;
use super::records::{self, now_us};
use super::scene::phase_of;
use super::story::Story;
use engine::{DPDK, Engine, Group, Shares};
use hanging::Hung;
use plan::{Action, Plan};
use step::{FLOWS_OF_BUCKET, Step};

const GROUP: u16 = 7;

/// A packet that arrives later than this counts as lost.
const ARRIVES_WITHIN: Duration = Duration::from_secs(5);

/// A group on which the steps of a schedule are carried out.
struct Schedule<'a> {
    wire: &'a Wire,
    engine: Engine,
    /// The group's mode, and the rate of the load.
    mode: &'static str,
    rate: &'static str,
    group: Box<dyn Group>,
    members: Vec<Recorder>,
    /// The weight of each member; `None` if the member has ended or hangs.
    weights: Vec<Option<u16>>,
    /// The members that hang.
    hung: BTreeMap<usize, Hung>,
    /// For each member, the number of times that it has set its filter.
    filters: Vec<usize>,
    /// The owner of each bucket, or of each flow on an engine whose buckets can't be seen.
    owners: Vec<usize>,
    phases: Vec<Range<u64>>,
    steps: Vec<Step>,
}

impl<'a> Schedule<'a> {
    fn new(
        wire: &'a Wire,
        engine: Engine,
        (mode, rate): (&'static str, &'static str),
    ) -> Result<Self> {
        Ok(Self {
            wire,
            engine,
            mode,
            rate,
            group: engine.group(wire)?,
            members: Vec::new(),
            weights: Vec::new(),
            hung: BTreeMap::new(),
            filters: Vec::new(),
            owners: Vec::new(),
            phases: Vec::new(),
            steps: Vec::new(),
        })
    }

    /// Carries out all steps.
    fn run(mut self, steps: Vec<Vec<Action>>) -> Result<()> {
        let mut steps = steps.into_iter();
        for action in steps.next().unwrap_or_default() {
            self.act(action, None)?;
        }
        if !self.engine.is_polled() {
            self.settle()?;
        }
        let mut load = Load::start_at(self.rate)?;
        if self.engine.is_polled() {
            self.settle()?;
        }
        self.phase()?;
        for actions in steps {
            self.step(actions, &mut load)?;
            self.phase()?;
        }
        self.group.check()?;
        self.finish(&load.stop()?)
    }

    fn phase(&mut self) -> Result<()> {
        self.phases.push(phase_of(DEVICE, &self.members, false)?);
        Ok(())
    }

    /// Whether flows stay at their member when their bucket moves.
    fn is_sticky(&self) -> bool {
        self.mode.contains("+sticky")
    }

    /// Starts all actions of a step at once, and waits until the group is stable again.
    fn step(&mut self, actions: Vec<Action>, load: &mut Load) -> Result<()> {
        print(&format!("  {actions:?}"));
        let (begun, first) = (now_us(), self.members.len());
        let hung_us = self.hung_since(&actions);
        self.hang(&actions, load)?;
        let stops = self.stops(&actions)?;
        thread::scope(|scope| {
            for (pid, ms) in stops {
                scope.spawn(move || stop_for(pid, ms));
            }
            let mut all = actions.iter();
            all.try_for_each(|action| self.act(*action, Some(&mut *load)))
        })?;
        let before = self.owners.clone();
        self.settle()
            .with_context(|| format!("after {actions:?}"))?;
        let mut step = Step {
            actions,
            time: begun..now_us(),
            came: first..self.members.len(),
            rounded: 0,
            is_sticky: self.is_sticky(),
            hung_us,
        };
        let moved = before
            .iter()
            .zip(&self.owners)
            .filter(|(from, to)| from != to);
        step.rounded = moved
            .filter(|(from, to)| !step.concerns(**from, **to))
            .count();
        let most = self.most_rounded();
        ensure!(
            step.rounded <= most,
            "{} buckets of other members moved by {:?} within {} ms; now {}",
            step.rounded,
            step.actions,
            (step.time.end - step.time.start) / 1000,
            self.group.seen()
        );
        self.steps.push(step);
        Ok(())
    }

    /// How many buckets, or flows on an engine whose buckets can't be seen, a step may move between
    /// other members, because shares are rounded.
    fn most_rounded(&self) -> usize {
        let mut weights = self.weights.iter().flatten().filter(|weight| **weight > 0);
        let first = weights.next();
        match (weights.all(|it| Some(it) == first), self.engine.is_polled()) {
            (true, _) => 0,
            (false, true) => self.members.len() * FLOWS_OF_BUCKET,
            (false, false) => self.members.len(),
        }
    }

    /// The processes that this step stops, each with the duration of its stop in milliseconds.
    fn stops(&self, actions: &[Action]) -> Result<Vec<(u32, u64)>> {
        let ends = |number: usize| {
            let is_it = |it: &Action| matches!(it, Action::End { member, .. } if *member == number);
            actions.iter().any(is_it)
        };
        let there = (0..self.members.len()).filter(|&it| self.weights[it].is_some() && !ends(it));
        let mut stops = Vec::new();
        for action in actions {
            match *action {
                Action::Stop { member, ms } => stops.push((self.members[member].pid()?, ms)),
                Action::Freeze { ms } => {
                    for member in there.clone() {
                        stops.push((self.members[member].pid()?, ms));
                    }
                }
                Action::Join { .. }
                | Action::End { .. }
                | Action::Weigh { .. }
                | Action::Hang { .. }
                | Action::GoOn { .. }
                | Action::Filter { .. } => {}
            }
        }
        Ok(stops)
    }

    fn act(&mut self, action: Action, load: Option<&mut Load>) -> Result<()> {
        match action {
            Action::Join { name } => {
                let name = name.map(|name| format!("name=m{name}"));
                let how = self.engine.arguments().iter().copied();
                let how: Vec<&str> = how.chain(name.as_deref()).collect();
                let member = Recorder::start_as(self.wire, DEVICE, GROUP, self.mode, &how)?;
                self.group.add(&member)?;
                self.members.push(member);
                self.weights.push(Some(1));
                self.filters.push(0);
            }
            Action::End { member, how } => {
                self.members[member].end(how)?;
                self.weights[member] = None;
                self.hung.remove(&member);
            }
            Action::Weigh { member, weight } => {
                self.group.weigh(member, weight)?;
                self.weights[member] = Some(weight);
            }
            Action::Filter { member } => {
                let load = load.context("no load")?;
                if self.engine.filters_in_kernel() {
                    load.pause()?;
                    wait_for_shares()?;
                }
                self.filters[member] += 1;
                self.members[member].set_filter(self.filters[member])?;
                if self.engine.filters_in_kernel() {
                    load.go_on(DEVICE)?;
                }
            }
            Action::GoOn { member } => self.go_on(member)?,
            // `step` starts threads that stop these members, or has stopped them.
            Action::Stop { .. } | Action::Freeze { .. } | Action::Hang { .. } => {}
        }
        Ok(())
    }

    /// Waits until each member has its share, and the rings of all ended members are read.
    fn settle(&mut self) -> Result<()> {
        self.group.begin();
        let weights = &self.weights;
        let settled = await_for("all to have their shares", LIMIT, || {
            self.group.settled(weights)
        });
        let seen = || format!("{} of {weights:?}", self.group.seen());
        let Shares { owners, slots } = settled.with_context(seen)?;
        self.owners = owners;
        for (member, slot) in self.members.iter_mut().zip(slots) {
            member.slot = slot;
        }
        Ok(())
    }

    /// Ends all members, and checks their records.
    fn finish(mut self, sent: &Sent) -> Result<()> {
        let files: Vec<PathBuf> = self.members.iter().map(|it| it.file.clone()).collect();
        let killed: usize = self.steps.iter().map(Step::killed).sum();
        let awaited = |wanted: usize, limit| {
            await_for("the last frame", limit, || {
                let counts = files.iter().map(|file| records::count(file));
                let count = counts.sum::<Result<u64>>()?;
                Ok((count >= wanted as u64).then_some(()))
            })
        };
        let _ = awaited(sent.count() - killed, LIMIT);
        if killed > 0 {
            let _ = awaited(sent.count(), ARRIVES_WITHIN);
        }
        self.members.iter_mut().try_for_each(Recorder::stop)?;
        let unseen = usize::try_from(self.group.finish(sent.count() as u64)?)?;
        let all = files.iter().map(|file| records::read(file));
        let story = Story::new(sent, all.collect::<Result<_>>()?, &self.phases);
        let missing = story.missing()?;
        print(&format!(
            "  {} frames, {killed} members killed, which were handling {missing:?}",
            sent.count()
        ));
        let lost = missing.len().saturating_sub(unseen);
        ensure!(lost <= killed, "{lost} frames are lost");
        story.ensure_flows_whole_without(unseen)?;
        for (phase, step) in (1..).zip(&self.steps) {
            step.check(&story, phase)?;
        }
        ensure_in_order(&self.steps, &story)
    }
}

/// Checks that no packet came after a later packet of its flow, except during steps that allow
/// this ([`Step::late`]).
fn ensure_in_order(steps: &[Step], story: &Story) -> Result<()> {
    let mut late = story.late();
    let all = late.len();
    late.retain(|(_, got)| !steps.iter().any(|step| step.excuses(got.arrived_us)));
    let whys = steps.iter().filter_map(Step::late);
    whys.for_each(|why| print(&format!("  order is not checked in a step: {why}")));
    print(&format!(
        "  {} packets came late in such steps",
        all - late.len()
    ));
    let Some((member, got)) = late.first() else {
        return Ok(());
    };
    let is_then = |step: &&Step| step.time.start <= got.arrived_us;
    let step = steps.iter().rfind(is_then).map(|step| &step.actions);
    ensure!(
        late.is_empty(),
        "{} packets out of order, first at member {member}: {got:?}, after {step:?}",
        late.len()
    );
    Ok(())
}

/// Stops a process for `ms` milliseconds. Ignores errors, because the process may have ended.
fn stop_for(pid: u32, ms: u64) {
    let _ = signal(pid, "STOP");
    thread::sleep(Duration::from_millis(ms));
    let _ = signal(pid, "CONT");
}

/// Carries out the steps of a schedule on a new wire. `how` is the mode and the load's rate.
fn carry_out(
    engine: Engine,
    how: (&'static str, &'static str),
    steps: Vec<Vec<Action>>,
) -> Result<()> {
    let test = |wire: &Wire| Schedule::new(wire, engine, how)?.run(steps);
    on_wire(1, |wire| match engine {
        Engine::Xdp => leaves_nothing(|| test(wire)),
        Engine::Tpacket | Engine::Polled(_) => leaves_nothing_soon(|| test(wire)),
    })
}

/// Runs `count` schedules one after another, or as many as FANPCAP_RUNS says. Reports all failures
/// with their seeds.
fn run(engine: Engine, count: u64) -> Result<()> {
    let mut failed = Vec::new();
    for seed in seeds(count)? {
        print(&format!("FANPCAP_SEED={seed} {engine:?}"));
        if let Err(error) = carry_out(engine, ("flow", engine.rate()), Plan::of(seed)) {
            print(&format!("FAILED: FANPCAP_SEED={seed}: {error:#}"));
            failed.push(format!("FANPCAP_SEED={seed}: {error:#}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// The seeds of the schedules to run, from the clock unless FANPCAP_SEED is set.
fn seeds(count: u64) -> Result<Range<u64>> {
    let number = |name: &str| {
        env::var(name)
            .ok()
            .map(|set| set.parse::<u64>())
            .transpose()
    };
    let (set, runs) = (number("FANPCAP_SEED")?, number("FANPCAP_RUNS")?);
    let runs = runs.unwrap_or(if set.is_some() { 1 } else { count });
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |it| it.as_secs() * 1000)
    };
    let first = set.unwrap_or_else(now);
    Ok(first..first + runs)
}

#[test]
#[ignore = "needs root: run by make test"]
fn random_schedules_at_a_poller_lose_nothing_and_keep_flows_in_order() -> Result<()> {
    run(Engine::Polled("packet"), 1)?;
    run(Engine::Polled("afxdp"), 1)
}

#[test]
#[ignore = "needs root: run by make test"]
fn random_schedules_at_a_poller_of_dpdk_lose_nothing_and_keep_flows_in_order() -> Result<()> {
    match dpdk::is_here() {
        true => run(DPDK, 1),
        false => Ok(()),
    }
}

mod long {
    use anyhow::Result;
    use fanpcap_testkit::dpdk;

    use super::engine::{DPDK, Engine};
    use super::run;

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn random_schedules_lose_nothing_and_keep_flows_in_order() -> Result<()> {
        run(Engine::Tpacket, 10)
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn random_schedules_on_xdp_lose_nothing_and_keep_flows_in_order() -> Result<()> {
        run(Engine::Xdp, 10)
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn random_schedules_at_a_poller_of_packet_sockets() -> Result<()> {
        run(Engine::Polled("packet"), 10)
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn random_schedules_at_a_poller_of_af_xdp() -> Result<()> {
        run(Engine::Polled("afxdp"), 10)
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn random_schedules_at_a_poller_of_dpdk() -> Result<()> {
        match dpdk::is_here() {
            true => run(DPDK, 10),
            false => Ok(()),
        }
    }
}
