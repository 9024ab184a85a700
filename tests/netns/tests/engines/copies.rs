//! The copies of tcpdump on an engine, and what they have captured.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use fanpcap_group::view::{State, View};
use fanpcap_netns::poller::Summary;
use fanpcap_netns::{Wire, ensure_each_once, ensure_flows_whole, on_wire, shares};
use fanpcap_snapshot::Source;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::member::{self, Member, wait_for_members, wait_for_packets};
use fanpcap_testkit::traffic::Frame;
use fanpcap_testkit::{Capture, FlowKey};

use crate::engine::{Engine, Served};
use crate::truth::{self, COUNT, MEMBERS};

/// What the members of both groups have captured.
pub(crate) struct Outcome {
    /// The members of group 5, in the order in which they were started.
    pub(crate) flow: Vec<Capture>,
    /// Those of group 6, or the reason why the engine refuses their steering program.
    pub(crate) steered: Result<Vec<Capture>, String>,
}

/// Frames that are sent at a time. The members have captured them before the next ones are sent, so
/// nothing is lost on a busy machine.
const PART: usize = 400;

const REFUSED: &str = "PF_RING runs no steering programs";

/// Runs the members on an engine, whose settings are in a file with this text. Checks that their
/// captures, their counters and those of the poller account for all frames.
pub(crate) fn capture(engine: Engine, configuration: &str) -> Result<Outcome> {
    let frames = truth::frames()?;
    on_wire(1, |wire| {
        let configuration = wire.scratch.write("pcap.conf", configuration)?;
        let configuration = configuration.display().to_string();
        let served = engine.serve(wire)?;
        let outcome = captured(wire, &served, (engine, &configuration), &frames)?;
        outcome.check(&frames)?;
        if let Some(summary) = served.end()? {
            check_summary(summary, &frames)?;
        }
        Ok(outcome)
    })
    .with_context(|| engine.device())
}

fn captured(
    wire: &Wire,
    served: &Served,
    (engine, configuration): (Engine, &str),
    frames: &[Frame],
) -> Result<Outcome> {
    let start = |(group, count)| start(wire, served, (engine, configuration), (group, count));
    let [first, second] = MEMBERS;
    let flow = start(first)?;
    let steered = match engine.is_steered() {
        true => start(second)?,
        false => Vec::new(),
    };
    served.check()?;
    for part in (0..frames.len()).step_by(PART) {
        let end = frames.len().min(part + PART);
        wire.send_as_tap(&frames[part..end])?;
        wait_for_packets(&flow, end)?;
        let for_members = end - usize::try_from(truth::dropped(&frames[..end]))?;
        wait_for_packets(&steered, if steered.is_empty() { 0 } else { for_members })?;
    }
    let steered = match engine.is_steered() {
        true => {
            await_dropped(second.0, truth::dropped(frames))?;
            let count = frames.len() - usize::try_from(truth::dropped(frames))?;
            Ok(member::finish(steered, count)?)
        }
        false => Err(refusal(wire, served, configuration)?),
    };
    Ok(Outcome {
        flow: member::finish(flow, frames.len())?,
        steered,
    })
}

/// Starts the members of a group one after the other. Each one has its share before the next one
/// is started, so the shares do not depend on chance.
fn start(
    wire: &Wire,
    served: &Served,
    (engine, configuration): (Engine, &str),
    (group, count): (u16, usize),
) -> Result<Vec<Member>> {
    let start = |members: usize| {
        let program = served.tcpdump(wire, configuration)?;
        let program = program.set("PCAP_GROUP", group.to_string());
        let member = program.start(&wire.scratch)?;
        match engine.is_steered() {
            true => await_shares(group, members)?,
            false => wait_for_members(group, members)?,
        }
        Ok(member)
    };
    (1..=count).map(start).collect()
}

/// The reason why the engine refuses a steering program.
fn refusal(wire: &Wire, served: &Served, configuration: &str) -> Result<String> {
    let program = served.tcpdump(wire, configuration)?.set("PCAP_GROUP", "6");
    let ended = program.run(&wire.scratch)?;
    ensure!(!ended.status.success(), "not refused: {}", ended.said);
    let said = ended.said.replace('\n', " ");
    ensure!(said.contains(REFUSED), "{said}");
    Ok(REFUSED.to_owned())
}

/// The table of a group in the calling thread's network namespace, of whatever engine.
fn look(group: u16) -> Result<Option<View>> {
    let tables = Source::new(None)?.take()?.tables.into_iter();
    let mut found = tables.filter(|((_, number), _)| *number == group);
    Ok(found.next().map(|(_, view)| view))
}

/// Waits until each of a group's members has its share.
fn await_shares(group: u16, members: usize) -> Result<()> {
    await_for("the members' shares", LIMIT, || {
        let places = look(group)?.map(|it| it.places).unwrap_or_default();
        let live = places.iter().filter(|it| it.state == State::Live);
        let buckets: Vec<usize> = live.map(|it| it.buckets).collect();
        let [least, most] = [buckets.iter().min(), buckets.iter().max()];
        let differ = most.zip(least).map_or(0, |(most, least)| most - least);
        Ok((buckets.len() == members && differ < 2).then_some(()))
    })
}

/// Waits until the group has counted the packets that its steering program has dropped.
fn await_dropped(group: u16, expected: u64) -> Result<()> {
    let mut counted = None;
    await_for("dropped packets", LIMIT, || {
        counted = look(group)?.and_then(|it| it.nowhere);
        Ok((counted >= Some(expected)).then_some(()))
    })
    .with_context(|| format!("{counted:?} of {expected}"))?;
    ensure!(counted == Some(expected), "{counted:?} of {expected}");
    Ok(())
}

/// The poller got each frame once, and offered it to both groups.
fn check_summary(summary: Summary, frames: &[Frame]) -> Result<()> {
    let nowhere = truth::dropped(frames);
    let expected = Summary {
        received: COUNT,
        offered: 2 * COUNT,
        produced: 2 * COUNT - nowhere,
        nowhere,
        ..Summary::default()
    };
    ensure!(summary == expected, "{summary:?}, not {expected:?}");
    Ok(())
}

impl Outcome {
    /// Compares with the truth: group 5 has each frame once and splits no flow, and each member of
    /// group 6 has the frames that it has to get.
    fn check(&self, frames: &[Frame]) -> Result<()> {
        ensure_each_once(&self.flow, frames)?;
        ensure_flows_whole(&self.flow)?;
        let Ok(steered) = &self.steered else {
            return Ok(());
        };
        for (number, capture) in steered.iter().enumerate() {
            let due = frames.iter().filter(|it| truth::member(it) == Some(number));
            let due: BTreeSet<u64> = due.map(|it| it.sequence).collect();
            let got = capture.packets.iter().filter_map(|it| it.sequence);
            let got: BTreeSet<u64> = got.collect();
            let len = capture.packets.len();
            ensure!(
                got == due && len == due.len(),
                "member {number} has {len} of {}",
                due.len()
            );
        }
        Ok(())
    }

    /// The member of group 5 that has a flow's packets.
    fn owners(&self) -> BTreeMap<FlowKey, usize> {
        let of = |(member, capture): (usize, &Capture)| {
            let flows = capture.flows().into_keys();
            flows.map(move |flow| (flow, member)).collect::<Vec<_>>()
        };
        self.flow.iter().enumerate().flat_map(of).collect()
    }

    /// How many flows of group 5 are at another member than in the other outcome.
    pub(crate) fn moved(&self, other: &Self) -> usize {
        let (owners, others) = (self.owners(), other.owners());
        let differs = |(flow, member): &(&FlowKey, &usize)| others.get(flow) != Some(member);
        owners.iter().filter(differs).count()
    }

    pub(crate) fn shares(&self) -> Vec<usize> {
        shares(&self.flow)
    }
}
