//! A node's and a coordinator's connection, as the tests of coordination use them.

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

/// How long a lease lasts in tests: etcd grants no less.
pub(crate) const TTL: Duration = Duration::from_secs(2);

pub(crate) const NODE: NodeId = NodeId(7);

pub(crate) fn names() -> Names {
    Names::new("lab")
}

/// What [`NODE`] says of itself after this boot.
pub(crate) fn announcement(boot: u64) -> Announcement {
    Announcement {
        node: NODE,
        boot,
        weight: 3,
        address: ([10, 0, 0, 7], 7001).into(),
        setup: None,
    }
}

/// All buckets to [`NODE`].
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

/// Polls until the view is as wanted, and returns how long that took.
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

/// Polls until an event is as wanted, and returns all events up to it.
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

/// Waits for the topology of this epoch, and returns its revision.
pub(crate) fn await_topology(link: &mut NodeLink, epoch: u64) -> Result<Revision> {
    let revision = |event: &NodeEvent| match event {
        NodeEvent::Topology(revision, topology) => (topology.epoch == epoch).then_some(*revision),
        NodeEvent::Refused(_) | NodeEvent::Reach(_) | NodeEvent::Denied(_) => None,
    };
    let events = await_event(link, "the topology", |event| revision(event).is_some())?;
    events.iter().find_map(revision).context("just seen")
}
