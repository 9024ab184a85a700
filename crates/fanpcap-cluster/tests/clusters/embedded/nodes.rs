//! The nodes of a cluster on the embedded engine.

use std::rc::Rc;

use fanpcap_cluster::control::{NodeEnd, NodeSettings, Role};
use fanpcap_cluster::node::{Assignment, Command};
use fanpcap_cluster::{Announcement, NodeEvent};

use super::{Event, HEARTBEAT, MILLI, NEVER, Network, OFFLINE, host_at, node_at};

impl Network {
    pub(super) fn start_agent(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if !machine.is_on || machine.agent.is_some() {
            return;
        }
        machine.start_agent();
        let settings = NodeSettings {
            coordinators: (0..self.hosts.len()).map(host_at).collect(),
            heartbeat: HEARTBEAT,
            retry: HEARTBEAT / 5,
            silence: OFFLINE,
        };
        let id = self.machines[at].id.0;
        let announcement = self.announcement(at);
        let endpoint = self.endpoint(Role::Node, id);
        self.ends[at] = Some(NodeEnd::new(settings, endpoint, announcement));
        self.say(|| format!("agent {id} starts"));
    }

    fn announcement(&self, at: usize) -> Announcement {
        Announcement {
            address: node_at(at),
            ..self.machines[at].announcement()
        }
    }

    pub(super) fn kill_agent(&mut self, at: usize) {
        self.machines[at].kill_agent();
        self.ends[at] = None;
    }

    pub(super) fn step_machine(&mut self, at: usize) {
        let (now, time) = (self.now, self.time());
        if self.boots[at] <= now {
            self.boots[at] = NEVER;
            self.boot(at);
        }
        if self.agents[at] <= now {
            self.agents[at] = NEVER;
            self.start_agent(at);
        }
        let machine = &mut self.machines[at];
        if machine.frozen != 0 && machine.frozen <= now {
            machine.frozen = 0;
            machine.note(now);
        }
        if machine.idle_until() > now {
            return;
        }
        let announcement = self.announcement(at);
        let Some(end) = &mut self.ends[at] else {
            return;
        };
        end.announce(announcement);
        end.tick(time);
        let events: Vec<NodeEvent> = std::iter::from_fn(|| end.event()).collect();
        let Some(agent) = &mut self.machines[at].agent else {
            return;
        };
        let mut commands = agent.tick(time);
        commands.extend(events.into_iter().flat_map(|event| agent.take(event)));
        self.obey(at, commands);
        let Some(end) = &mut self.ends[at] else {
            return;
        };
        let out: Vec<_> = std::iter::from_fn(|| end.outgoing()).collect();
        for (to, datagram) in out {
            self.send(node_at(at), to, datagram);
        }
    }

    fn boot(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if machine.is_on {
            return;
        }
        machine.is_on = true;
        machine.boot += 1;
        machine.table = None;
        machine.note(self.now);
        self.start_agent(at);
    }

    fn obey(&mut self, at: usize, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Say(_) => (),
                Command::Acknowledge(revision) => {
                    if let Some(end) = &mut self.ends[at] {
                        end.acknowledge(revision);
                    }
                }
                Command::Load(assignment) => {
                    let slow = if self.random.one_in(20) { 800 } else { 20 };
                    let takes = self.random.between(MILLI, slow * MILLI);
                    let is_good = !self.random.one_in(40);
                    let run = self.machines[at].run;
                    self.put(takes, Event::Loaded(at, run, Rc::from(assignment), is_good));
                }
            }
        }
    }

    pub(super) fn loaded(
        &mut self,
        at: usize,
        run: u64,
        assignment: Rc<Assignment>,
        is_good: bool,
    ) {
        let (now, time) = (self.now, self.time());
        let machine = &mut self.machines[at];
        if machine.run != run {
            return;
        }
        let idle = machine.idle_until();
        if idle > now {
            let event = Event::Loaded(at, run, assignment, is_good);
            return self.put(idle - now + MILLI, event);
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
            agent.note_load_failure(revision, time)
        };
        self.say(|| format!("node {} loads {revision}: {is_good}", at + 1));
        self.obey(at, commands);
    }
}
