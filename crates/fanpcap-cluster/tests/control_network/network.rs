//! A network in memory. It delays, loses and doubles datagrams, and can cut links between machines.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use fanpcap_buckets::{Slot, layout::BUCKETS};
use fanpcap_cluster::control::{
    ClusterId, CoordinatorEnd, CoordinatorSettings, Endpoint, Key, Keys, NodeEnd, NodeSettings,
    Peer, Role, State,
};
use fanpcap_cluster::{Announcement, NodeEntry, NodeEvent, NodeId, Revision, Topology};
use fanpcap_select::Selection;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

/// The time between two steps of all participants.
const STEP: Duration = Duration::from_millis(10);

/// A coordinator with the state that it has stored.
pub(crate) struct Coordinator {
    pub(crate) end: Option<CoordinatorEnd>,
    pub(crate) stored: Option<State>,
    /// Whether the coordinator fails to store its state.
    pub(crate) fails: bool,
    /// The coordinator stands still until this time. Datagrams for it are lost.
    pub(crate) stopped: Duration,
}

impl Coordinator {
    /// Whether this coordinator is active. The coordinator's view may show this only later.
    pub(crate) fn leads(&self) -> bool {
        let status = |end: &CoordinatorEnd| end.status(Duration::ZERO).is_some();
        self.end.as_ref().is_some_and(status)
    }
}

pub(crate) struct Node {
    pub(crate) end: Option<NodeEnd>,
    pub(crate) events: Vec<NodeEvent>,
    pub(crate) follows: Option<Revision>,
    pub(crate) boot: u64,
}

pub(crate) struct Network {
    pub(crate) now: Duration,
    pub(crate) coordinators: Vec<Coordinator>,
    pub(crate) nodes: Vec<Node>,
    /// How many of a thousand datagrams are lost, and how many are doubled.
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    /// How long a new leader waits for nodes before it plans a topology.
    pub(crate) settle: Duration,
    /// Participants that receive no datagrams. But the datagrams that they send arrive.
    pub(crate) deaf: BTreeSet<SocketAddr>,
    /// Pairs of addresses between which all datagrams are lost.
    pub(crate) cut: BTreeSet<(SocketAddr, SocketAddr)>,
    /// All datagrams that were sent; `None` if they are not recorded.
    pub(crate) log: Option<Vec<(SocketAddr, SocketAddr, Vec<u8>)>>,
    /// The topology of each revision, to check that no revision has two topologies.
    pub(crate) written: BTreeMap<Revision, Topology>,
    in_flight: BTreeMap<(Duration, u64), (SocketAddr, SocketAddr, Vec<u8>)>,
    /// How many datagrams were sent.
    pub(crate) sent: u64,
    random: Pcg64Mcg,
    runs: u8,
}

pub(crate) fn coordinator_at(at: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + u8::try_from(at).expect("few")], 7000))
}

pub(crate) fn node_at(at: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 1 + u8::try_from(at).expect("few")], 7000))
}

pub(crate) fn keys() -> Keys {
    Keys {
        current: Key::new(vec![7; 32]).expect("32 bytes"),
        other: None,
    }
}

/// A topology in which these nodes share all buckets.
pub(crate) fn topology(epoch: u64, nodes: &[NodeId]) -> Topology {
    let entry = |(slot, node): (u8, &NodeId)| NodeEntry {
        slot: Slot(slot),
        node: *node,
        weight: 1,
    };
    let entries: Vec<NodeEntry> = (0..).zip(nodes).map(entry).collect();
    let all = entries
        .iter()
        .map(|entry| Some(entry.slot))
        .cycle()
        .take(BUCKETS);
    let owners = <[_; BUCKETS]>::try_from(all.collect::<Vec<_>>()).expect("so many");
    Topology {
        epoch,
        selection: Selection::default(),
        nodes: entries,
        owners: Box::new(owners),
        new_owners: None,
        analyzers: Vec::new(),
        filter: None,
    }
}

impl Network {
    pub(crate) fn new(seed: u64, coordinators: usize, nodes: usize) -> Self {
        let none = || Coordinator {
            end: None,
            stored: None,
            fails: false,
            stopped: Duration::ZERO,
        };
        let node = |at| Node {
            end: None,
            events: Vec::new(),
            follows: None,
            boot: 100 + at,
        };
        let mut network = Self {
            now: Duration::from_secs(1000),
            coordinators: (0..coordinators).map(|_| none()).collect(),
            nodes: (0..nodes as u64).map(node).collect(),
            lost: 0,
            doubled: 0,
            settle: Duration::from_secs(2),
            deaf: BTreeSet::new(),
            cut: BTreeSet::new(),
            log: None,
            written: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            sent: 0,
            random: Pcg64Mcg::seed_from_u64(seed),
            runs: 0,
        };
        (0..coordinators).for_each(|at| network.start_coordinator(at));
        (0..nodes).for_each(|at| network.start_node(at));
        network
    }

    /// A random number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    pub(crate) fn endpoint(&mut self, role: Role, id: u32) -> Endpoint {
        self.runs = self.runs.wrapping_add(1);
        let mut secret = [self.runs; 32];
        secret[..4].copy_from_slice(&id.to_be_bytes());
        secret[4] = role as u8;
        Endpoint::new(Peer { role, id }, ClusterId(1), keys(), secret)
    }

    /// Starts a coordinator with its stored state.
    pub(crate) fn start_coordinator(&mut self, at: usize) {
        let number = u8::try_from(at).expect("few");
        let mut settings = CoordinatorSettings::new(number, coordinator_at(at));
        let others = (0..self.coordinators.len()).filter(|other| *other != at);
        settings.others = others.map(coordinator_at).collect();
        settings.settle = self.settle;
        let endpoint = self.endpoint(Role::Coordinator, u32::from(number));
        let stored = self.coordinators[at].stored.clone();
        let end = CoordinatorEnd::new(self.now, settings, endpoint, stored);
        self.coordinators[at].end = Some(end);
    }

    /// Starts a node's agent, which knows only its node id and the boot number of its machine.
    pub(crate) fn start_node(&mut self, at: usize) {
        let node = 1 + u32::try_from(at).expect("few");
        self.start_node_as(at, node);
    }

    pub(crate) fn start_node_as(&mut self, at: usize, node: u32) {
        let endpoint = self.endpoint(Role::Node, node);
        self.start(at, node, endpoint);
    }

    /// Starts a node's agent with another version of the protocol.
    pub(crate) fn start_node_of(&mut self, at: usize, version: u8) {
        let node = 1 + u32::try_from(at).expect("few");
        let endpoint = self.endpoint(Role::Node, node).with_version(version);
        self.start(at, node, endpoint);
    }

    fn start(&mut self, at: usize, node: u32, endpoint: Endpoint) {
        let settings = NodeSettings {
            coordinators: (0..self.coordinators.len()).map(coordinator_at).collect(),
            ..NodeSettings::default()
        };
        let announcement = Announcement {
            node: NodeId(node),
            boot: self.nodes[at].boot,
            weight: 1,
            address: node_at(at),
            setup: None,
        };
        self.nodes[at].end = Some(NodeEnd::new(settings, endpoint, announcement));
        self.nodes[at].follows = None;
    }

    pub(crate) fn send(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        if let Some(log) = &mut self.log {
            log.push((from, to, datagram.clone()));
        }
        let copies = match self.below(1000) {
            number if number < self.lost => 0,
            number if number < self.lost + self.doubled => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let delay = Duration::from_micros(100 + self.below(30_000));
            self.sent += 1;
            let at = (self.now + delay, self.sent);
            self.in_flight.insert(at, (from, to, datagram.clone()));
        }
    }

    /// Runs the network for this time.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            self.deliver();
            self.step_coordinators();
            self.step_nodes();
        }
    }

    fn deliver(&mut self) {
        let later = self.in_flight.split_off(&(self.now, 0));
        for (_, (from, to, datagram)) in std::mem::replace(&mut self.in_flight, later) {
            if self.deaf.contains(&to)
                || self.cut.contains(&(from, to))
                || self.cut.contains(&(to, from))
            {
                continue;
            }
            self.hand(from, to, &datagram);
        }
    }

    pub(crate) fn hand(&mut self, from: SocketAddr, to: SocketAddr, datagram: &[u8]) {
        let now = self.now;
        for (at, one) in self.coordinators.iter_mut().enumerate() {
            let hears = coordinator_at(at) == to && now >= one.stopped;
            if let (true, Some(end)) = (hears, &mut one.end) {
                let _ = end.receive(now, from, datagram);
            }
        }
        for (at, one) in self.nodes.iter_mut().enumerate() {
            if let (true, Some(end)) = (node_at(at) == to, &mut one.end) {
                let _ = end.receive(now, from, datagram);
            }
        }
    }

    fn step_coordinators(&mut self) {
        for at in 0..self.coordinators.len() {
            let one = &mut self.coordinators[at];
            let is_stopped = self.now < one.stopped;
            let Some(end) = one.end.as_mut().filter(|_| !is_stopped) else {
                continue;
            };
            end.tick(self.now);
            if let (Some(_), true) = (end.to_store(), one.fails) {
                end.note_store_failure();
            } else if let Some(state) = end.to_store() {
                end.note_stored(&state);
                one.stored = Some(state);
            }
            let out: Vec<_> = std::iter::from_fn(|| end.outgoing()).collect();
            for (to, datagram) in out {
                self.send(coordinator_at(at), to, datagram);
            }
        }
    }

    fn step_nodes(&mut self) {
        for at in 0..self.nodes.len() {
            let one = &mut self.nodes[at];
            let Some(end) = &mut one.end else { continue };
            end.tick(self.now);
            while let Some(event) = end.event() {
                if let NodeEvent::Topology(revision, topology) = &event {
                    assert!(Some(*revision) > one.follows, "a node went back");
                    assert_eq!(self.written.get(revision), Some(&**topology));
                    one.follows = Some(*revision);
                    end.acknowledge(*revision);
                }
                one.events.push(event);
            }
            let out: Vec<_> = std::iter::from_fn(|| end.outgoing()).collect();
            for (to, datagram) in out {
                self.send(node_at(at), to, datagram);
            }
        }
    }

    /// The coordinators whose views say that they lead.
    pub(crate) fn leaders(&mut self) -> Vec<usize> {
        let now = self.now;
        let leads = |one: &mut Coordinator| one.end.as_mut().is_some_and(|end| end.view(now).leads);
        let all = self.coordinators.iter_mut().map(leads);
        all.enumerate()
            .filter(|(_, leads)| *leads)
            .map(|(at, _)| at)
            .collect()
    }

    /// Lets a coordinator write a topology of all nodes that are alive in its view.
    pub(crate) fn write(&mut self, at: usize) -> Option<Revision> {
        let now = self.now;
        let end = self.coordinators[at].end.as_mut()?;
        let view = end.view(now).clone();
        let live: Vec<_> = view
            .live
            .iter()
            .map(|live| live.announcement.node)
            .collect();
        if live.is_empty() {
            return None;
        }
        let last = view.topology;
        let epoch = last.as_ref().map_or(1, |(_, topology)| topology.epoch + 1);
        let topology = topology(epoch, &live);
        let revision = end
            .write(now, &topology, last.map(|(revision, _)| revision))
            .ok()?;
        let before = self.written.insert(revision, topology);
        assert!(before.is_none(), "revision {revision} was given twice");
        Some(revision)
    }
}

/// Cuts all links between these machines and the other machines.
pub(crate) fn part(network: &mut Network, coordinators: &[usize], nodes: &[usize]) {
    let all: Vec<_> = (0..network.coordinators.len())
        .map(coordinator_at)
        .collect();
    let all: Vec<_> = all
        .into_iter()
        .chain((0..network.nodes.len()).map(node_at))
        .collect();
    let left: Vec<_> = coordinators.iter().map(|at| coordinator_at(*at)).collect();
    let left: Vec<_> = left
        .into_iter()
        .chain(nodes.iter().map(|at| node_at(*at)))
        .collect();
    for one in all.iter().filter(|one| left.contains(one)) {
        for other in all.iter().filter(|other| !left.contains(other)) {
            network.cut.insert((*one, *other));
        }
    }
}
