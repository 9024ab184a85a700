//! Balanced groups. After a few rounds, the busiest member has hardly more packets than the others.
//! No packet is lost. Flows with traffic stay at their members unless the mode lets all flows move
//! (`balance=all`).

mod mix;

use std::ops::Range;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_group::view::{GroupTable, Leveled};
use fanpcap_linux::interface;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for;
use fanpcap_testkit::await_for::LIMIT;

use super::load::print;
use super::recorder::{End, Recorder};
use super::scene::{ON_XDP, on_wire_of};
use super::table::{BUCKETS, Table};
use mix::{Mix, Seen};

const GROUP: u16 = 7;
const MEMBERS: usize = 4;

/// The number of rounds within which members must be balanced.
const ROUNDS: u64 = 20;

/// The balanced group of a test.
struct Group<'a> {
    wire: &'a Wire,
    members: Vec<Recorder>,
    table: Table,
    view: GroupTable,
}

impl<'a> Group<'a> {
    fn start(wire: &'a Wire, mode: &str, how: &[&str]) -> Result<Self> {
        let start = |_| Recorder::start_as(wire, DEVICE, GROUP, mode, how);
        let mut members = vec![start(0)?];
        let table = Table::of(members[0].pid()?)?;
        for count in 2..=MEMBERS {
            members.push(start(count)?);
            await_for("a newcomer's share", LIMIT, || {
                Ok((table.owners().shares().len() == count).then_some(()))
            })?;
        }
        let ifindex = interface::index(DEVICE).context("no device")?;
        let view = GroupTable::find(ifindex, GROUP, LIMIT).map_err(anyhow::Error::msg)?;
        Ok(Self {
            wire,
            members,
            table,
            view: view.context("no table")?,
        })
    }

    fn leveled(&self) -> Result<Leveled> {
        let view = self.view.look().context("another group's table")?;
        view.leveled.context("the group is not balanced")
    }

    /// Sends the mix until `rounds` more rounds are over. Calls `next` after each round, with the
    /// round's number.
    fn send(
        &self,
        mix: &mut Mix,
        rounds: u64,
        next: &mut dyn FnMut(&mut Mix, u64) -> Result<()>,
    ) -> Result<()> {
        let first = self.leveled()?.rounds;
        let mut done = 0;
        while done < rounds {
            mix.send(self.wire)?;
            thread::sleep(Duration::from_millis(5));
            let leveled = self.leveled()?;
            while done < leveled.rounds - first {
                done += 1;
                print(&format!(
                    "round {done}: {:.1} % above",
                    leveled.above as f64 / 10.0
                ));
                next(mix, done)?;
            }
        }
        Ok(())
    }

    /// Ends all members. Returns the packets that each member has got. The test has killed `killed`
    /// members; each may have been handling one frame, which it did not record.
    fn finish(mut self, mix: &Mix, killed: usize) -> Result<Seen> {
        let seen = mix.await_all(&self.members, killed)?;
        self.members.iter_mut().try_for_each(Recorder::stop)?;
        Ok(seen)
    }
}

/// Adds a flow in each eighth bucket. Adds flows in some more of the second member's buckets, so
/// that this member gets 1.5 times its share.
fn skewed(mix: &mut Mix, group: &Group<'_>) {
    let owners = group.table.owners();
    let even = (0..BUCKETS).step_by(8);
    mix.add(even);
    let its = (0..BUCKETS).filter(|&bucket| owners.of(bucket) == 1 && !mix.has(bucket));
    let more: Vec<usize> = its.step_by(9).collect();
    mix.add(more.into_iter());
}

/// Checks that the busiest member got far more packets than the mean in the first half of the
/// `first` packets, and hardly more than the mean in the packets `last`.
fn ensure_leveled(seen: &Seen, first: usize, last: Range<usize>) -> Result<()> {
    let (before, after) = (seen.above(0..first / 2), seen.above(last));
    print(&format!(
        "the busiest member: {before:.1} % above the mean, then {after:.1} %"
    ));
    ensure!(before > 40.0 && after <= 5.0, "{before} to {after}");
    Ok(())
}

fn all_buckets_level_the_members(how: &'static [&'static str]) -> Result<()> {
    on_wire_of(how, |wire| {
        let group = Group::start(wire, "flow+balance=all", how)?;
        let mut mix = Mix::new()?;
        skewed(&mut mix, &group);
        group.send(&mut mix, 1, &mut |_, _| Ok(()))?;
        let first = mix.sent();
        group.send(&mut mix, ROUNDS - 1, &mut |_, _| Ok(()))?;
        let last = mix.sent();
        group.send(&mut mix, 4, &mut |_, _| Ok(()))?;
        let seen = group.finish(&mix, 0)?;
        ensure_leveled(&seen, first, last..mix.sent())?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_busiest_member_is_level_within_twenty_rounds() -> Result<()> {
    all_buckets_level_the_members(&[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn live_flows_stay_and_new_ones_level_the_members() -> Result<()> {
    on_wire(1, |wire| {
        let group = Group::start(wire, "flow+balance", &[])?;
        let mut mix = Mix::new()?;
        skewed(&mut mix, &group);
        group.send(&mut mix, 1, &mut |_, _| Ok(()))?;
        let first = mix.sent();
        group.send(&mut mix, ROUNDS - 1, &mut |mix, round| {
            let skipped = usize::try_from(round)?;
            let news = (0..BUCKETS).skip(skipped).step_by(20);
            let news: Vec<usize> = news.filter(|&bucket| !mix.has(bucket)).collect();
            mix.add(news.into_iter());
            Ok(())
        })?;
        let last = mix.sent();
        group.send(&mut mix, 4, &mut |_, _| Ok(()))?;
        let seen = group.finish(&mix, 0)?;
        ensure_leveled(&seen, first, last..mix.sent())?;
        ensure!(
            seen.flows_apart() == 0,
            "{} flows moved",
            seen.flows_apart()
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_flow_of_more_than_a_share_is_named_and_stays() -> Result<()> {
    on_wire(1, |wire| {
        let group = Group::start(wire, "flow+balance=all", &[])?;
        let mut mix = Mix::new()?;
        mix.add((0..BUCKETS).step_by(8));
        let elephant = 100;
        mix.add(std::iter::repeat_n(elephant, BUCKETS / 8));
        let owner = group.table.owners().of(elephant);
        group.send(&mut mix, ROUNDS, &mut |_, _| Ok(()))?;
        let named = group.leveled()?.elephants;
        ensure!(named.len() == 1, "{named:?}");
        let of = (usize::from(named[0].bucket), named[0].slot.0);
        ensure!(
            of == (elephant, owner) && named[0].part.abs_diff(500) < 60,
            "{named:?}"
        );
        ensure!(group.table.owners().of(elephant) == owner);
        group.finish(&mix, 0)?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_agree_on_how_they_are_balanced() -> Result<()> {
    on_wire(1, |wire| {
        let mut first = Recorder::start_as(wire, DEVICE, GROUP, "flow+balance", &[])?;
        for asked in ["flow", "flow+balance=all", "flow+sticky+balance"] {
            let refused = Recorder::start_as(wire, DEVICE, GROUP, asked, &[]);
            let said = refused
                .err()
                .map_or_else(String::new, |it| format!("{it:#}"));
            let reason = format!("group 7 runs the program 'flow+balance', not '{asked}'");
            ensure!(said.contains(&reason), "{said}");
        }
        first.stop()
    })
}

/// Tests that last too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test"]
    fn the_same_on_xdp() -> Result<()> {
        all_buckets_level_the_members(&[ON_XDP])
    }

    /// The member that runs the balancing rounds is killed, and the next member continues the
    /// rounds.
    #[test]
    #[ignore = "needs root: run by make test"]
    fn who_does_the_rounds_is_killed_and_the_next_goes_on() -> Result<()> {
        on_wire(1, |wire| {
            let mut group = Group::start(wire, "flow+balance=all", &[])?;
            let mut mix = Mix::new()?;
            skewed(&mut mix, &group);
            group.send(&mut mix, 2, &mut |_, _| Ok(()))?;
            group.members[0].end(End::Killed)?;
            group.send(&mut mix, ROUNDS, &mut |_, _| Ok(()))?;
            let last = mix.sent();
            group.send(&mut mix, 4, &mut |_, _| Ok(()))?;
            let seen = group.finish(&mix, 1)?;
            // `above` compares only members that got frames: here the three that are left.
            let after = seen.above(last..mix.sent());
            ensure!(after <= 5.0, "{after}");
            Ok(())
        })
    }
}
