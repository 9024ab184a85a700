//! The engine: a store with leases, like etcd.

use std::collections::BTreeMap;

use fanpcap_cluster::{Announcement, DesiredState, LiveNode, NodeId, Revision, Topology};

/// Microseconds since the run began.
pub(crate) type Time = u64;

/// How long a lease lasts after its renewal.
pub(crate) const TTL: Time = 5_000_000;

/// The contents of the store.
#[derive(Default)]
pub(crate) struct Store {
    /// How often the store's contents have changed.
    pub(crate) version: u64,
    /// Whether the quorum is lost. Without a quorum, nothing can be read, and no lease expires.
    pub(crate) is_out: bool,
    nodes: BTreeMap<NodeId, (LiveNode, Time)>,
    /// The leading coordinator, the number of its term, and when its lease ends.
    leader: Option<(usize, u64, Time)>,
    reigns: u64,
    pub(crate) topology: Option<(Revision, Box<Topology>)>,
    pub(crate) desired: DesiredState,
    /// All topologies, and when they were written.
    pub(crate) history: Vec<(Time, Revision, Box<Topology>)>,
}

impl Store {
    /// Removes the leases that have expired.
    pub(crate) fn expire(&mut self, now: Time) {
        if self.is_out {
            return;
        }
        let before = self.nodes.len();
        self.nodes.retain(|_, (_, until)| *until > now);
        self.version += u64::from(self.nodes.len() != before);
        if self.leader.is_some_and(|(_, _, until)| until <= now) {
            self.leader = None;
            self.version += 1;
        }
    }

    /// The quorum is back. From now on, each lease lasts its full time again. If `revoke` is set,
    /// all leases end at once instead.
    pub(crate) fn come_back(&mut self, now: Time, revoke: bool) {
        self.is_out = false;
        self.version += 1;
        let until = if revoke { now } else { now + TTL };
        for (_, lease) in self.nodes.values_mut() {
            *lease = until;
        }
        if let Some((_, _, lease)) = &mut self.leader {
            *lease = until;
        }
        self.expire(now);
    }

    /// Renews a node's lease. If the machine has booted again, its old acknowledgement is removed.
    pub(crate) fn keep_alive(&mut self, announcement: Announcement, now: Time) {
        let until = now + TTL;
        let fresh = LiveNode {
            announcement,
            acknowledged: None,
        };
        let node = announcement.node;
        let (live, lease) = self.nodes.entry(node).or_insert_with(|| {
            self.version += 1;
            (fresh, until)
        });
        if live.announcement.boot != announcement.boot {
            *live = fresh;
            self.version += 1;
        }
        if live.announcement != announcement {
            live.announcement = announcement;
            self.version += 1;
        }
        *lease = until;
    }

    pub(crate) fn acknowledge(&mut self, node: NodeId, boot: u64, revision: Revision) {
        if let Some((live, _)) = self.nodes.get_mut(&node) {
            let is_new = live.acknowledged.is_none_or(|known| known < revision);
            if live.announcement.boot == boot && is_new {
                live.acknowledged = Some(revision);
                self.version += 1;
            }
        }
    }

    /// Ends a node's lease.
    pub(crate) fn leave(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.version += 1;
    }

    /// Renews the lead of a coordinator, or makes it the leader if there is none. If the
    /// coordinator leads now, returns the number of its term.
    pub(crate) fn campaign(&mut self, coordinator: usize, now: Time) -> Option<u64> {
        if self.leader.is_none() {
            self.reigns += 1;
            self.version += 1;
            self.leader = Some((coordinator, self.reigns, now + TTL));
        }
        let (leader, term, until) = self.leader.as_mut()?;
        if *leader != coordinator {
            return None;
        }
        *until = now + TTL;
        Some(*term)
    }

    /// Writes a topology if `term` still leads, and if the present topology's revision is
    /// `replaces`.
    pub(crate) fn write(
        &mut self,
        term: u64,
        replaces: Option<Revision>,
        topology: Box<Topology>,
        now: Time,
    ) -> bool {
        let leads = self.leader.is_some_and(|(_, leading, _)| leading == term);
        let present = self.topology.as_ref().map(|(revision, _)| *revision);
        if !leads || present != replaces {
            return false;
        }
        self.version += 1;
        let revision = Revision(self.version + 100);
        let read = Topology::decode(&topology.encode());
        assert_eq!(
            read.as_ref(),
            Some(&*topology),
            "nodes can follow the topology"
        );
        self.history.push((now, revision, topology.clone()));
        self.topology = Some((revision, topology));
        true
    }

    pub(crate) fn live(&self) -> Vec<LiveNode> {
        self.nodes.values().map(|(live, _)| *live).collect()
    }
}
