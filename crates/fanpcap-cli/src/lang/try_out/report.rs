//! The report of `fanpcap lang try`. Its fields are those of the JSON.

mod text;

use std::collections::BTreeMap;
use std::path::PathBuf;

use fanpcap_steer::ir::Tree;
use fanpcap_wire::FlowKey;
use serde::Serialize;

use super::Arguments;
use super::engine::Engine;
use super::flows::{Fate, Flow, Flows};
use super::members::Members;
use super::packets::flow_between;
use super::tally::{Amount, Tally};
use crate::lang::unknown;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    capture: PathBuf,
    #[serde(flatten)]
    read: Amount,
    /// The file ends within a packet, and the report leaves out that packet.
    cut: bool,
    /// Why a kernel group can't run the steering program.
    not_in_group: Option<String>,
    members: Vec<Member>,
    skew: Option<f64>,
    dropped: Amount,
    copied: Amount,
    /// Number of copies beyond the first of each packet, summed over all packets.
    copies: u64,
    /// Packets steered to classes that no member has, by class.
    classes: BTreeMap<u8, u64>,
    /// Packets that the host gets in addition to members.
    host_too: u64,
    host_only: u64,
    flows: OfFlows,
    datagrams: OfDatagrams,
    /// The steering program's own counters that are not 0.
    counters: BTreeMap<usize, u64>,
    /// Reasons why a live group may behave differently.
    caveats: Vec<String>,
}

/// One member.
#[derive(Debug, Serialize)]
struct Member {
    #[serde(flatten)]
    amount: Amount,
    /// Percentage of the packets that at least one member gets.
    share: Option<f64>,
    /// Flows of which the member gets packets.
    flows: u64,
}

/// Numbers of the flows that at least one member gets.
#[derive(Debug, Default, Serialize)]
struct OfFlows {
    total: u64,
    /// Flows of which no member gets all packets of one direction.
    split: u64,
    /// Flows whose directions go to different members.
    apart: u64,
    /// Flows that are whole except for late datagrams.
    left_by_late: u64,
    both_directions: u64,
    /// Whether both directions of every flow reach the same member. `None` if the capture has no
    /// flow in both directions.
    symmetric: Option<bool>,
    /// The largest of the flows that are not whole.
    examples: Vec<Example>,
    not_ip_packets: u64,
    /// For each outer protocol, the number of packets whose inner packet can't be read.
    unread_packets: BTreeMap<&'static str, u64>,
    /// Packets whose inner packet can't be read, in percent of the packets that a member gets.
    unread_share: Option<f64>,
}

/// A flow that is not whole.
#[derive(Debug, Serialize)]
struct Example {
    flow: String,
    packets: u64,
    /// The members that get the flow's packets, for each direction: from the lower end, and from
    /// the higher end.
    members: [Vec<usize>; 2],
}

/// Datagrams in fragments.
#[derive(Debug, Serialize)]
struct OfDatagrams {
    total: u64,
    split: u64,
    late: u64,
    /// Fragments that the steering program could not assign to their flow.
    late_fragments: u64,
}

/// The most flows in the list of examples.
const EXAMPLES: usize = 5;

impl Report {
    pub(super) fn new(
        arguments: &Arguments,
        program: &Tree,
        engine: &Engine,
        (tally, flows): (&Tally, &Flows),
        (shortened, cut): (u64, bool),
    ) -> Self {
        let mut caveats = unknown::of(program);
        if shortened > 0 {
            let read = tally.read.packets;
            caveats.push(format!(
                "{shortened} of {read} packets were captured in part; on a device the program reads whole packets"
            ));
        }
        let datagrams = &flows.datagrams;
        let counters = engine.counters().into_iter().enumerate();
        Self {
            capture: arguments.capture.clone(),
            read: tally.read,
            cut,
            not_in_group: engine.unfit().map(ToString::to_string),
            members: members(tally, flows),
            skew: tally.skew(),
            dropped: tally.dropped,
            copied: tally.copied,
            copies: tally.copies,
            classes: tally.classes.clone(),
            host_too: tally.host[0],
            host_only: tally.host[1],
            flows: OfFlows::new(flows, tally),
            datagrams: OfDatagrams {
                total: datagrams.total,
                split: datagrams.split,
                late: datagrams.late,
                late_fragments: engine.late(),
            },
            counters: counters.filter(|(_, count)| *count != 0).collect(),
            caveats,
        }
    }
}

fn members(tally: &Tally, flows: &Flows) -> Vec<Member> {
    let mut parts = vec![0; tally.members.len()];
    for (_, flow) in flows.iter() {
        let [one, other] = flow.members();
        one.or(other)
            .numbers()
            .for_each(|member| parts[member] += 1);
    }
    let member = |(amount, flows): (&Amount, u64)| Member {
        amount: *amount,
        share: percent(amount.packets, tally.given.packets),
        flows,
    };
    tally.members.iter().zip(parts).map(member).collect()
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

impl OfFlows {
    fn new(flows: &Flows, tally: &Tally) -> Self {
        let unread = flows.unread.values().sum();
        let mut told = Self {
            not_ip_packets: flows.strangers,
            unread_packets: flows.unread.clone(),
            unread_share: percent(unread, tally.given.packets),
            ..Self::default()
        };
        let mut broken: Vec<(&FlowKey, &Flow)> = Vec::new();
        for (key, flow) in flows.iter() {
            told.total += 1;
            told.both_directions += u64::from(flow.goes_both_ways());
            let kind = match flow.fate() {
                Fate::Whole => continue,
                Fate::Apart => &mut told.apart,
                Fate::Split => &mut told.split,
                Fate::Late => &mut told.left_by_late,
            };
            *kind += 1;
            broken.push((key, flow));
        }
        let meets = |flow: &Flow| matches!(flow.fate(), Fate::Whole | Fate::Late);
        let all_meet = !broken
            .iter()
            .any(|(_, flow)| flow.goes_both_ways() && !meets(flow));
        told.symmetric = (told.both_directions > 0).then_some(all_meet);
        broken.sort_by_key(|(key, flow)| (std::cmp::Reverse(flow.packets()), **key));
        told.examples = broken.into_iter().take(EXAMPLES).map(example).collect();
        told
    }
}

fn example((key, flow): (&FlowKey, &Flow)) -> Example {
    let [one, other] = key.ends();
    Example {
        flow: flow_between(key.protocol(), one, "-", other),
        packets: flow.packets(),
        members: flow
            .members()
            .map(|members| Members::numbers(members).collect()),
    }
}
