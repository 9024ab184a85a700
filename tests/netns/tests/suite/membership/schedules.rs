//! Random schedules: members join, leave, are killed, are stopped, are drained, or get weights or
//! filters; or all members are stopped together. Several of these actions happen at the same time.
//! After each step, the flows of other members must not have moved. At the end each packet must
//! have been recorded once, each flow in order, and nothing may be left behind.
//!
//! A schedule follows from its seed. `FANPCAP_RUNS` sets the number of schedules, `FANPCAP_SEED`
//! the first schedule's seed.

mod plan;
mod step;

use std::env;
use std::ops::Range;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use fanpcap_group::page::MemberId;
use fanpcap_group::view::{GroupTable, State, View};
use fanpcap_group::weight;
use fanpcap_linux::interface;
use fanpcap_netns::remains::{leaves_nothing, leaves_nothing_soon};
use fanpcap_netns::{DEVICE, Wire, on_wire, wait_for_shares};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::member::signal;

use super::load::{Load, Sent, print};
use super::recorder::Recorder;
use super::records::{self, now_us};
use super::scene::{ON_XDP, phase_of};
use super::story::Story;
use super::table::{BUCKETS, Table};
use plan::{Action, Plan};
use step::Step;

const GROUP: u16 = 7;

/// A rate with which seven members keep up on a machine with two CPUs.
const RATE: &str = "100kpps";

/// A packet that arrives later than this counts as lost.
const ARRIVES_WITHIN: Duration = Duration::from_secs(5);

/// A group on which the steps of a schedule are carried out.
struct Schedule<'a> {
    wire: &'a Wire,
    driver: &'static [&'static str],
    members: Vec<Recorder>,
    ids: Vec<MemberId>,
    /// The weight of each member; `None` if the member has ended.
    weights: Vec<Option<u16>>,
    /// For each member, the number of times that it has set its filter.
    filters: Vec<usize>,
    /// The owner of each bucket.
    owners: Vec<usize>,
    phases: Vec<Range<u64>>,
    steps: Vec<Step>,
}

impl<'a> Schedule<'a> {
    fn new(wire: &'a Wire, driver: &'static [&'static str]) -> Self {
        Self {
            wire,
            driver,
            members: Vec::new(),
            ids: Vec::new(),
            weights: Vec::new(),
            filters: Vec::new(),
            owners: Vec::new(),
            phases: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Carries out all steps.
    fn run(mut self, steps: Vec<Vec<Action>>) -> Result<()> {
        let mut steps = steps.into_iter();
        for action in steps.next().unwrap_or_default() {
            self.act(action, None)?;
        }
        let ifindex = interface::index(DEVICE).context("no device")?;
        let group = GroupTable::find(ifindex, GROUP, LIMIT).map_err(anyhow::Error::msg)?;
        let group = group.context("no table")?;
        let table = Table::of(self.members[0].pid()?)?;
        self.settle(&group, &table)?;
        let mut load = Load::start_at(RATE)?;
        self.phase()?;
        for actions in steps {
            self.step(actions, &mut load, &group, &table)?;
            self.phase()?;
        }
        let gone = group.look().context("no view")?.gone;
        ensure!(
            (gone.dropped, gone.unread) == (0, 0),
            "members that have ended have lost packets: {gone:?}"
        );
        self.finish(&load.stop()?)
    }

    fn phase(&mut self) -> Result<()> {
        self.phases.push(phase_of(DEVICE, &self.members, false)?);
        Ok(())
    }

    /// Starts all actions of a step at once, and waits until the group is stable again.
    fn step(
        &mut self,
        actions: Vec<Action>,
        load: &mut Load,
        group: &GroupTable,
        table: &Table,
    ) -> Result<()> {
        print(&format!("  {actions:?}"));
        let (begun, first) = (now_us(), self.members.len());
        let stops = self.stops(&actions)?;
        thread::scope(|scope| {
            for (pid, ms) in stops {
                scope.spawn(move || stop_for(pid, ms));
            }
            let mut all = actions.iter();
            all.try_for_each(|action| self.act(*action, Some(&mut *load)))
        })?;
        let before = self.owners.clone();
        self.settle(group, table)
            .with_context(|| format!("after {actions:?}"))?;
        let mut step = Step {
            actions,
            time: begun..now_us(),
            came: first..self.members.len(),
            rounded: 0,
        };
        let moved = before
            .iter()
            .zip(&self.owners)
            .filter(|(from, to)| from != to);
        step.rounded = moved
            .filter(|(from, to)| !step.concerns(**from, **to))
            .count();
        let mut weights = self.weights.iter().flatten().filter(|weight| **weight > 0);
        let first = weights.next();
        let most = if weights.all(|it| Some(it) == first) {
            0
        } else {
            self.members.len()
        };
        ensure!(
            step.rounded <= most,
            "{} buckets of other members moved by {:?}",
            step.rounded,
            step.actions
        );
        self.steps.push(step);
        Ok(())
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
                | Action::Filter { .. } => {}
            }
        }
        Ok(stops)
    }

    fn act(&mut self, action: Action, load: Option<&mut Load>) -> Result<()> {
        match action {
            Action::Join { name } => {
                let name = name.map(|name| format!("name=m{name}"));
                let how: Vec<&str> = self.driver.iter().copied().chain(name.as_deref()).collect();
                let member = Recorder::start(self.wire, DEVICE, GROUP, &how)?;
                self.ids.push(member.id()?);
                self.members.push(member);
                self.weights.push(Some(1));
                self.filters.push(0);
            }
            Action::End { member, how } => {
                self.members[member].end(how)?;
                self.weights[member] = None;
            }
            Action::Weigh { member, weight } => {
                let ifindex = interface::index(DEVICE).context("no device")?;
                weight::weigh(ifindex, GROUP, self.ids[member], weight)?;
                self.weights[member] = Some(weight);
            }
            Action::Filter { member } => {
                let load = load.context("no load")?;
                load.pause()?;
                wait_for_shares()?;
                self.filters[member] += 1;
                self.members[member].set_filter(self.filters[member])?;
                load.go_on(DEVICE)?;
            }
            // `step` starts threads that stop these members.
            Action::Stop { .. } | Action::Freeze { .. } => {}
        }
        Ok(())
    }

    /// Waits until each member has its share, and the rings of all ended members are read.
    fn settle(&mut self, group: &GroupTable, table: &Table) -> Result<()> {
        let mut seen = View::default();
        let settled = await_for("all to have their shares", LIMIT, || {
            seen = group.look().context("the group's table is gone")?;
            Ok(self.is_settled(&seen).then_some(()))
        });
        settled.with_context(|| format!("{:?} of {:?}", seen.places, self.weights))?;
        let owners = table.owners();
        let mut of_slots = [usize::MAX; 256];
        for place in &seen.places {
            let member = self.ids.iter().rposition(|id| *id == place.member);
            let Some(member) = member.filter(|&it| self.weights[it].is_some()) else {
                continue;
            };
            of_slots[usize::from(place.slot)] = member;
            self.members[member].slot = (place.weight > 0).then_some(place.slot);
        }
        let owner = |bucket| of_slots[usize::from(owners.of(bucket))];
        self.owners = (0..BUCKETS).map(owner).collect();
        let is_there = |owner: &usize| *owner != usize::MAX;
        ensure!(
            self.owners.iter().all(is_there),
            "an ended member owns buckets"
        );
        Ok(())
    }

    fn is_settled(&self, view: &View) -> bool {
        let sum: usize = self
            .weights
            .iter()
            .flatten()
            .map(|it| usize::from(*it))
            .sum();
        let there = self.weights.iter().flatten().count();
        let live = view.places.iter().filter(|it| it.state == State::Live);
        let is_even = |(id, weight): (&MemberId, &Option<u16>)| {
            let Some(weight) = weight else {
                return true;
            };
            let quota = BUCKETS * usize::from(*weight);
            let due = quota / sum..=quota.div_ceil(sum);
            let mut its = view.places.iter().filter(|it| it.member == *id);
            its.any(|it| {
                it.state == State::Live && it.weight == *weight && due.contains(&it.buckets)
            })
        };
        let rests = view.places.iter().filter(|it| it.state == State::Vacant);
        view.under_way.is_none()
            && live.count() == there
            && rests.count() + there == view.places.len()
            && self.ids.iter().zip(&self.weights).all(is_even)
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
        let all = files.iter().map(|file| records::read(file));
        let story = Story::new(sent, all.collect::<Result<_>>()?, &self.phases);
        let missing = story.missing()?;
        print(&format!(
            "  {} frames, {killed} members killed, which were handling {missing:?}",
            sent.count()
        ));
        ensure!(missing.len() <= killed, "{} frames are lost", missing.len());
        story.ensure_flows_whole()?;
        for (phase, step) in (1..).zip(&self.steps) {
            step.check(&story, phase)?;
        }
        self.ensure_in_order(&story)
    }

    /// Checks that no packet came after a later packet of its flow, except during steps that allow
    /// this ([`Step::late`]).
    fn ensure_in_order(&self, story: &Story) -> Result<()> {
        let mut late = story.late();
        let all = late.len();
        late.retain(|(_, got)| !self.steps.iter().any(|step| step.excuses(got.arrived_us)));
        let whys = self.steps.iter().filter_map(Step::late);
        whys.for_each(|why| print(&format!("  order is not checked in a step: {why}")));
        print(&format!(
            "  {} packets came late in such steps",
            all - late.len()
        ));
        let Some((member, got)) = late.first() else {
            return Ok(());
        };
        let is_then = |step: &&Step| step.time.start <= got.arrived_us;
        let step = self.steps.iter().rfind(is_then).map(|step| &step.actions);
        ensure!(
            late.is_empty(),
            "{} packets out of order, first at member {member}: {got:?}, after {step:?}",
            late.len()
        );
        Ok(())
    }
}

/// Stops a process for `ms` milliseconds. Ignores errors, because the process may have ended.
fn stop_for(pid: u32, ms: u64) {
    let _ = signal(pid, "STOP");
    thread::sleep(Duration::from_millis(ms));
    let _ = signal(pid, "CONT");
}

/// Runs schedules one after another. Reports all failures with their seeds.
fn run(driver: &'static [&'static str]) -> Result<()> {
    let mut failed = Vec::new();
    for seed in seeds()? {
        print(&format!("FANPCAP_SEED={seed} {driver:?}"));
        let test = |wire: &Wire| match driver {
            [ON_XDP] => leaves_nothing(|| Schedule::new(wire, driver).run(Plan::of(seed))),
            _ => leaves_nothing_soon(|| Schedule::new(wire, driver).run(Plan::of(seed))),
        };
        if let Err(error) = on_wire(1, test) {
            print(&format!("FAILED: FANPCAP_SEED={seed}: {error:#}"));
            failed.push(format!("FANPCAP_SEED={seed}: {error:#}"));
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// The seeds of the schedules to run, from the clock unless FANPCAP_SEED is set.
fn seeds() -> Result<Range<u64>> {
    let number = |name: &str| {
        env::var(name)
            .ok()
            .map(|set| set.parse::<u64>())
            .transpose()
    };
    let (set, runs) = (number("FANPCAP_SEED")?, number("FANPCAP_RUNS")?);
    let runs = runs.unwrap_or(if set.is_some() { 1 } else { 10 });
    let now = || {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(1, |it| it.as_secs() * 1000)
    };
    let first = set.unwrap_or_else(now);
    Ok(first..first + runs)
}

mod long {
    use anyhow::Result;

    use super::super::scene::ON_XDP;

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn random_schedules_lose_nothing_and_keep_flows_in_order() -> Result<()> {
        super::run(&[])
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn random_schedules_on_xdp_lose_nothing_and_keep_flows_in_order() -> Result<()> {
        super::run(&[ON_XDP])
    }
}
