//! The coordinator: writes topologies, from the live nodes and the operator's settings.
//!
//! The coordinator gets the engine's [`View`] and returns the next topology to write. All state
//! that must outlast a leader is in the topology. So a new leader continues where the old one
//! stopped, even in a union. The engine writes only if the topology is still the one that the
//! coordinator saw.
//!
//! The rules:
//!
//! * A change begins with a union. It ends with a stable topology, once all nodes that get buckets
//!   have captured by the union's topology for [`Timing::dwell`]. If a node dies, a separate change
//!   takes its buckets away. A living node that does not answer keeps the union open.
//! * A change during a union gives the union another target. See [`reshape`].
//! * A newcomer waits for its hold-down. A node that leaves and returns waits longer each time.
//! * When more than a third of the nodes, and at least two, disappear within [`Timing::lease`],
//!   none of them counts as dead, because more likely the engine has lost contact. This mass
//!   absence ends when enough of the nodes are back, or when the operator drains them. If the
//!   engine hears at least half of all nodes, the mass absence also ends after [`Timing::outlast`].
//! * A new leader ignores absences until it has led for [`Timing::lease`].
//! * If no live node has a weight, nothing changes.
//! * While a live node announces capture mode, the topology has no filter, because a node in
//!   capture mode can't follow a topology with a filter.
//! * If nodes may follow a newer topology that no coordinator has, the coordinator writes its
//!   topology again, with a greater revision. Otherwise these nodes would keep the lost topology.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use fanpcap_select::{Filter, Key, Selection};

use crate::coordination::{Announcement, DesiredState, LiveNode, View};
use crate::identity::{NodeId, Revision};
use crate::reshape::{self, ChangeTarget, Member};
use crate::topology::{NodeEntry, Topology};

mod presence;
mod absence;
mod acknowledgements;
mod messages;
#[cfg(test)]
mod tests;

use absence::Absences;
use acknowledgements::Acknowledgements;
pub use messages::{Change, Condition, Stage};
use presence::SeenNodes;

/// Call [`Coordinator::step`] at least this often. A pause of more than two ticks counts as two.
pub const TICK: Duration = Duration::from_millis(100);

/// If nodes capture packets in turn, a union lasts at least this long. Within this time, the frame
/// that announces the union's topology reaches the nodes through the mirror port.
const UPDATE: Duration = Duration::from_secs(2);

/// The time between the end of an absent node's lease and the loss of this node's buckets. Nodes
/// whose leases end within this time are judged together, because the engine may have lost all of
/// them.
const SETTLE: Duration = Duration::from_millis(100);

/// A union that lasts longer than this is reported.
const PATIENCE: Duration = Duration::from_secs(3);

/// A coordinator's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// How long a node may be silent before the engine counts it as dead.
    pub lease: Duration,
    /// Nodes that vanished together count as dead after this time, if the engine hears at least
    /// half of all nodes.
    pub outlast: Duration,
    /// How long a node that was gone must live before it gets buckets. Doubles with each absence.
    pub hold_down: Duration,
    /// How long a union lasts after all nodes that gain buckets capture by it: longer than any
    /// packet waits in a node's receive queue.
    pub dwell: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(5),
            outlast: Duration::from_secs(300),
            hold_down: Duration::from_secs(1),
            dwell: Duration::from_millis(250),
        }
    }
}

/// A topology to write, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// What to write.
    pub topology: Box<Topology>,
    /// The revision that the present topology must have; `None` if there must be no topology yet.
    pub replaces: Option<Revision>,
    /// What the new topology changes, for the line in the audit log.
    pub change: Change,
}

/// The result of a step.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// The topology to write, if any. Later steps return it again until the engine's view has it.
    pub write: Option<Write>,
    /// Conditions that begin to hold with this step.
    pub notes: Vec<Condition>,
}

/// A coordinator, active or standing by.
#[derive(Debug)]
pub struct Coordinator {
    timing: Timing,
    last: Option<Duration>,
    /// This coordinator's clock: the sum of the times between its steps, at most two ticks each.
    now: Duration,
    /// The time at which this coordinator began to lead.
    leads: Option<Duration>,
    presences: SeenNodes,
    absences: Absences,
    acknowledgements: Acknowledgements,
    /// The inputs that the current topology was computed from.
    served: Option<TargetInputs>,
    /// The conditions that hold now, for the operator.
    conditions: BTreeSet<Condition>,
}

impl Coordinator {
    /// A coordinator that stands by and has not seen a view.
    pub fn new(timing: Timing) -> Self {
        Self {
            timing,
            last: None,
            now: Duration::ZERO,
            leads: None,
            presences: SeenNodes::default(),
            absences: Absences::default(),
            acknowledgements: Acknowledgements::default(),
            served: None,
            conditions: BTreeSet::new(),
        }
    }

    /// The conditions that hold now, for the operator.
    pub fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.conditions.iter()
    }

    /// Takes the engine's view at the time `now` of a clock that only runs forward
    /// (`CLOCK_MONOTONIC`). More than two ticks since the last step count as two ticks.
    pub fn step(&mut self, view: &View, now: Duration) -> Step {
        let last = self.last.replace(now).unwrap_or(now);
        self.now += now.saturating_sub(last).min(2 * TICK);
        let before = std::mem::take(&mut self.conditions);
        let write = match view.leads {
            true => self.lead(view),
            false => {
                self.stand_by();
                None
            }
        };
        let notes = self.conditions.difference(&before).cloned().collect();
        Step { write, notes }
    }

    /// Forgets what this coordinator saw as the leader, because a standby does not see which nodes
    /// live.
    fn stand_by(&mut self) {
        self.leads = None;
        self.presences = SeenNodes::default();
        self.absences = Absences::default();
        self.acknowledgements = Acknowledgements::default();
        self.served = None;
    }

    fn lead(&mut self, view: &View) -> Option<Write> {
        let since = *self.leads.get_or_insert(self.now);
        self.conditions.insert(Condition::Leads);
        self.presences.update(&view.live, self.now, &self.timing);
        if view.desired.filter.is_some() && filter(view).is_none() {
            let nodes = capturing(view).collect();
            self.conditions.insert(Condition::Unfiltered(nodes));
        }
        let Some((revision, topology)) = &view.topology else {
            return self.begin_cluster(view);
        };
        let is_known = self.acknowledgements.are_of(*revision);
        if let Some(error) = topology.check().err().filter(|_| !is_known) {
            self.conditions.insert(Condition::BadTopology(error));
            return None;
        }
        self.acknowledgements
            .update(*revision, topology, &view.live, self.now);
        if view.is_outrun {
            let again = reshape::again(topology);
            return Some(write(again, *revision, topology, &BTreeSet::new()));
        }
        let absent = self.believed_absent(view, topology, since);
        let members = self.members(view, topology, &absent);
        if self.is_settled(topology) {
            let is_member = |node| members.iter().any(|member| member.node == node);
            let next = reshape::complete(topology, is_member)?;
            return Some(write(next, *revision, topology, &absent));
        }
        self.change(view, members, &absent)
    }

    /// The union that begins a change, unless the current topology already leads to the target.
    fn change(
        &mut self,
        view: &View,
        members: Vec<Member>,
        absent: &BTreeSet<NodeId>,
    ) -> Option<Write> {
        let (revision, topology) = view.topology.as_ref()?;
        let served = TargetInputs {
            revision: *revision,
            members,
            selection: view.desired.selection,
            analyzers: view.desired.analyzers.clone(),
            filter: filter(view).cloned(),
        };
        let members = &served.members;
        if self.served.as_ref() == Some(&served) {
            self.report_waiting(topology, members);
            return None;
        }
        let target = self.target(view, members)?;
        if target.is_of(topology) {
            self.report_waiting(topology, members);
            self.served = Some(served);
            return None;
        }
        let is_dwelling = self
            .acknowledgements
            .is_dwelling(self.now, self.timing.dwell);
        if is_dwelling && owners_are_absent(topology, absent) {
            return None;
        }
        let next = reshape::begin(topology, &target, absent, |node| {
            self.acknowledgements.has(node)
        });
        Some(write(next, *revision, topology, absent))
    }

    /// The target for these members. If no member has a weight, adds the condition `Nobody`.
    fn target(&mut self, view: &View, members: &[Member]) -> Option<ChangeTarget> {
        let topology = view.topology.as_ref().map(|(_, topology)| &**topology);
        let desired = &view.desired;
        let (selection, analyzers) = (desired.selection, &desired.analyzers);
        let target = ChangeTarget::new(topology, members, selection, analyzers, filter(view));
        if target.is_none() {
            self.conditions.insert(Condition::Nobody);
        }
        target
    }

    /// The first topology, for the nodes whose hold-down is over.
    fn begin_cluster(&mut self, view: &View) -> Option<Write> {
        let ready = |live: &&LiveNode| self.presences.is_admitted(live, self.now, &self.timing);
        let members = view.live.iter().filter(ready);
        let members: Vec<Member> = members.map(|live| member(live, &view.desired)).collect();
        let ChangeTarget(topology) = self.target(view, &members)?;
        let change = Change::between(None, &topology, &BTreeSet::new());
        Some(Write {
            topology: Box::new(topology),
            replaces: None,
            change,
        })
    }

    /// Nodes of the topology that count as dead.
    fn believed_absent(
        &mut self,
        view: &View,
        topology: &Topology,
        since: Duration,
    ) -> BTreeSet<NodeId> {
        let now = self.now;
        let live: BTreeSet<NodeId> = view
            .live
            .iter()
            .map(|live| live.announcement.node)
            .collect();
        let missing = topology
            .nodes
            .iter()
            .filter(|entry| !live.contains(&entry.node));
        let missing: Vec<NodeEntry> = missing.copied().collect();
        let drained = &view.desired.drained;
        let due = |entry: &&NodeEntry| entry.weight > 0 && !drained.contains(&entry.node);
        let lost: BTreeSet<NodeId> = missing.iter().filter(due).map(|entry| entry.node).collect();
        let all = topology.nodes.iter().filter(due).count();
        let timing = &self.timing;
        let is_mass = self.absences.is_mass(&lost, all, &live, now, timing);
        if is_mass {
            self.conditions.insert(Condition::MassExpiry {
                nodes: lost.iter().copied().collect(),
                limit: self.absences.is_half_heard().then_some(timing.outlast),
            });
        }
        let is_old = |node: NodeId| match self.presences.left(node) {
            Some(left) => now.saturating_sub(left) >= SETTLE,
            None => now.saturating_sub(since) >= timing.lease,
        };
        let believed = |node: &NodeId| is_old(*node) && !(is_mass && lost.contains(node));
        let absent = missing.iter().map(|entry| entry.node).filter(believed);
        let absent: BTreeSet<NodeId> = absent.collect();
        let gone = absent.intersection(&lost);
        self.absences.note_dead(gone.copied(), now);
        absent
    }

    /// The nodes that share the buckets: the topology's nodes without dead ones, and newcomers.
    fn members(
        &mut self,
        view: &View,
        topology: &Topology,
        absent: &BTreeSet<NodeId>,
    ) -> Vec<Member> {
        let mut members = BTreeMap::new();
        for entry in topology
            .nodes
            .iter()
            .filter(|entry| !absent.contains(&entry.node))
        {
            let is_drained = view.desired.drained.contains(&entry.node);
            let weight = if is_drained { 0 } else { entry.weight };
            members.insert(entry.node, weight);
        }
        for live in &view.live {
            let Member { node, weight } = member(live, &view.desired);
            // The topology gives weight 0 to a node that an earlier leader counted as dead. If the
            // present leader saw no absence of the node, the node needs no hold-down.
            let takes_part = topology
                .entry(node)
                .is_some_and(|entry| entry.weight > 0 || !self.presences.was_gone(node));
            if takes_part || self.presences.is_admitted(live, self.now, &self.timing) {
                members.insert(node, weight);
            } else if weight > 0 {
                self.conditions.insert(Condition::HeldDown(node));
            }
        }
        let members = members.into_iter();
        members
            .map(|(node, weight)| Member { node, weight })
            .collect()
    }

    fn is_settled(&self, topology: &Topology) -> bool {
        let dwell = match topology.selection.key {
            Key::RoundRobin => self.timing.dwell.max(UPDATE),
            Key::Packet | Key::Flow | Key::Identification => self.timing.dwell,
        };
        topology.new_owners.is_some() && self.acknowledgements.are_complete(self.now, dwell)
    }

    /// Adds the conditions that say what delays the change.
    fn report_waiting(&mut self, topology: &Topology, members: &[Member]) {
        let has_place = |member: &&Member| topology.entry(member.node).is_some();
        let outside = members.len() - members.iter().filter(has_place).count();
        if outside > 0 {
            self.conditions.insert(Condition::Full(outside));
        }
        let nodes = self.acknowledgements.missing();
        if !nodes.is_empty() && self.acknowledgements.waited(self.now) >= PATIENCE {
            self.conditions.insert(Condition::Waiting(nodes));
        }
    }
}

/// The inputs from which the target is computed. Equal inputs give equal targets.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TargetInputs {
    revision: Revision,
    members: Vec<Member>,
    selection: Selection,
    analyzers: Vec<SocketAddr>,
    filter: Option<Filter>,
}

/// The live nodes that announce capture mode.
fn capturing(view: &View) -> impl Iterator<Item = NodeId> {
    let announcements = view.live.iter().map(|live| live.announcement);
    let captures = |it: &Announcement| it.setup.is_some_and(|setup| setup.header.is_some());
    announcements.filter(captures).map(|it| it.node)
}

/// The filter of the next topology; `None` while a live node is in capture mode.
fn filter(view: &View) -> Option<&Filter> {
    let is_wanted = |_: &&Filter| capturing(view).next().is_none();
    view.desired.filter.as_ref().filter(is_wanted)
}

/// A live node with its weight: the weight that the operator has set, or else the node's own.
fn member(live: &LiveNode, desired: &DesiredState) -> Member {
    let LiveNode { announcement, .. } = live;
    let node = announcement.node;
    let changed = desired.weights.get(&node).copied();
    let weight = match desired.drained.contains(&node) {
        true => 0,
        false => changed.unwrap_or(announcement.weight),
    };
    Member { node, weight }
}

fn write(next: Topology, replaces: Revision, current: &Topology, dead: &BTreeSet<NodeId>) -> Write {
    let change = Change::between(Some(current), &next, dead);
    Write {
        topology: Box::new(next),
        replaces: Some(replaces),
        change,
    }
}

/// Whether the topology is a union in which an absent node is the old owner of a bucket.
fn owners_are_absent(topology: &Topology, absent: &BTreeSet<NodeId>) -> bool {
    let owning = |entry: &&NodeEntry| topology.owners.contains(&Some(entry.slot));
    let mut owners = topology.nodes.iter().filter(owning);
    topology.new_owners.is_some() && owners.any(|entry| absent.contains(&entry.node))
}
