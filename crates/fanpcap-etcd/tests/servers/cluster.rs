//! The connections of a node and of a coordinator, for the tests of coordination.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::{
    Announcement, DesiredState, NodeEntry, NodeEvent, NodeId, Revision, Topology, View,
};
use fanpcap_etcd::coordination::{CoordinatorLink, Names, NodeLink};
use fanpcap_etcd::{Client, Settings};
use fanpcap_select::Selection;
use fanpcap_testkit::await_for::LIMIT;

/// The duration of a lease in tests: the shortest that etcd grants.
pub(crate) const TTL: Duration = Duration::from_secs(2);

pub(crate) const NODE: NodeId = NodeId(7);

pub(crate) fn names() -> Names {
    Names::new("lab")
}

/// The announcement of [`NODE`] after the boot `boot`.
pub(crate) fn announcement(boot: u64) -> Announcement {
    Announcement {
        node: NODE,
        boot,
        weight: 3,
        address: ([10, 0, 0, 7], 7001).into(),
        setup: None,
    }
}

/// A topology in which [`NODE`] has all buckets.
pub(crate) fn topology(epoch: u64) -> Topology {
    Topology {
        epoch,
        selection: Selection::default(),
        nodes: vec![NodeEntry {
            slot: Slot(0),
            node: NODE,
            weight: 3,
        }],
        owners: Box::new([Some(Slot(0)); BUCKETS]),
        new_owners: None,
        analyzers: Vec::new(),
        filter: None,
    }
}

pub(crate) fn node(settings: &Settings, ttl: Duration, boot: u64) -> Result<NodeLink> {
    let link = NodeLink::start(Arc::new(Client::new(settings)?), names(), ttl);
    link.announce(announcement(boot));
    Ok(link)
}

pub(crate) fn coordinator(
    settings: &Settings,
    ttl: Duration,
    who: &str,
) -> Result<CoordinatorLink> {
    let client = Arc::new(Client::new(settings)?);
    let desired = DesiredState::default();
    Ok(CoordinatorLink::start(client, names(), ttl, who, desired))
}

/// Polls until the view is as wanted. Returns how long this took.
pub(crate) fn await_view(
    link: &mut CoordinatorLink,
    what: &str,
    is_it: impl Fn(&View) -> bool,
) -> Result<Duration> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if is_it(link.poll(Duration::from_millis(20))?) {
            return Ok(begun.elapsed());
        }
    }
    bail!("the view never has {what}")
}

/// Polls until an event is as wanted. Returns all events up to this event.
pub(crate) fn await_event(
    link: &mut NodeLink,
    what: &str,
    is_it: impl Fn(&NodeEvent) -> bool,
) -> Result<Vec<NodeEvent>> {
    let begun = Instant::now();
    let mut events = Vec::new();
    while begun.elapsed() < LIMIT {
        events.extend(link.poll(Duration::from_millis(20))?);
        if events.iter().any(&is_it) {
            return Ok(events);
        }
    }
    bail!("{what} never came, but {} events", events.len())
}

/// Waits for the topology of this epoch. Returns the topology's revision.
pub(crate) fn await_topology(link: &mut NodeLink, epoch: u64) -> Result<Revision> {
    let revision = |event: &NodeEvent| match event {
        NodeEvent::Topology(revision, topology) => (topology.epoch == epoch).then_some(*revision),
        NodeEvent::Refused(_) | NodeEvent::Reach(_) | NodeEvent::Denied(_) => None,
    };
    let events = await_event(link, "the topology", |event| revision(event).is_some())?;
    events.iter().find_map(revision).context("just seen")
}
