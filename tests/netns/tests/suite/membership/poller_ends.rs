//! Pollers are killed, end, or are stopped for a while, and start again, under load. Members read
//! what is in their pools. Then those with the setting `gone = wait` go on at the next poller, and
//! the others fail.
//!
//! Nobody knows what a killed poller had counted. But a poller takes frames in their order, so the
//! frames that a group has recorded from it have no gap, except in the last burst. Frames that no
//! group has are those that the kernel dropped, because the poller did not get the CPU in time.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::poller::{self, Poller, Summary};
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::dpdk;

use super::load::{Load, Sent, print};
use super::recorder::Recorder;
use super::records::{self, Got, now_us};
use super::scene::phase_of;
use super::story::Story;
use super::watch::Watch;

/// A rate at which the ring of a packet socket has room for the frames of several seconds.
const RATE: &str = "40kpps";

/// The most frames that a poller takes at once. It publishes them at each member in turn, so some
/// of the last ones may be missing if it was killed.
const BURST: u32 = 64;

const ENDED: &str = "has ended or has closed the connection: start it";

/// A group. Half of its members wait for the next poller.
struct Team {
    group: u16,
    members: Vec<Recorder>,
    is_there: Vec<bool>,
    watch: Watch,
    phases: Vec<Range<u64>>,
}

/// How a member is started whose reads fail at the poller's end, and one that waits.
const HOWS: [&[&str]; 2] = [&[], &["gone=wait"]];

impl Team {
    fn new(group: u16) -> Self {
        Self {
            group,
            members: Vec::new(),
            is_there: Vec::new(),
            watch: Watch::new(),
            phases: Vec::new(),
        }
    }

    fn join(&mut self, wire: &Wire, driver: &str, how: &[&str]) -> Result<()> {
        let how = [&[driver], how].concat();
        let member = Recorder::start(wire, DEVICE, self.group, &how)?;
        self.watch.add(&member);
        self.members.push(member);
        self.is_there.push(true);
        Ok(())
    }

    /// Waits until each member has its share, and then for the end of a phase.
    fn phase(&mut self) -> Result<()> {
        self.watch.begin();
        let settled = await_for("all to have their shares", LIMIT, || {
            self.watch.settled(&self.is_there)
        });
        settled.with_context(|| format!("group {}: {}", self.group, self.watch.seen()))?;
        for (number, member) in self.members.iter_mut().enumerate() {
            member.slot = self.is_there[number].then_some(0);
        }
        self.phases.push(phase_of(DEVICE, &self.members, false)?);
        Ok(())
    }

    /// Sends each second member a signal, among them members that wait and others.
    fn signal(&self, name: &str) -> Result<()> {
        let there = self.members.iter().zip(&self.is_there);
        let there = there.filter(|(_, is_there)| **is_there);
        let mut some = there.map(|(member, _)| member).step_by(2);
        some.try_for_each(|it| it.signal(name))
    }

    /// Waits for the end of the members that do not wait for the next poller.
    fn await_ends(&mut self, place: &str) -> Result<()> {
        for (member, is_there) in self.members.iter_mut().zip(&mut self.is_there) {
            if !*is_there || member.waits {
                continue;
            }
            let ended = member.wait()?;
            let text = format!("pcap_dispatch: the poller of {place} {ENDED}");
            let is_right = ended.said.contains(&text) && !ended.status.success();
            ensure!(is_right, "{}: {}", ended.status, ended.said);
            *is_there = false;
        }
        Ok(())
    }

    /// The descriptors of each living member that waits.
    fn descriptors(&self) -> Result<Vec<usize>> {
        let waiting = self.members.iter().zip(&self.is_there);
        let waiting = waiting.filter(|(member, is_there)| **is_there && member.waits);
        let count = |(member, _): (&Recorder, &bool)| {
            Ok(fs::read_dir(format!("/proc/{}/fd", member.pid()?))?.count())
        };
        waiting.map(count).collect()
    }

    /// Ends the members that are left.
    fn stop(&mut self) -> Result<Vec<Vec<Got>>> {
        self.members.iter_mut().try_for_each(Recorder::stop)?;
        self.members
            .iter()
            .map(|it| records::read(&it.file))
            .collect()
    }
}

/// Groups of members at one poller after another.
struct Ends<'a> {
    wire: &'a Wire,
    source: &'static str,
    teams: Vec<Team>,
    /// The time after the end of each poller, in microseconds since 1970.
    ends: Vec<u64>,
}

impl<'a> Ends<'a> {
    fn new(wire: &'a Wire, source: &'static str) -> Self {
        Self {
            wire,
            source,
            teams: vec![Team::new(7), Team::new(8)],
            ends: Vec::new(),
        }
    }

    fn place(&self) -> String {
        poller::place(self.source)
    }

    /// The group 7 gets two members of this kind, the group 8 one.
    fn join(&mut self, how: &[&str]) -> Result<()> {
        let driver = format!("driver={}", self.source);
        for (team, count) in self.teams.iter_mut().zip([2, 1]) {
            for _ in 0..count {
                team.join(self.wire, &driver, how)?;
            }
        }
        Ok(())
    }

    fn start(&self) -> Result<Poller> {
        let poller = Poller::start(self.source, &self.wire.scratch)?;
        let paths = poller::paths(&self.place())?;
        ensure!(paths.iter().all(|it| it.exists()), "{paths:?}");
        Ok(poller)
    }

    /// Ends a poller while some members are stopped, so that packets are in their pools.
    fn end<T>(&mut self, poller: Poller, end: impl FnOnce(Poller) -> Result<T>) -> Result<T> {
        self.teams.iter().try_for_each(|it| it.signal("STOP"))?;
        thread::sleep(Duration::from_millis(100));
        let ended = end(poller)?;
        self.ends.push(now_us());
        self.teams.iter().try_for_each(|it| it.signal("CONT"))?;
        let place = self.place();
        self.teams
            .iter_mut()
            .try_for_each(|it| it.await_ends(&place))?;
        Ok(ended)
    }

    fn phase(&mut self) -> Result<()> {
        self.teams.iter_mut().try_for_each(Team::phase)
    }

    /// Waits until each group has recorded a frame.
    fn await_frame(&self, number: u32) -> Result<()> {
        let has = |member: &Recorder| -> Result<bool> {
            let all = records::read(&member.file)?;
            Ok(all.iter().any(|got| got.number == number))
        };
        self.teams.iter().try_for_each(|team| {
            await_for("the last frame", LIMIT, || {
                let members = team.members.iter().map(has);
                let all = members.collect::<Result<Vec<bool>>>()?;
                Ok(all.contains(&true).then_some(()))
            })
        })
    }

    /// Checks what all members have recorded. `summary` is that of the last poller.
    fn check(mut self, sent: &Sent, summary: &Summary) -> Result<()> {
        let all = self.teams.iter_mut().map(Team::stop);
        let all = all.collect::<Result<Vec<_>>>()?;
        let (mut last, mut lost) = (0, 0);
        for (number, era) in eras(&self.ends).enumerate() {
            let frames: Vec<BTreeSet<u32>> = all.iter().map(|it| frames_of(it, &era)).collect();
            let is_last = number + 1 == self.ends.len();
            let burst = if is_last { 0 } else { BURST };
            let unseen =
                ensure_whole(&frames, burst).with_context(|| format!("poller {number}"))?;
            lost += usize::try_from(unseen)?;
            let counts: Vec<usize> = frames.iter().map(BTreeSet::len).collect();
            print(&format!(
                "  {counts:?} frames, {unseen} dropped at the source"
            ));
            if is_last {
                ensure!(unseen <= summary.dropped, "{unseen} unseen, {summary:?}");
                last = counts.iter().sum::<usize>() as u64;
            }
        }
        ensure!(
            (last, 0) == (summary.produced, summary.without_room),
            "{last} recorded, {summary:?}"
        );
        for (team, all) in self.teams.iter().zip(all) {
            let story = Story::new(sent, all, &team.phases);
            story.missing()?;
            story.ensure_flows_whole_without(lost)?;
        }
        Ok(())
    }
}

/// The times in which there was one poller.
fn eras(ends: &[u64]) -> impl Iterator<Item = Range<u64>> {
    let begins = [0].into_iter().chain(ends.iter().copied());
    begins.zip(ends).map(|(begin, end)| begin..*end)
}

/// The frames that a group's members have recorded in an era.
fn frames_of(all: &[Vec<Got>], era: &Range<u64>) -> BTreeSet<u32> {
    let of_era = all.iter().flatten();
    let of_era = of_era.filter(|it| era.contains(&it.arrived_us));
    of_era.map(|it| it.number).collect()
}

/// Checks that each group has recorded the frames of a poller without gaps, except in the last
/// `burst` frames. Returns how many frames no group has.
fn ensure_whole(groups: &[BTreeSet<u32>], burst: u32) -> Result<u64> {
    let mut unseen = BTreeSet::new();
    for (number, frames) in groups.iter().enumerate() {
        let first = *frames.first().context("no frames")?;
        let last = *frames.last().context("no frames")?;
        let missing = (first..=last).filter(|it| !frames.contains(it));
        for frame in missing {
            if groups.iter().all(|it| !it.contains(&frame)) {
                unseen.insert(frame);
                continue;
            }
            ensure!(
                frame + burst > last,
                "frame {frame} of {first} to {last} is missing in group {number}"
            );
        }
    }
    Ok(unseen.len() as u64)
}

/// Kills a poller `count` times, and starts the next one. The last poller ends by SIGTERM.
fn are_killed(source: &'static str, count: usize) -> Result<()> {
    on_wire(1, |wire| {
        let mut ends = Ends::new(wire, source);
        let mut poller = ends.start()?;
        // A handle on no network interface can't wait.
        ends.join(HOWS[usize::from(source != "dpdk")])?;
        ends.join(HOWS[0])?;
        let load = Load::start_at(RATE)?;
        ends.phase()?;
        let descriptors = |ends: &Ends<'_>| -> Result<Vec<Vec<usize>>> {
            ends.teams.iter().map(Team::descriptors).collect()
        };
        let before = descriptors(&ends)?;
        for _ in 0..count {
            ends.end(poller, Poller::kill)?;
            poller = ends.start()?;
            ends.join(HOWS[0])?;
            ends.phase()?;
        }
        ensure!(descriptors(&ends)? == before, "descriptors are left open");
        let summary = ends.end(poller, Poller::end)?;
        ends.check(&load.stop()?, &summary)
    })
}

/// Stops a poller for two seconds. No member leaves its group.
fn is_stopped(source: &'static str) -> Result<()> {
    on_wire(1, |wire| {
        let mut ends = Ends::new(wire, source);
        let poller = ends.start()?;
        HOWS.iter().try_for_each(|how| ends.join(how))?;
        let load = Load::start_at(RATE)?;
        ends.phase()?;
        poller.signal("STOP")?;
        thread::sleep(Duration::from_secs(2));
        poller.signal("CONT")?;
        ends.phase()?;
        let sent = load.stop()?;
        // A poller takes frames in their order, so it has then taken all.
        ends.await_frame(sent.end() - 1)?;
        let got = sent.count() as u64;
        let summary = ends.end(poller, Poller::end)?;
        ensure!(summary.received == got, "{summary:?} of {got}");
        ensure!(summary.dropped > 0, "{summary:?}");
        ensure!(
            summary.produced == 2 * (got - summary.dropped),
            "{summary:?}"
        );
        ends.check(&sent, &summary)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_go_on_or_fail_when_their_poller_is_killed_under_load() -> Result<()> {
    are_killed("packet", 2)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_poller_that_is_stopped_for_a_while_loses_no_member_and_counts_what_it_missed() -> Result<()> {
    is_stopped("packet")?;
    is_stopped("afxdp")
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_read_their_pools_when_their_poller_of_dpdk_is_killed_under_load() -> Result<()> {
    match dpdk::is_here() {
        true => are_killed("dpdk", 2),
        false => Ok(()),
    }
}

mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn a_poller_of_packet_sockets_is_killed_twenty_times() -> Result<()> {
        are_killed("packet", 20)
    }

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn a_poller_of_af_xdp_is_killed_twenty_times() -> Result<()> {
        are_killed("afxdp", 20)
    }
}
