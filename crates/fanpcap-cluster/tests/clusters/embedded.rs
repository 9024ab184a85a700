//! Clusters on the embedded engine. The network between the protocol's state machines delays,
//! loses, doubles and reorders datagrams. An intruder without the key sends datagrams too.

mod hosts;
mod nodes;
mod faults;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use fanpcap_cluster::control::{
    ClusterId, Endpoint, Key, Keys, NodeEnd, OperatorChange, OperatorEnd, Peer, Request, Role,
};
use fanpcap_cluster::node::Assignment;
use fanpcap_cluster::{Revision, Topology};

use crate::account;
use crate::machines::Machine;
use crate::proof::lineage::{self, Written};
use crate::proof::{self, Broken, End, Run, Verdict};
use crate::run_plan::{Cut, END, Participant, RunKind, RunPlan};
use crate::seeded_random::SeededRandom;
use crate::store::Time;
use hosts::{CoordinatorHost, Last};

const MILLI: Time = 1000;
const SECOND: Time = 1000 * MILLI;
const STEP: Time = 10 * MILLI;

/// The time between heartbeats, and the silence after which a node is offline: a third of the
/// defaults.
const HEARTBEAT: Duration = Duration::from_micros(1_666_666);
const OFFLINE: Duration = Duration::from_secs(5);

/// How many datagrams the intruder remembers.
const REMEMBERED: usize = 500;

/// Events that happen at a later time of the run.
enum Event {
    Datagram(SocketAddr, SocketAddr, Vec<u8>),
    Loaded(usize, u64, Rc<Assignment>, bool),
}

/// Which directions a cut blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ways {
    /// The participant neither sends nor receives.
    Both,
    /// The participant sends, but does not receive.
    Deaf,
    /// The participant receives, but does not send.
    Mute,
}

impl Ways {
    fn of(lasts: Time) -> Self {
        [Self::Both, Self::Deaf, Self::Mute][usize::try_from(lasts % 3).unwrap_or(0)]
    }
}

/// A cluster on the embedded engine, with its faults and events.
pub(crate) struct Network {
    now: Time,
    random: SeededRandom,
    kind: RunKind,
    pub(crate) machines: Vec<Machine>,
    ends: Vec<Option<NodeEnd>>,
    /// When each machine boots. `agents` has the times at which the agents start.
    boots: Vec<Time>,
    agents: Vec<Time>,
    hosts: Vec<CoordinatorHost>,
    operators: Vec<OperatorEnd>,
    in_flight: BTreeMap<(Time, u64), Event>,
    sent: u64,
    runs: u64,
    heard: VecDeque<(SocketAddr, SocketAddr, Vec<u8>)>,
    drained: Vec<bool>,
    /// For each node, the directions that a cut blocks.
    ways: Vec<Ways>,
    cuts: Vec<Cut>,
    outlast: Duration,
    /// All topologies that leaders have written, in the order of time.
    pub(crate) written: Vec<Written>,
    /// For each second, the topology that each coordinator knows.
    known: Vec<Vec<Option<Revision>>>,
    talks: bool,
}

const NEVER: Time = Time::MAX;

fn address(net: u8, at: usize) -> SocketAddr {
    let host = u8::try_from(at + 1).expect("few");
    SocketAddr::from(([10, 0, net, host], 7000))
}

fn host_at(at: usize) -> SocketAddr {
    address(0, at)
}

fn node_at(at: usize) -> SocketAddr {
    address(1, at)
}

fn operator_at(at: usize) -> SocketAddr {
    address(2, at)
}

fn place(of: SocketAddr, net: u8) -> Option<usize> {
    let SocketAddr::V4(of) = of else { return None };
    let [_, _, own, host] = of.ip().octets();
    (own == net && host > 0).then(|| usize::from(host) - 1)
}

impl Network {
    /// Runs a cluster with the events of `plan`, which depend on `seed`, until [`END`].
    pub(crate) fn run(seed: u64, plan: &RunPlan, talks: bool) -> Self {
        let mut network = Self::new(seed, plan, talks);
        let mut faults = plan.faults(&mut network.random);
        faults.sort_by_key(|(at, _)| *at);
        let mut faults = VecDeque::from(faults);
        for cut in &network.cuts {
            network.say(|| format!("{cut:?}"));
        }
        while network.now < END {
            network.now += STEP;
            while faults.front().is_some_and(|(at, _)| *at <= network.now) {
                if let Some((_, fault)) = faults.pop_front() {
                    network.suffer(fault);
                }
            }
            network.deliver();
            (0..network.hosts.len()).for_each(|at| network.step_host(at));
            if network.now % SECOND == 0 {
                network.look();
            }
            (0..network.machines.len()).for_each(|at| network.step_machine(at));
            network.step_operators();
            network.intrude();
        }
        network
    }

    /// Checks that the run violated none of the cluster's guarantees.
    pub(crate) fn judge(&mut self, plan: &RunPlan) -> Result<Verdict, Broken> {
        let last = self.last();
        let machines = self.machines.iter();
        let stale: Result<Vec<_>, _> = machines
            .map(|machine| lineage::stale(machine, &self.written))
            .collect();
        let run = Run {
            machines: &self.machines,
            topologies: self.written.iter().map(|one| &*one.topology).collect(),
            eras: lineage::eras(&self.machines, &self.written)?,
            stale: stale?,
            end: match &last {
                Some(Last {
                    topology: None,
                    has_nobody: true,
                }) => End::Nobody,
                last => End::Stands(last.as_ref().and_then(|last| last.topology.as_deref())),
            },
        };
        let mut verdict = proof::judge(&run, plan)?;
        if verdict.forked > 0 || verdict.stale > 0 {
            for first in 0..self.hosts.len() {
                let read = |time| self.read(first, time);
                verdict.accounts += usize::from(account::hold(&self.machines, read)?);
            }
        }
        Ok(verdict)
    }

    /// The topology that an analyzer reads at a time: that of the coordinator `first`, or of
    /// another one if this one is down.
    fn read(&self, first: usize, time: Time) -> Option<(Revision, &Topology)> {
        let second = usize::try_from(time / SECOND).ok()?.min(self.known.len());
        let known = &self.known[second.checked_sub(1)?];
        let (before, after) = known.split_at(first);
        let revision = after.iter().chain(before).flatten().next()?;
        let mut written = self.written.iter();
        let of_revision = written.find(|written| written.revision == *revision)?;
        Some((*revision, &*of_revision.topology))
    }

    fn new(seed: u64, plan: &RunPlan, talks: bool) -> Self {
        let mut random = SeededRandom::new(seed ^ 0xe4be);
        let nodes = 0..plan.nodes;
        let boots = nodes.map(|node| match plan.begins_late(node) {
            true => random.between(15_000 * MILLI, 32_000 * MILLI),
            false => random.between(0, 1_500 * MILLI),
        });
        let boots: Vec<Time> = boots.collect();
        let outlast = Duration::from_secs(random.between(12, 40));
        Self {
            now: 0,
            kind: plan.kind,
            machines: (1..).take(plan.nodes).map(Machine::new).collect(),
            ends: (0..plan.nodes).map(|_| None).collect(),
            agents: vec![NEVER; plan.nodes],
            boots,
            hosts: (0..plan.hosts)
                .map(|_| CoordinatorHost::new(outlast))
                .collect(),
            operators: Vec::new(),
            in_flight: BTreeMap::new(),
            sent: 0,
            runs: 0,
            heard: VecDeque::new(),
            drained: vec![false; plan.nodes],
            ways: vec![Ways::Both; plan.nodes],
            cuts: plan.cuts(seed),
            outlast,
            written: Vec::new(),
            known: Vec::new(),
            random,
            talks,
        }
    }

    #[expect(clippy::print_stdout, reason = "a run's story")]
    fn say(&self, what: impl FnOnce() -> String) {
        if self.talks {
            println!("{:>9.3} s  {}", self.now as f64 / 1e6, what());
        }
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    fn endpoint(&mut self, role: Role, id: u32) -> Endpoint {
        self.runs += 1;
        let mut secret = [role as u8; 32];
        secret[..8].copy_from_slice(&self.runs.to_be_bytes());
        let keys = Keys {
            current: Key::new(vec![7; 32]).expect("32 bytes"),
            other: None,
        };
        Endpoint::new(Peer { role, id }, ClusterId(1), keys, secret)
    }

    fn put(&mut self, delay: Time, event: Event) {
        self.sent += 1;
        self.in_flight.insert((self.now + delay, self.sent), event);
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        if self.random.one_in(8) {
            self.heard.push_back((from, to, datagram.clone()));
            if self.heard.len() > REMEMBERED {
                self.heard.pop_front();
            }
        }
        let copies = match self.random.between(0, 40) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let late = if self.random.one_in(40) { 1000 } else { 20 };
            let delay = self.random.between(MILLI / 2, late * MILLI);
            self.put(delay, Event::Datagram(from, to, datagram.clone()));
        }
    }

    /// Whether a datagram between these addresses is lost.
    fn is_cut(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let is_cut = |here: SocketAddr, there: SocketAddr| {
            let is_open = |ways: &Ways| match here == from {
                true => *ways == Ways::Deaf,
                false => *ways == Ways::Mute,
            };
            let node = place(here, 1).and_then(|at| self.machines.get(at));
            let node = node.filter(|_| !place(here, 1).is_some_and(|at| is_open(&self.ways[at])));
            let host = place(here, 0).and_then(|at| self.hosts.get(at));
            let host = host.filter(|host| !is_open(&host.ways));
            let from_all = |host: &CoordinatorHost| {
                let is_spared = place(there, 1).is_some_and(|node| node % 2 == 0);
                !(host.is_half_cut && is_spared)
            };
            node.is_some_and(|node| node.cut > self.now)
                || host.is_some_and(|host| host.cut > self.now && from_all(host))
        };
        is_cut(from, to) || is_cut(to, from) || self.is_link_cut(from, to)
    }

    fn is_link_cut(&self, from: SocketAddr, to: SocketAddr) -> bool {
        let address = |participant| match participant {
            Participant::Coordinator(at) => host_at(at),
            Participant::Node(at) => node_at(at),
        };
        let is = |cut: &Cut| (address(cut.from), address(cut.to)) == (from, to);
        let mut cuts = self.cuts.iter();
        cuts.any(|cut| cut.times.contains(&self.now) && is(cut))
    }

    fn deliver(&mut self) {
        let later = self.in_flight.split_off(&(self.now + 1, 0));
        for (_, event) in std::mem::replace(&mut self.in_flight, later) {
            match event {
                Event::Datagram(from, to, datagram) => self.hand(from, to, datagram),
                Event::Loaded(node, run, assignment, is_good) => {
                    self.loaded(node, run, assignment, is_good);
                }
            }
        }
    }

    fn hand(&mut self, from: SocketAddr, to: SocketAddr, datagram: Vec<u8>) {
        if self.is_cut(from, to) {
            return;
        }
        let (now, time) = (self.now, self.time());
        // A participant that stands still reads the datagram later.
        let idle = match (place(to, 0), place(to, 1)) {
            (Some(at), _) => self.hosts.get(at).map_or(0, |host| host.stopped),
            (_, Some(at)) => self.machines.get(at).map_or(0, Machine::idle_until),
            _ => 0,
        };
        if idle > now {
            return self.put(idle - now + MILLI, Event::Datagram(from, to, datagram));
        }
        let host = place(to, 0).and_then(|at| self.hosts.get_mut(at)?.end.as_mut());
        let node = place(to, 1).and_then(|at| self.ends.get_mut(at)?.as_mut());
        let operator = place(to, 2).and_then(|at| self.operators.get_mut(at));
        // Errors are ignored, because each receiver counts the datagrams that it refuses.
        let _ = host.map(|end| end.receive(time, from, &datagram));
        let _ = node.map(|end| end.receive(time, from, &datagram));
        let _ = operator.map(|end| end.receive(time, from, &datagram));
    }

    fn step_operators(&mut self) {
        let time = self.time();
        self.operators.retain_mut(|end| end.reply().is_none());
        let Some(end) = self.operators.first_mut() else {
            return;
        };
        end.tick(time);
        let out: Vec<_> = std::iter::from_fn(|| end.outgoing()).collect();
        for (to, datagram) in out {
            self.send(operator_at(0), to, datagram);
        }
    }

    /// Makes the operator ask for this change, until a reply comes or another change begins.
    fn change(&mut self, change: OperatorChange) {
        let id = u32::try_from(self.runs).unwrap_or(0);
        let endpoint = self.endpoint(Role::Operator, id);
        let all = (0..self.hosts.len()).map(host_at).collect();
        let operator = OperatorEnd::new(all, endpoint, Request::OperatorChange(change));
        self.operators = vec![operator];
    }

    /// An intruder without the key repeats datagrams, changes bits, and uses other addresses.
    fn intrude(&mut self) {
        if self.heard.is_empty() || !self.random.one_in(5) {
            return;
        }
        let at = self.random.place(self.heard.len());
        let (from, to, mut datagram) = self.heard[at].clone();
        let other = self.random.place(self.heard.len());
        let (strange, elsewhere, _) = self.heard[other].clone();
        let from = if self.random.one_in(2) { from } else { strange };
        let to = if self.random.one_in(2) { to } else { elsewhere };
        if self.random.one_in(3) {
            let bit = self.random.place(datagram.len() * 8);
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        self.put(MILLI, Event::Datagram(from, to, datagram));
    }
}
