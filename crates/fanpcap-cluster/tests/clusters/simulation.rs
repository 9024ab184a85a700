//! Simulates a cluster that uses a store: handles events in the order of their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

use fanpcap_cluster::node::{Assignment, Command};
use fanpcap_cluster::{NodeEvent, NodeId, Revision, Topology};

use crate::machines::{CoordinatorHost, Machine};
use crate::proof::{End, Era, Run};
use crate::run_plan::{END, Fault, RunPlan};
use crate::seeded_random::SeededRandom;
use crate::store::{Store, Time};

const MILLI: Time = 1000;

/// An event in the queue.
enum Event {
    /// A node's agent does its work.
    NodeTick(usize, u64),
    /// A topology arrives at a node's agent.
    Deliver(usize, u64, Revision, Box<Topology>),
    /// A node's table is loaded, or the load fails.
    Loaded(usize, u64, Rc<Assignment>, bool),
    /// A coordinator does its work.
    CoordinatorTick(usize, u64),
    /// A node's acknowledgement arrives at the store.
    Acknowledge(NodeId, u64, Revision),
    /// A topology arrives at the store.
    Write(u64, Option<Revision>, Box<Topology>),
    /// A fault, or a planned change.
    Fault(Fault),
    /// A machine that stood still continues.
    Thaw(usize),
    /// A machine boots.
    Boot(usize),
    /// A node's agent starts.
    Agent(usize),
    /// A coordinator starts.
    CoordinatorStart(usize),
    /// The store has a quorum again. If the value is true, the store then revokes all leases.
    Quorum(bool),
}

/// A cluster on a store, with its events.
pub(crate) struct StoreSimulation {
    now: Time,
    random: SeededRandom,
    queue: BinaryHeap<Reverse<(Time, u64, usize)>>,
    /// The events. The queue has their indices.
    events: Vec<Option<Event>>,
    pub(crate) store: Store,
    pub(crate) machines: Vec<Machine>,
    hosts: Vec<CoordinatorHost>,
    talks: bool,
}

impl StoreSimulation {
    /// Simulates the cluster that `seed` and `plan` determine, from its start to its end.
    pub(crate) fn run(seed: u64, plan: &RunPlan, talks: bool) -> Self {
        let mut simulation = Self {
            now: 0,
            random: SeededRandom::new(seed),
            queue: BinaryHeap::new(),
            events: Vec::new(),
            store: Store::default(),
            machines: (1..).take(plan.nodes).map(Machine::new).collect(),
            hosts: (0..plan.hosts).map(|_| CoordinatorHost::new()).collect(),
            talks,
        };
        for node in 0..plan.nodes {
            let late = plan.begins_late(node);
            let from = if late { 5_000 * MILLI } else { 0 };
            let to = if late { 30_000 * MILLI } else { 1_500 * MILLI };
            let at = simulation.random.between(from, to);
            simulation.at(at, Event::Boot(node));
        }
        for host in 0..plan.hosts {
            simulation.at(0, Event::CoordinatorTick(host, 0));
        }
        for (at, fault) in plan.faults(&mut simulation.random) {
            simulation.at(at, Event::Fault(fault));
        }
        while let Some(Reverse((at, _, number))) = simulation.queue.pop() {
            if at > END {
                break;
            }
            simulation.now = at;
            simulation.store.expire(at);
            let event = simulation.events[number]
                .take()
                .expect("an event happens once");
            simulation.happen(event);
        }
        simulation
    }

    /// Returns the run for the proof. In the proof, each topology is in force until the next
    /// topology is written.
    pub(crate) fn judged(&self) -> Run<'_> {
        let history = self.store.history.iter();
        let topologies: Vec<&Topology> = history.map(|(_, _, topology)| &**topology).collect();
        let history = self.store.history.iter().enumerate();
        let era = |(place, (at, ..)): (usize, &(Time, _, _))| Era {
            from: *at,
            heads: vec![place],
        };
        Run {
            machines: &self.machines,
            eras: history.map(era).collect(),
            stale: vec![Vec::new(); self.machines.len()],
            end: End::Stands(topologies.last().copied()),
            topologies,
        }
    }

    fn at(&mut self, time: Time, event: Event) {
        let number = self.events.len();
        self.events.push(Some(event));
        // Events of the same time happen in random order.
        self.queue.push(Reverse((time, self.random.roll(), number)));
    }

    fn after(&mut self, delay: Time, event: Event) {
        self.at(self.now + delay, event);
    }

    #[expect(clippy::print_stdout, reason = "a run's story")]
    fn say(&self, what: impl FnOnce() -> String) {
        if self.talks {
            println!("{:>9.3} s  {}", self.now as f64 / 1e6, what());
        }
    }

    /// How long a message takes; `None` if it is lost.
    fn flight(&mut self) -> Option<Time> {
        match self.random.between(0, 40) {
            0 => None,
            1 => Some(self.random.between(0, 2_000 * MILLI)),
            _ => Some(self.random.between(MILLI / 2, 20 * MILLI)),
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::NodeTick(node, run) => self.node_tick(node, run),
            Event::Deliver(node, run, revision, topology) => {
                self.deliver(node, run, revision, topology);
            }
            Event::Loaded(node, run, assignment, is_good) => {
                self.loaded(node, run, assignment, is_good)
            }
            Event::CoordinatorTick(host, run) => self.host_tick(host, run),
            Event::Acknowledge(node, boot, revision) if !self.store.is_out => {
                self.store.acknowledge(node, boot, revision);
            }
            Event::Write(term, replaces, topology) if !self.store.is_out => {
                self.write(term, replaces, topology);
            }
            Event::Acknowledge(..) | Event::Write(..) => (),
            Event::Fault(fault) => self.suffer(fault),
            Event::Thaw(node) => self.machines[node].note(self.now),
            Event::Boot(node) => self.boot(node),
            Event::Agent(node) => self.start_agent(node),
            Event::CoordinatorStart(host) => {
                self.say(|| format!("coordinator {host} starts"));
                self.hosts[host].restart();
                self.after(0, Event::CoordinatorTick(host, self.hosts[host].run));
            }
            Event::Quorum(revoke) => {
                self.say(|| format!("the store is back (all leases revoked: {revoke})"));
                self.store.come_back(self.now, revoke);
            }
        }
    }

    fn boot(&mut self, node: usize) {
        if self.machines[node].is_on {
            return;
        }
        self.say(|| format!("node {} boots", node + 1));
        let machine = &mut self.machines[node];
        machine.is_on = true;
        machine.boot += 1;
        machine.table = None;
        machine.note(self.now);
        self.start_agent(node);
    }

    fn start_agent(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if !machine.is_on || machine.agent.is_some() {
            return;
        }
        machine.start_agent();
        let run = machine.run;
        self.say(|| format!("agent {} starts", node + 1));
        self.after(MILLI, Event::NodeTick(node, run));
    }

    fn node_tick(&mut self, node: usize, run: u64) {
        let now = self.now;
        let machine = &mut self.machines[node];
        if machine.run != run {
            return;
        }
        let idle = machine.idle_until();
        if idle > now {
            return self.at(idle + MILLI, Event::NodeTick(node, run));
        }
        let pause = self.random.between(200, 700) * MILLI;
        self.after(pause, Event::NodeTick(node, run));
        let machine = &mut self.machines[node];
        let reaches = machine.cut <= now && !self.store.is_out;
        let mut commands = Vec::new();
        let Some(agent) = &mut machine.agent else {
            return;
        };
        commands.extend(agent.tick(Duration::from_micros(now)));
        if machine.reaches != reaches {
            machine.reaches = reaches;
            commands.extend(agent.take(NodeEvent::Reach(reaches)));
        }
        self.obey(node, commands);
        if reaches {
            self.visit_store(node);
        }
    }

    /// A node keeps its lease alive, repeats its acknowledgement, and asks for what it missed.
    fn visit_store(&mut self, node: usize) {
        let machine = &self.machines[node];
        self.store.keep_alive(machine.announcement(), self.now);
        if let Some(current) = machine.current() {
            self.obey(node, vec![Command::Acknowledge(current)]);
        }
        let version = self.store.version;
        if self.machines[node].seen != version && self.send_topology(node) {
            self.machines[node].seen = version;
        }
    }

    /// Sends the topology, if there is one, to a node. Returns false if the message is lost.
    fn send_topology(&mut self, node: usize) -> bool {
        let flight = self.flight();
        if let (Some((revision, topology)), Some(flight)) = (self.store.topology.clone(), flight) {
            let run = self.machines[node].run;
            self.after(flight, Event::Deliver(node, run, revision, topology));
        }
        flight.is_some()
    }

    fn deliver(&mut self, node: usize, run: u64, revision: Revision, topology: Box<Topology>) {
        let machine = &mut self.machines[node];
        if machine.run != run || machine.cut > self.now {
            return;
        }
        let idle = machine.idle_until();
        if idle > self.now {
            return self.at(idle + MILLI, Event::Deliver(node, run, revision, topology));
        }
        let Some(agent) = &mut machine.agent else {
            return;
        };
        let commands = agent.take(NodeEvent::Topology(revision, topology));
        self.obey(node, commands);
    }

    /// Executes the commands of a node's state machine.
    fn obey(&mut self, node: usize, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Say(_) => (),
                Command::Acknowledge(revision) => {
                    let machine = &self.machines[node];
                    let (id, boot, is_cut) = (machine.id, machine.boot, machine.cut > self.now);
                    if let Some(flight) = self.flight().filter(|_| !is_cut) {
                        self.after(flight, Event::Acknowledge(id, boot, revision));
                    }
                }
                Command::Load(assignment) => {
                    let slow = self.random.one_in(20);
                    let takes = self
                        .random
                        .between(MILLI, if slow { 800 } else { 20 } * MILLI);
                    let is_good = !self.random.one_in(40);
                    let run = self.machines[node].run;
                    let assignment = Rc::from(assignment);
                    self.after(takes, Event::Loaded(node, run, assignment, is_good));
                }
            }
        }
    }

    fn loaded(&mut self, node: usize, run: u64, assignment: Rc<Assignment>, is_good: bool) {
        let now = self.now;
        let machine = &mut self.machines[node];
        if machine.run != run {
            return;
        }
        let idle = machine.idle_until();
        if idle > now {
            return self.at(idle + MILLI, Event::Loaded(node, run, assignment, is_good));
        }
        let Some(agent) = &mut machine.agent else {
            return;
        };
        let revision = assignment.revision;
        let commands = if is_good {
            machine.table = Some(assignment);
            let commands = agent.note_loaded(revision);
            machine.note(now);
            commands
        } else {
            agent.note_load_failure(revision, Duration::from_micros(now))
        };
        self.say(|| format!("node {} loads {revision}: {is_good}", node + 1));
        self.obey(node, commands);
    }

    fn host_tick(&mut self, at: usize, run: u64) {
        let now = self.now;
        let host = &self.hosts[at];
        if host.run != run {
            return;
        }
        let stopped = host.stopped;
        if stopped > now {
            return self.at(stopped + MILLI, Event::CoordinatorTick(at, run));
        }
        let pause = self.random.between(30, 110) * MILLI;
        self.after(pause, Event::CoordinatorTick(at, run));
        let is_cut = self.hosts[at].cut > now || self.store.is_out;
        self.look(at, is_cut);
        let host = &mut self.hosts[at];
        let clock = Duration::from_micros(now) + host.skew;
        let Some(core) = &mut host.core else {
            return;
        };
        let step = core.step(&host.view, clock);
        let term = host.term;
        for note in step.notes {
            self.say(|| format!("coordinator {at}: {note}"));
        }
        let (Some(write), Some(term)) = (step.write, term) else {
            return;
        };
        self.say(|| format!("coordinator {at} writes {}", write.change));
        if let Some(flight) = self.flight().filter(|_| !is_cut) {
            self.after(flight, Event::Write(term, write.replaces, write.topology));
        }
    }

    /// Lets a coordinator read the store. If the coordinator is cut off from the store, it may or
    /// may not notice that it no longer leads.
    fn look(&mut self, at: usize, is_cut: bool) {
        if is_cut {
            if self.random.one_in(20) {
                self.hosts[at].view.leads = false;
            }
            return;
        }
        // A real coordinator's view may be a few steps old, so in one of four cases the view stays
        // as it is.
        if self.random.one_in(4) {
            return;
        }
        let host = &mut self.hosts[at];
        host.term = self.store.campaign(at, self.now);
        host.view.leads = host.term.is_some();
        if host.seen != self.store.version {
            host.seen = self.store.version;
            host.view.live = self.store.live();
            host.view.desired = self.store.desired.clone();
            host.view.topology = self.store.topology.clone();
        }
    }

    fn write(&mut self, term: u64, replaces: Option<Revision>, topology: Box<Topology>) {
        let (epoch, now) = (topology.epoch, self.now);
        let is_written = self.store.write(term, replaces, topology, now);
        self.say(|| format!("epoch {epoch} is written: {is_written}"));
        if !is_written {
            return;
        }
        for node in 0..self.machines.len() {
            if self.machines[node].cut <= now {
                self.send_topology(node);
            }
        }
    }

    fn suffer(&mut self, fault: Fault) {
        self.say(|| format!("{fault:?}"));
        let now = self.now;
        match fault {
            Fault::PowerCut { node, lasts } => {
                let machine = &mut self.machines[node];
                if machine.is_on {
                    machine.is_on = false;
                    machine.kill_agent();
                    machine.note(now);
                    self.after(lasts, Event::Boot(node));
                }
            }
            Fault::Standstill { node, lasts } => {
                let machine = &mut self.machines[node];
                machine.frozen = machine.frozen.max(now + lasts);
                machine.note(now);
                let until = machine.frozen;
                self.at(until, Event::Thaw(node));
            }
            Fault::KilledAgent { node, lasts } => {
                self.machines[node].kill_agent();
                self.after(lasts, Event::Agent(node));
            }
            Fault::StoppedAgent { node, lasts } => self.machines[node].stopped = now + lasts,
            Fault::CutOff { node, lasts } => self.machines[node].cut = now + lasts,
            Fault::KilledCoordinator { host, lasts } => {
                self.hosts[host].kill();
                self.after(lasts, Event::CoordinatorStart(host));
            }
            Fault::StoppedCoordinator { host, lasts } => self.hosts[host].stopped = now + lasts,
            Fault::CutOffCoordinator { host, lasts } => self.hosts[host].cut = now + lasts,
            Fault::ClockJump { host, to } => {
                let skew = &mut self.hosts[host].skew;
                *skew =
                    Duration::from_secs(to) + Duration::from_micros(skew.subsec_micros().into());
            }
            Fault::NoQuorum { lasts, revoke } => {
                if !self.store.is_out {
                    self.store.is_out = true;
                    self.after(lasts, Event::Quorum(revoke));
                }
            }
            Fault::Drain { node } => {
                let id = self.machines[node].id;
                let drained = &mut self.store.desired.drained;
                if !drained.remove(&id) {
                    drained.insert(id);
                }
                self.store.version += 1;
            }
            Fault::Weigh { node, weight } => {
                self.store
                    .desired
                    .weights
                    .insert(self.machines[node].id, weight);
                self.store.version += 1;
            }
            Fault::Announce { node, weight } => self.machines[node].weight = weight,
            Fault::Leave { node, lasts } => {
                // The agent ends and tells the store so. The node's table stays in the kernel until
                // the next agent starts.
                if self.machines[node].agent.is_some() && !self.store.is_out {
                    self.store.leave(self.machines[node].id);
                    self.machines[node].kill_agent();
                    self.after(lasts, Event::Agent(node));
                }
            }
        }
    }
}
