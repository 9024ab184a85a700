//! Judges a run: every packet has one owner, or is a counted double or a counted loss.
//!
//! No packets are generated. For each bucket, the proof computes the times at which a packet could
//! be missed. Nodes process the same packet at different times, at most [`SKEW`] apart. A packet
//! that the port mirrors at the time `t` is certainly captured if some node captures the packet's
//! bucket from `t` to `t + SKEW`.

mod branches;
pub(crate) mod lineage;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::node::Assignment;
use fanpcap_cluster::{Phase, Revision, Topology};
use fanpcap_select::Claim;

use crate::machines::Machine;
use crate::run_plan::{END, OVER, RunKind, RunPlan};
use crate::store::Time;

/// The maximum time between the first and the last node that process a packet. It is the longest
/// measured time.
const SKEW: Time = 100_000;

/// A violation of the cluster's guarantees in a run.
pub(crate) enum Broken {
    /// A packet is missed although its bucket's owner did not fail.
    Missed { bucket: usize, at: Time },
    /// Two nodes capture a bucket by the same topology, and do not mark their records.
    Unmarked { bucket: usize, revision: u64 },
    /// Packets are lost although no machine failed.
    Lost { bucket: usize, at: Time },
    /// At the end of the run, a bucket does not have exactly one owner.
    Unsettled { bucket: usize, owners: usize },
    /// Two topologies have the same revision.
    Repeated(Revision),
    /// A node went back to an older topology, although its machine had not restarted in between.
    Older { node: u32, revision: u64 },
    /// At the end of the run, a change is unfinished, there is no topology, or there is not exactly
    /// one leader.
    Unfinished,
    /// The loss account's spans do not contain the doubled and the lost packets.
    Account(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |at: &Time| *at as f64 / 1e6;
        match self {
            Self::Missed { bucket, at } => {
                let at = seconds(at);
                write!(f, "bucket {bucket} is missed at {at}, but its owner works")
            }
            Self::Unmarked { bucket, revision } => {
                write!(
                    f,
                    "bucket {bucket} is captured twice by {revision}, and not marked"
                )
            }
            Self::Lost { bucket, at } => {
                write!(f, "bucket {bucket} is lost at {}", seconds(at))
            }
            Self::Unsettled { bucket, owners } => {
                write!(f, "bucket {bucket} has {owners} owners at the end")
            }
            Self::Older { node, revision } => {
                write!(f, "node {node} went back to topology {revision}")
            }
            Self::Repeated(revision) => write!(f, "two topologies have revision {revision}"),
            Self::Account(what) => f.write_str(what),
            Self::Unfinished => write!(f, "the last topology is not stable"),
        }
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The measurements of a run that violated none of the cluster's guarantees.
pub(crate) struct Verdict {
    pub(crate) loads: usize,
    /// Whether packets were lost.
    pub(crate) is_lossy: bool,
    /// The longest time in which packets were lost.
    pub(crate) longest: Time,
    /// In a fork, the longest time in which packets were lost although the owners of all branches
    /// worked; 0 if none were lost.
    pub(crate) forked: Time,
    /// The longest time in which packets were lost because the owner, after a restart of its
    /// machine, captured by an older topology than before the restart; 0 if none were lost.
    pub(crate) stale: Time,
    /// How many loss accounts of a run with `forked` or `stale` were compared with its packets.
    pub(crate) accounts: usize,
    /// The time from the end of all faults until the last change of a node's topology.
    pub(crate) settled: Time,
}

/// The state of the cluster's coordinators at the end of a run.
pub(crate) enum End<'a> {
    /// The cluster's topology. `None` if there is no topology, or not exactly one leader.
    Stands(Option<&'a Topology>),
    /// One coordinator leads. The leader knows neither a topology nor a live node with a weight.
    /// The cluster never had a topology, or the coordinators' files and the nodes' tables were all
    /// lost.
    Nobody,
}

/// From the time `from` on, the topologies with the indices `heads` are in force. In a fork several
/// topologies are in force.
#[derive(Debug)]
pub(crate) struct Era {
    pub(crate) from: Time,
    pub(crate) heads: Vec<usize>,
}

/// A run to be judged.
pub(crate) struct Run<'a> {
    pub(crate) machines: &'a [Machine],
    pub(crate) topologies: Vec<&'a Topology>,
    pub(crate) eras: Vec<Era>,
    /// For each machine, the times in which it captured by an older topology than before its last
    /// restart.
    pub(crate) stale: Vec<Spans>,
    pub(crate) end: End<'a>,
}

/// Spans of time (begin and end), in order.
pub(crate) type Spans = Vec<(Time, Time)>;

/// Checks that the run violated none of the guarantees in [`Broken`].
pub(crate) fn judge(run: &Run<'_>, plan: &RunPlan) -> Result<Verdict, Broken> {
    let machines = run.machines;
    let mut verdict = Verdict {
        loads: machines.iter().map(|machine| machine.segments.len()).sum(),
        is_lossy: false,
        longest: 0,
        forked: 0,
        stale: 0,
        accounts: 0,
        settled: last_change(machines).saturating_sub(OVER),
    };
    forward(machines)?;
    marks(machines)?;
    let tables = tables(run);
    let serving: Vec<Spans> = machines
        .iter()
        .map(|machine| eroded(spans(machine, |_| true)))
        .collect();
    let began = began(run, &tables, &serving);
    let mut known = BTreeSet::new();
    for bucket in 0..BUCKETS {
        let claims = machines.iter().flat_map(|machine| &machine.segments);
        let claims =
            claims.map(|segment| segment.assignment.as_ref().map(|it| it.claims.of(bucket)));
        let mut story: Vec<u8> = claims
            .map(|claim| claim.map_or(9, |claim| claim as u8))
            .collect();
        story.extend(tables.iter().map(|nodes| nodes[bucket]));
        if !known.insert(story) {
            continue;
        }
        let captured: Vec<Spans> = machines
            .iter()
            .map(|machine| spans(machine, |assignment| takes(assignment, bucket)))
            .collect();
        let owners = owners(run, &tables, bucket);
        let forks = forks(&owners);
        let missed = missed(&captured, &owners, &serving);
        let unforked = beyond(&missed, &forks);
        let unexplained = beyond(&unforked, &stale(&owners, &run.stale));
        if let Some((at, _)) = unexplained.first() {
            return Err(Broken::Missed { bucket, at: *at });
        }
        verdict.stale = verdict.stale.max(longest(&unforked));
        verdict.forked = verdict.forked.max(longest(&within(&missed, &forks)));
        let lost = gaps(union(captured), began, END);
        if plan.kind == RunKind::Calm {
            let unexplained = beyond(&lost, &forks);
            if let Some((at, _)) = unexplained.first() {
                return Err(Broken::Lost { bucket, at: *at });
            }
        }
        verdict.is_lossy |= !lost.is_empty();
        verdict.longest = verdict.longest.max(longest(&lost));
    }
    settled(run)?;
    Ok(verdict)
}

/// Checks that a node goes back to an older topology only if its machine starts again.
fn forward(machines: &[Machine]) -> Result<(), Broken> {
    for machine in machines {
        let held = machine.segments.iter();
        let held = held.filter_map(|it| Some((it.boot, it.assignment.as_ref()?.revision.0)));
        let held: Vec<(u64, u64)> = held.collect();
        let older = held.windows(2).find(|two| two[1] < two[0]);
        if let Some(two) = older {
            let (node, revision) = (machine.id.0, two[1].1);
            return Err(Broken::Older { node, revision });
        }
    }
    Ok(())
}

/// The time of the last change of a node's topology.
fn last_change(machines: &[Machine]) -> Time {
    let segments = machines
        .iter()
        .filter_map(|machine| machine.segments.last());
    segments.map(|segment| segment.from).max().unwrap_or(0)
}

/// The time at which the last owner of the first topology gets a table, so that the capture begins.
fn began(run: &Run<'_>, tables: &[Vec<u8>], serving: &[Spans]) -> Time {
    let first = run.eras.first().map_or(&[][..], |era| &era.heads);
    let first = first.iter().flat_map(|head| &tables[*head]);
    let begins = first.map(|node| serving[usize::from(*node)].first());
    let began = begins.map(|span| span.map_or(END, |(from, _)| *from)).max();
    began.unwrap_or(END)
}

fn longest(spans: &Spans) -> Time {
    let longest = spans.iter().map(|(from, to)| to - from).max();
    longest.unwrap_or(0)
}

fn takes(assignment: &Assignment, bucket: usize) -> bool {
    assignment.claims.of(bucket) != Claim::Elsewhere
}

/// For each topology, the number of the node that owns each bucket. Topologies that were never in
/// force have zeros.
fn tables(run: &Run<'_>) -> Vec<Vec<u8>> {
    let counts: BTreeSet<usize> = run
        .eras
        .iter()
        .flat_map(|era| &era.heads)
        .copied()
        .collect();
    let mut tables = Vec::new();
    for (place, topology) in run.topologies.iter().enumerate() {
        let mut nodes = [0; 256];
        for entry in &topology.nodes {
            let node = u8::try_from(entry.node.0 - 1);
            nodes[usize::from(entry.slot.0)] = node.expect("few nodes");
        }
        let slots = topology.owners.iter().flatten();
        let table = slots.map(|slot| nodes[usize::from(slot.0)]);
        let table = if counts.contains(&place) {
            table.collect()
        } else {
            vec![0; BUCKETS]
        };
        tables.push(table);
    }
    tables
}

/// The owners of a bucket, with the begin and the end of their time. In a fork a bucket may have
/// several owners at one time.
type Owners = Vec<(Time, Time, BTreeSet<u8>)>;

fn owners(run: &Run<'_>, tables: &[Vec<u8>], bucket: usize) -> Owners {
    let mut owners = Owners::new();
    for (at, era) in run.eras.iter().enumerate() {
        let to = run.eras.get(at + 1).map_or(END, |next| next.from);
        let nodes = era.heads.iter().map(|head| tables[*head][bucket]);
        owners.push((era.from, to, nodes.collect()));
    }
    owners
}

/// The times in which a bucket had different owners in the branches of a fork.
fn forks(owners: &Owners) -> Spans {
    let forks = owners.iter().filter(|(.., nodes)| nodes.len() > 1);
    forks
        .map(|(from, to, _)| (from.saturating_sub(SKEW), *to))
        .collect()
}

/// The times in which the machine captured by an assignment for which `is` returns true.
fn spans(machine: &Machine, is: impl Fn(&Assignment) -> bool) -> Spans {
    let mut spans = Spans::new();
    for (at, segment) in machine.segments.iter().enumerate() {
        let next = machine.segments.get(at + 1);
        // A machine's last assignment lasts beyond the end of the run, so that `eroded` cuts
        // nothing before the end.
        let to = next.map_or(END + 2 * SKEW, |next| next.from);
        if !segment
            .assignment
            .as_ref()
            .is_some_and(|assignment| is(assignment))
        {
            continue;
        }
        match spans.last_mut() {
            Some(last) if last.1 == segment.from => last.1 = to,
            _ => spans.push((segment.from, to)),
        }
    }
    spans
}

/// Shortens each span by [`SKEW`] at its end.
fn eroded(spans: Spans) -> Spans {
    let long = spans.into_iter().filter(|(from, to)| to - from > SKEW);
    long.map(|(from, to)| (from, to - SKEW)).collect()
}

fn union(all: Vec<Spans>) -> Spans {
    let mut all: Spans = all.into_iter().flatten().collect();
    all.sort_unstable();
    let mut union = Spans::new();
    for (from, to) in all {
        match union.last_mut() {
            Some(last) if last.1 >= from => last.1 = last.1.max(to),
            _ => union.push((from, to)),
        }
    }
    union
}

/// The times between `from` and `to` that are not in the spans.
fn gaps(spans: Spans, from: Time, to: Time) -> Spans {
    let mut gaps = Spans::new();
    let mut at = from;
    for (begin, end) in spans {
        if begin > at {
            gaps.push((at, begin.min(to)));
        }
        at = at.max(end);
        if at >= to {
            return gaps;
        }
    }
    gaps.push((at, to));
    gaps.retain(|(from, to)| from < to);
    gaps
}

/// The parts of `spans` that are not in `others`.
fn beyond(spans: &Spans, others: &Spans) -> Spans {
    let others = union(vec![others.clone()]);
    let parts = spans.iter().flat_map(|(from, to)| {
        let inside = others
            .iter()
            .filter(|other| other.1 > *from && other.0 < *to);
        gaps(inside.copied().collect(), *from, *to)
    });
    parts.collect()
}

/// The parts of `spans` that are in `others`.
fn within(spans: &Spans, others: &Spans) -> Spans {
    beyond(spans, &beyond(spans, others))
}

/// The times in which packets were missed although the bucket's owner worked. In a fork, a packet
/// counts as missed only if the bucket's owners in all branches worked. If the bucket's owner
/// changed before all nodes had processed the packet, the packet counts as missed only if the old
/// and the new owner worked.
fn missed(captured: &[Spans], owners: &Owners, serving: &[Spans]) -> Spans {
    let mut excused: Vec<Spans> = captured.iter().cloned().map(eroded).collect();
    for (from, to, nodes) in owners {
        for node in nodes {
            let owner = serving[usize::from(*node)].clone();
            excused.push(gaps(owner, from.saturating_sub(SKEW), *to));
        }
    }
    let began = owners.first().map_or(END, |(from, ..)| *from);
    gaps(union(excused), began, END)
}

/// The times in which the bucket's owner, after a restart of its machine, captured by an older
/// topology than before the restart.
fn stale(owners: &Owners, stale: &[Spans]) -> Spans {
    let mut spans = Spans::new();
    for (from, to, nodes) in owners {
        for (begin, end) in nodes.iter().flat_map(|node| &stale[usize::from(*node)]) {
            let span = ((*begin).max(*from).saturating_sub(SKEW), *end.min(to));
            spans.extend(Some(span).filter(|(from, to)| from < to));
        }
    }
    spans
}

/// Checks that nodes mark their records if two nodes capture a bucket by the same topology.
fn marks(machines: &[Machine]) -> Result<(), Broken> {
    let mut by_revision: BTreeMap<u64, BTreeMap<u32, Rc<Assignment>>> = BTreeMap::new();
    for machine in machines {
        for assignment in machine
            .segments
            .iter()
            .filter_map(|it| it.assignment.clone())
        {
            let nodes = by_revision.entry(assignment.revision.0).or_default();
            nodes.insert(machine.id.0, assignment);
        }
    }
    for (revision, nodes) in by_revision {
        for bucket in 0..BUCKETS {
            let (mut alone, mut shared) = (0, 0);
            for assignment in nodes.values() {
                match assignment.claims.of(bucket) {
                    Claim::Elsewhere => (),
                    Claim::Mine => alone += 1,
                    Claim::Shared => shared += 1,
                }
            }
            let is_good = (alone <= 1 && shared == 0) || (alone == 0 && shared <= 2);
            if !is_good {
                return Err(Broken::Unmarked { bucket, revision });
            }
        }
    }
    Ok(())
}

/// Checks that at the end the cluster is as planned: the topology is stable, and each bucket has
/// one owner.
fn settled(run: &Run<'_>) -> Result<(), Broken> {
    let is_stable = |topology: &Topology| topology.phase() == Phase::Stable;
    let is_held = |machine: &Machine| {
        machine
            .segments
            .last()
            .is_some_and(|it| it.assignment.is_some())
    };
    let mut least = 1;
    match run.end {
        End::Stands(last) if last.is_some_and(is_stable) => {}
        End::Nobody if !run.machines.iter().any(is_held) => return Ok(()),
        // A bucket may have no owner, or one owner whose kernel still captures by the lost
        // topology.
        End::Nobody => least = 0,
        End::Stands(_) => return Err(Broken::Unfinished),
    }
    for bucket in 0..BUCKETS {
        let tables = run
            .machines
            .iter()
            .filter_map(|it| it.segments.last()?.assignment.as_ref());
        let owners = tables
            .filter(|assignment| takes(assignment, bucket))
            .count();
        if !(least..=1).contains(&owners) {
            return Err(Broken::Unsettled { bucket, owners });
        }
    }
    Ok(())
}
