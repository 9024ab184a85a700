//! Finds which topologies were in force at each time, even if coordinators can't hear each other.
//!
//! A coordinator that writes a topology replaces the newest topology that it knows. In a **fork**,
//! two topologies replace the same topology, or a coordinator that knows no topology writes another
//! topology that replaces none. Topologies of one branch are no successors of the topologies of the
//! other branch. So the test judges captured packets by the newest topology of each branch that a
//! node follows. If all nodes change from one branch to another at the same moment, both branches
//! are in force at that moment.

use std::collections::{BTreeMap, BTreeSet};

use fanpcap_cluster::{Revision, Topology};

use super::{Broken, Era, Spans};
use crate::machines::{Machine, Segment};
use crate::run_plan::END;
use crate::store::Time;

/// A topology that a coordinator has written.
pub(crate) struct Written {
    pub(crate) revision: Revision,
    pub(crate) replaces: Option<Revision>,
    pub(crate) topology: Box<Topology>,
}

/// Returns which topologies were in force, as indices in `written`, and from which times on. A
/// topology is in force if a node captures by it, and no node captures by a later topology of its
/// branch.
pub(crate) fn eras(machines: &[Machine], written: &[Written]) -> Result<Vec<Era>, Broken> {
    let family = Family::new(written)?;
    let times = machines.iter().flat_map(|machine| &machine.segments);
    let times: BTreeSet<Time> = times.map(|segment| segment.from).collect();
    let mut eras: Vec<Era> = Vec::new();
    for from in times {
        let used: BTreeSet<usize> = machines
            .iter()
            .filter_map(|machine| family.used(machine, from))
            .collect();
        let is_head = |one: &usize| !used.iter().any(|other| family.comes_from(*other, *one));
        let heads: Vec<usize> = used.iter().copied().filter(is_head).collect();
        // While no machine captures, the last topologies stay in force.
        if heads.is_empty() || eras.last().is_some_and(|last| last.heads == heads) {
            continue;
        }
        let left = eras.last().map(|last| family.left(&last.heads, &heads));
        if let Some(left) = left.filter(|left| !left.is_empty()) {
            let heads = left.into_iter().chain(heads.clone()).collect();
            eras.push(Era { from, heads });
        }
        eras.push(Era { from, heads });
    }
    Ok(eras)
}

/// Returns the times at which a machine, after a restart, captured by an older topology than before
/// the restart. A coordinator that is cut off knows no newer topology. The proof allows that
/// packets of the machine's buckets are missed at these times.
pub(crate) fn stale(machine: &Machine, written: &[Written]) -> Result<Spans, Broken> {
    let family = Family::new(written)?;
    let mut spans = Spans::new();
    let mut newest = None;
    for (at, segment) in machine.segments.iter().enumerate() {
        let Some(place) = family.place(segment) else {
            continue;
        };
        let to = machine.segments.get(at + 1).map_or(END, |next| next.from);
        match newest {
            Some(newest) if family.comes_from(newest, place) => spans.push((segment.from, to)),
            _ => newest = Some(place),
        }
    }
    Ok(spans)
}

/// For each topology, the topology that it replaced.
struct Family {
    places: BTreeMap<Revision, usize>,
    parents: Vec<Option<usize>>,
}

impl Family {
    fn new(written: &[Written]) -> Result<Self, Broken> {
        let mut places = BTreeMap::new();
        let mut parents = Vec::new();
        for (place, one) in written.iter().enumerate() {
            parents.push(one.replaces.and_then(|of| places.get(&of).copied()));
            if places.insert(one.revision, place).is_some() {
                return Err(Broken::Repeated(one.revision));
            }
        }
        Ok(Self { places, parents })
    }

    /// The topology by which a machine captures at the time `at`.
    fn used(&self, machine: &Machine, at: Time) -> Option<usize> {
        let segments = machine.segments.iter();
        self.place(segments.take_while(|segment| segment.from <= at).last()?)
    }

    fn place(&self, segment: &Segment) -> Option<usize> {
        let assignment = segment.assignment.as_ref()?;
        self.places.get(&assignment.revision).copied()
    }

    /// The topologies in `before` that are neither ancestors nor descendants of a topology in
    /// `heads`. No node follows their branches any more.
    fn left(&self, before: &[usize], heads: &[usize]) -> Vec<usize> {
        let is_kin = |one: usize, other: usize| {
            one == other || self.comes_from(one, other) || self.comes_from(other, one)
        };
        let has_kin = |one: &&usize| heads.iter().any(|other| is_kin(**one, *other));
        let left = before.iter().filter(|one| !has_kin(one));
        left.copied().collect()
    }

    fn comes_from(&self, one: usize, other: usize) -> bool {
        let mut at = self.parents[one];
        while let Some(parent) = at {
            if parent == other {
                return true;
            }
            at = self.parents[parent];
        }
        false
    }
}
