//! Judges a run: every packet has one owner, or is a counted double, or a counted loss.
//!
//! No packets are drawn. For each bucket the proof computes the times at which a packet could be
//! missed, if each node got to it by up to [`SKEW`] later than the first. A packet of time `t` is
//! certainly captured if some node captures its bucket from `t` to `t + SKEW`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::Phase;
use fanpcap_cluster::node::Orders;
use fanpcap_select::Claim;

use crate::fate::{Scene, Weather};
use crate::machines::Machine;
use crate::store::Time;
use crate::world::{END, World};

/// By how much later one node may process a packet than another: the longest that was measured.
const SKEW: Time = 100_000;

/// A broken promise.
pub(crate) enum Broken {
    /// A packet is missed though its bucket's owner did not fail.
    Missed { bucket: usize, at: Time },
    /// Two nodes capture a bucket by one topology, and do not mark what they send.
    Unmarked { bucket: usize, revision: u64 },
    /// Packets are lost though no machine failed.
    Lost { bucket: usize, at: Time },
    /// When all is over, a bucket has not exactly one owner.
    Unsettled { bucket: usize, owners: usize },
    /// The run ends within a change, or without a topology.
    Unfinished,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |at: &Time| *at as f64 / 1e6;
        match self {
            Self::Missed { bucket, at } => {
                let at = seconds(at);
                write!(f, "bucket {bucket} is missed at {at}, and its owner works")
            }
            Self::Unmarked { bucket, revision } => {
                write!(
                    f,
                    "bucket {bucket} is captured twice and unmarked by {revision}"
                )
            }
            Self::Lost { bucket, at } => {
                write!(f, "bucket {bucket} is lost at {}", seconds(at))
            }
            Self::Unsettled { bucket, owners } => {
                write!(f, "bucket {bucket} has {owners} owners in the end")
            }
            Self::Unfinished => write!(f, "the last topology is no stable one"),
        }
    }
}

impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What was seen in a run that keeps its promises.
pub(crate) struct Verdict {
    pub(crate) loads: usize,
    /// Whether packets were lost.
    pub(crate) is_lossy: bool,
    /// The longest loss.
    pub(crate) longest: Time,
}

/// Times from one to another, in order.
type Spans = Vec<(Time, Time)>;

/// Says whether the run kept all promises.
pub(crate) fn judge(world: &World, scene: &Scene) -> Result<Verdict, Broken> {
    let machines = &world.machines;
    let mut verdict = Verdict {
        loads: machines.iter().map(|machine| machine.segments.len()).sum(),
        is_lossy: false,
        longest: 0,
    };
    marks(machines)?;
    let owners = owners(world);
    let serving: Vec<Spans> = machines
        .iter()
        .map(|machine| eroded(spans(machine, |_| true)))
        .collect();
    // The capture begins when all owners of the first topology have a table.
    let first = owners.first().map_or(&[][..], |(_, nodes)| nodes);
    let begins = first.iter().map(|node| serving[usize::from(*node)].first());
    let began = begins.map(|span| span.map_or(END, |(from, _)| *from)).max();
    let began = began.unwrap_or(END);
    let mut known = BTreeSet::new();
    for bucket in 0..BUCKETS {
        let claims = machines.iter().flat_map(|machine| &machine.segments);
        let claims = claims.map(|segment| segment.orders.as_ref().map(|it| it.claims.of(bucket)));
        let mut story: Vec<u8> = claims
            .map(|claim| claim.map_or(9, |claim| claim as u8))
            .collect();
        story.extend(owners.iter().map(|(_, nodes)| nodes[bucket]));
        if !known.insert(story) {
            continue;
        }
        let captured: Vec<Spans> = machines
            .iter()
            .map(|machine| spans(machine, |orders| takes(orders, bucket)))
            .collect();
        missed(bucket, &captured, &owners, &serving)?;
        let lost = gaps(union(captured), began, END);
        if let Some((at, _)) = lost.first().filter(|_| scene.weather == Weather::Calm) {
            return Err(Broken::Lost { bucket, at: *at });
        }
        verdict.is_lossy |= !lost.is_empty();
        let longest = lost.iter().map(|(from, to)| to - from).max();
        verdict.longest = verdict.longest.max(longest.unwrap_or(0));
    }
    settled(world)?;
    Ok(verdict)
}

fn takes(orders: &Orders, bucket: usize) -> bool {
    orders.claims.of(bucket) != Claim::Elsewhere
}

/// When each topology was in force, and the number of the node that owned each bucket.
fn owners(world: &World) -> Vec<(Time, Vec<u8>)> {
    let history = world.store.history.iter();
    let table = |topology: &fanpcap_cluster::Topology| {
        let mut nodes = [0; 256];
        for seat in &topology.seats {
            let node = u8::try_from(seat.node.0 - 1);
            nodes[usize::from(seat.slot.0)] = node.expect("few nodes");
        }
        let slots = topology.owners.iter().flatten();
        slots.map(|slot| nodes[usize::from(slot.0)]).collect()
    };
    history
        .map(|(at, _, topology)| (*at, table(topology)))
        .collect()
}

/// When the machine captured what `is` says.
fn spans(machine: &Machine, is: impl Fn(&Orders) -> bool) -> Spans {
    let mut spans = Spans::new();
    for (at, segment) in machine.segments.iter().enumerate() {
        let next = machine.segments.get(at + 1);
        // What lasts to the end lasts beyond it.
        let to = next.map_or(END + 2 * SKEW, |next| next.from);
        if !segment.orders.as_ref().is_some_and(|orders| is(orders)) {
            continue;
        }
        match spans.last_mut() {
            Some(last) if last.1 == segment.from => last.1 = to,
            _ => spans.push((segment.from, to)),
        }
    }
    spans
}

/// The times from which the spans last for [`SKEW`].
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

/// What the spans leave out between two times.
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

/// While a bucket's owner works, none of its packets is missed. If the owner changes before the
/// last node has processed the packet, both owners must work.
fn missed(
    bucket: usize,
    captured: &[Spans],
    owners: &[(Time, Vec<u8>)],
    serving: &[Spans],
) -> Result<(), Broken> {
    let mut excused: Vec<Spans> = captured.iter().cloned().map(eroded).collect();
    for (at, (from, nodes)) in owners.iter().enumerate() {
        let to = owners.get(at + 1).map_or(END, |(to, _)| *to);
        let owner = serving[usize::from(nodes[bucket])].clone();
        excused.push(gaps(owner, from.saturating_sub(SKEW), to));
    }
    let began = owners.first().map_or(END, |(from, _)| *from);
    match gaps(union(excused), began, END).first() {
        Some((at, _)) => Err(Broken::Missed { bucket, at: *at }),
        None => Ok(()),
    }
}

/// By one topology, either one node captures a bucket, or two do and mark what they send.
fn marks(machines: &[Machine]) -> Result<(), Broken> {
    let mut by_revision: BTreeMap<u64, BTreeMap<u32, Rc<Orders>>> = BTreeMap::new();
    for machine in machines {
        for orders in machine.segments.iter().filter_map(|it| it.orders.clone()) {
            let nodes = by_revision.entry(orders.revision.0).or_default();
            nodes.insert(machine.id.0, orders);
        }
    }
    for (revision, nodes) in by_revision {
        for bucket in 0..BUCKETS {
            let (mut alone, mut shared) = (0, 0);
            for orders in nodes.values() {
                match orders.claims.of(bucket) {
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

/// When all is over, the cluster is as it was planned: stable, and each bucket has one owner.
fn settled(world: &World) -> Result<(), Broken> {
    let last = world.store.topology.as_ref();
    if !last.is_some_and(|(_, topology)| topology.phase() == Phase::Stable) {
        return Err(Broken::Unfinished);
    }
    for bucket in 0..BUCKETS {
        let tables = world
            .machines
            .iter()
            .filter_map(|it| it.segments.last()?.orders.as_ref());
        let owners = tables.filter(|orders| takes(orders, bucket)).count();
        if owners != 1 {
            return Err(Broken::Unsettled { bucket, owners });
        }
    }
    Ok(())
}
