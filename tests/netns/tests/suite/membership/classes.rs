//! Members of classes, on the XDP engine and at a poller. Each class shares its own packets. A
//! member that joins or ends moves only flows of its own class.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use fanpcap_group::view::{State, View};
use fanpcap_netns::poller::Poller;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for;
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::dpdk;

use super::load::{FLOWS, Load, Sent};
use super::recorder::{End, Recorder};
use super::records::{self, Got};
use super::scene::ON_XDP;
use super::table::{self, BUCKETS};

const GROUP: u16 = 7;

/// About half of the flows belong to class 2.
const PROGRAM: &str = "main = do\n  when (udp_source .< 33000) (classify 2)\n  steer_flow\n";

/// The group's members, and the wire at which they capture.
struct Scene<'a> {
    wire: &'a Wire,
    /// The poller, if the packets come from one.
    poller: Option<Poller>,
    /// The argument of a recorder that selects the engine.
    engine: &'static str,
    members: Vec<Recorder>,
    program: String,
}

impl<'a> Scene<'a> {
    /// Starts two members without a class, and two of class 2.
    fn start(wire: &'a Wire, engine: &'static str) -> Result<Self> {
        let file = wire.scratch.file("classes.steer");
        std::fs::write(&file, PROGRAM)?;
        let source = engine.strip_prefix("driver=").unwrap_or_default();
        let start = || Poller::start(source, &wire.scratch);
        let mut scene = Self {
            wire,
            poller: (engine != ON_XDP).then(start).transpose()?,
            engine,
            members: Vec::new(),
            program: format!("file:{}", file.display()),
        };
        for option in ["", "", "+class=2", "+class=2"] {
            scene.join(option)?;
        }
        scene.await_shares(&[(0, 2048), (0, 2048), (2, 2048), (2, 2048)])?;
        Ok(scene)
    }

    fn join(&mut self, option: &str) -> Result<()> {
        let mode = format!("{}{option}", self.program);
        let member = Recorder::start_as(self.wire, DEVICE, GROUP, &mode, &[self.engine])?;
        self.members.push(member);
        Ok(())
    }

    fn view(&self) -> Result<View> {
        match &self.poller {
            Some(poller) => poller.look(GROUP),
            None => table::view(GROUP),
        }
    }

    /// Waits until each pair in `expected` is the class and the number of buckets of one living
    /// member.
    fn await_shares(&self, expected: &[(u8, usize)]) -> Result<()> {
        await_for("each member's share", LIMIT, || {
            let places = self.view()?.places.into_iter();
            let live = places.filter(|it| it.state == State::Live);
            let mut shares: Vec<(u8, usize)> = live.map(|it| (it.class, it.buckets)).collect();
            shares.sort_unstable();
            Ok((shares == expected).then_some(()))
        })
    }

    /// The records of each member.
    fn got(&self, sent: &Sent) -> Result<Vec<Vec<Got>>> {
        let of_member = |member: &Recorder| {
            let got = records::read(&member.file)?.into_iter();
            Ok(got.map(|got| sent.number(got)).collect())
        };
        self.members.iter().map(of_member).collect()
    }

    /// Sends for a while, then pauses.
    fn send(&self, load: &mut Load) -> Result<()> {
        load.go_on(DEVICE)?;
        load.await_each_flow()?;
        load.pause()
    }

    fn recorded(&self) -> Result<u64> {
        let counts = self.members.iter().map(|it| records::count(&it.file));
        counts.sum()
    }

    /// Waits until the group's ledger has at least `offered` offered packets. Returns how many
    /// packets were dropped because their class had no member.
    fn await_ledger(&self, offered: u64) -> Result<u64> {
        await_for("the ledger", LIMIT, || {
            let Some(ledger) = self.view()?.ledger.filter(|it| it.offered >= offered) else {
                return Ok(None);
            };
            let sum = ledger.produced + ledger.dropped + ledger.unwanted + ledger.nowhere;
            ensure!([ledger.host_sent, ledger.no_time] == [0; 2], "{ledger:?}");
            ensure!(ledger.offered == sum + ledger.no_member, "{ledger:?}");
            ensure!(ledger.dropped == 0, "{ledger:?}");
            Ok(Some(ledger.no_member))
        })
    }
}

/// The flows of these packets.
fn flows<'a>(got: impl IntoIterator<Item = &'a Got>) -> BTreeSet<u32> {
    got.into_iter().map(|got| got.number % FLOWS).collect()
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_death_moves_flows_of_its_class_alone() -> Result<()> {
    one_of_a_class_dies(ON_XDP)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_death_at_a_poller_moves_flows_of_its_class_alone() -> Result<()> {
    one_of_a_class_dies("driver=packet")?;
    one_of_a_class_dies("driver=afxdp")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_death_at_a_poller_of_dpdk_moves_flows_of_its_class_alone() -> Result<()> {
    match dpdk::is_here() {
        true => one_of_a_class_dies("driver=dpdk"),
        false => Ok(()),
    }
}

fn one_of_a_class_dies(engine: &'static str) -> Result<()> {
    on_wire(1, |wire| {
        let mut scene = Scene::start(wire, engine)?;
        let mut load = Load::start_at("20kpps")?;
        load.await_each_flow()?;
        // A member is killed during the load.
        scene.members[2].end(End::Killed)?;
        scene.await_shares(&[(0, 2048), (0, 2048), (2, BUCKETS)])?;
        load.await_each_flow()?;
        load.pause()?;
        let sent = load.sent().count() as u64;
        ensure!(scene.await_ledger(sent)? == 0);
        await_for("all frames", LIMIT, || {
            // The killed member may have been handling one packet.
            Ok((scene.recorded()? + 1 >= sent).then_some(()))
        })?;
        let got = scene.got(load.sent())?;
        ensure_each_once(&got, load.sent(), &[2])?;
        let [one, other, dead, taker] = [0, 1, 2, 3].map(|member| flows(&got[member]));
        ensure!(
            one.is_disjoint(&other),
            "flows of the other class have moved"
        );
        let classes = [one.len() + other.len(), dead.union(&taker).count()];
        ensure!(classes[0] + classes[1] == FLOWS as usize, "{classes:?}");
        ensure!(classes.iter().all(|flows| *flows > 1000), "{classes:?}");
        ensure!(
            dead.is_subset(&taker),
            "the flows of the killed member did not stay in its class"
        );
        let gone = scene.view()?.gone;
        let all = gone.taken + gone.inherited + gone.unread;
        ensure!(gone.members == 1 && gone.unknown == 0, "{gone:?}");
        ensure!(gone.received == all && gone.unread == 0, "{gone:?}");
        ensure_class_without_members_is_counted(&mut scene, &mut load, &taker)?;
        scene.members.iter_mut().try_for_each(Recorder::stop)
    })
}

/// Checks that each frame was recorded once. For each killed member, one frame of its flows may be
/// missing: the frame that the member was handling.
fn ensure_each_once(got: &[Vec<Got>], sent: &Sent, killed: &[usize]) -> Result<()> {
    let mut times: BTreeMap<u32, u32> = sent.numbers().flatten().map(|it| (it, 0)).collect();
    for got in got.iter().flatten() {
        let times = times.get_mut(&got.number);
        *times.with_context(|| format!("{got:?} was never sent"))? += 1;
    }
    let doubled = times.values().filter(|times| **times > 1).count();
    let missing: Vec<u32> = times
        .iter()
        .filter(|it| *it.1 == 0)
        .map(|it| *it.0)
        .collect();
    let theirs = flows(killed.iter().flat_map(|member| &got[*member]));
    let of_killed = missing
        .iter()
        .all(|number| theirs.contains(&(number % FLOWS)));
    ensure!(doubled == 0, "{doubled} doubled");
    ensure!(
        missing.len() <= killed.len() && of_killed,
        "lost: {missing:?}"
    );
    Ok(())
}

/// The last member of class 2 ends. Then packets of the class must be counted as packets without a
/// member. When another member of the class joins, it must get the following packets.
fn ensure_class_without_members_is_counted(
    scene: &mut Scene<'_>,
    load: &mut Load,
    of_class: &BTreeSet<u32>,
) -> Result<()> {
    scene.members[3].end(End::Leaves)?;
    scene.await_shares(&[(0, 2048), (0, 2048)])?;
    let before = scene.recorded()?;
    scene.send(load)?;
    let numbers = load.sent().numbers().last().context("nothing sent")?;
    let classified = numbers
        .clone()
        .filter(|it| of_class.contains(&(it % FLOWS)));
    let classified = classified.count() as u64;
    let nobodys = scene.await_ledger(load.sent().count() as u64)?;
    ensure!(
        nobodys == classified && classified > 0,
        "{nobodys}, {classified}"
    );
    let others = numbers.len() as u64 - classified;
    await_for("the frames of the other class", LIMIT, || {
        Ok((scene.recorded()? == before + others).then_some(()))
    })?;
    scene.join("+class=2")?;
    scene.await_shares(&[(0, 2048), (0, 2048), (2, BUCKETS)])?;
    let before = scene.recorded()?;
    scene.send(load)?;
    let numbers = load.sent().numbers().last().context("nothing sent")?;
    await_for("all frames again", LIMIT, || {
        Ok((scene.recorded()? == before + numbers.len() as u64).then_some(()))
    })?;
    ensure!(scene.await_ledger(load.sent().count() as u64)? == nobodys);
    Ok(())
}
