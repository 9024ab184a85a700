//! The machines of a simulated cluster, and their assignments over time.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use fanpcap_cluster::coordinator::{Coordinator, Timing};
use fanpcap_cluster::node::{Assignment, Node};
use fanpcap_cluster::{Announcement, NodeId, Revision, View};

use crate::store::Time;

/// A node's assignment from the time `from` on.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) from: Time,
    /// How often the machine has started.
    pub(crate) boot: u64,
    /// The assignment by which the machine captures. `None` while the machine is off or stands
    /// still, and from its start until it has loaded a table.
    pub(crate) assignment: Option<Rc<Assignment>>,
}

/// A capture node.
pub(crate) struct Machine {
    pub(crate) id: NodeId,
    pub(crate) weight: u16,
    pub(crate) boot: u64,
    pub(crate) is_on: bool,
    /// The machine stands still until this time: neither the kernel nor the agent works.
    pub(crate) frozen: Time,
    pub(crate) agent: Option<Node>,
    /// The number of agents that this machine has started. Messages to agents that have ended are
    /// lost.
    pub(crate) run: u64,
    /// The agent stands still until this time, but the kernel works.
    pub(crate) stopped: Time,
    /// The machine is cut off from the control network until this time.
    pub(crate) cut: Time,
    /// The table in the kernel, which stays there when an agent ends.
    pub(crate) table: Option<Rc<Assignment>>,
    /// The version of the store that the agent saw last.
    pub(crate) seen: u64,
    pub(crate) reaches: bool,
    pub(crate) segments: Vec<Segment>,
}

impl Machine {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id: NodeId(id),
            weight: 1,
            boot: 1,
            is_on: false,
            frozen: 0,
            agent: None,
            run: 0,
            stopped: 0,
            cut: 0,
            table: None,
            seen: 0,
            reaches: true,
            segments: Vec::new(),
        }
    }

    /// Starts an agent, which finds the table in the kernel.
    pub(crate) fn start_agent(&mut self) {
        let current = self.table.as_ref().map(|assignment| assignment.revision);
        self.agent = Some(Node::new(self.id, current));
        self.run += 1;
        self.seen = 0;
    }

    pub(crate) fn kill_agent(&mut self) {
        self.agent = None;
        self.run += 1;
    }

    /// The time from which the agent can work again.
    pub(crate) fn idle_until(&self) -> Time {
        self.frozen.max(self.stopped)
    }

    pub(crate) fn current(&self) -> Option<Revision> {
        self.agent.as_ref().and_then(Node::current)
    }

    /// Notes the assignment that the machine has from the time `now` on.
    pub(crate) fn note(&mut self, now: Time) {
        let assignment = self
            .table
            .clone()
            .filter(|_| self.is_on && self.frozen <= now);
        let (from, boot) = (now, self.boot);
        self.segments.push(Segment {
            from,
            boot,
            assignment,
        });
    }

    pub(crate) fn announcement(&self) -> Announcement {
        Announcement {
            node: self.id,
            boot: self.boot,
            weight: self.weight,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)),
            setup: None,
        }
    }
}

/// A coordinator.
pub(crate) struct CoordinatorHost {
    pub(crate) core: Option<Coordinator>,
    pub(crate) run: u64,
    pub(crate) stopped: Time,
    pub(crate) cut: Time,
    pub(crate) view: View,
    pub(crate) seen: u64,
    pub(crate) term: Option<u64>,
    /// The coordinator's clock minus the simulation's time.
    pub(crate) skew: Duration,
}

impl CoordinatorHost {
    pub(crate) fn new() -> Self {
        Self {
            core: Some(Coordinator::new(Timing::default())),
            run: 0,
            stopped: 0,
            cut: 0,
            view: View::default(),
            seen: 0,
            term: None,
            skew: Duration::from_secs(10_000),
        }
    }

    pub(crate) fn restart(&mut self) {
        let run = self.run + 1;
        *self = Self {
            run,
            skew: self.skew,
            ..Self::new()
        };
    }

    pub(crate) fn kill(&mut self) {
        self.core = None;
        self.run += 1;
    }
}
