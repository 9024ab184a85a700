//! Faults of a cluster on the embedded engine.

use std::time::Duration;

use fanpcap_cluster::control::OperatorChange;

use super::{NEVER, Network, Ways, node_at};
use crate::run_plan::{Fault, RunKind};

impl Network {
    pub(super) fn suffer(&mut self, fault: Fault) {
        self.say(|| format!("{fault:?}"));
        let now = self.now;
        match fault {
            Fault::PowerCut { node, lasts } => {
                if self.machines[node].is_on {
                    self.machines[node].is_on = false;
                    self.kill_agent(node);
                    self.machines[node].note(now);
                    self.boots[node] = now + lasts;
                    self.agents[node] = NEVER;
                }
            }
            Fault::Standstill { node, lasts } => {
                let machine = &mut self.machines[node];
                machine.frozen = machine.frozen.max(now + lasts);
                machine.note(now);
            }
            Fault::KilledAgent { node, lasts } => {
                self.kill_agent(node);
                self.agents[node] = now + lasts;
            }
            Fault::Leave { node, lasts } => {
                if let Some(end) = &mut self.ends[node] {
                    end.leave();
                    let out: Vec<_> = std::iter::from_fn(|| end.outgoing()).collect();
                    for (to, datagram) in out {
                        self.send(node_at(node), to, datagram);
                    }
                    self.kill_agent(node);
                    self.agents[node] = now + lasts;
                }
            }
            Fault::StoppedAgent { node, lasts } => self.machines[node].stopped = now + lasts,
            Fault::CutOff { node, lasts } => {
                self.machines[node].cut = now + lasts;
                self.ways[node] = Ways::of(lasts);
            }
            Fault::Drain { node } => {
                self.drained[node] = !self.drained[node];
                let id = self.machines[node].id;
                self.change(match self.drained[node] {
                    true => OperatorChange::Drain(id),
                    false => OperatorChange::Restore(id),
                });
            }
            Fault::Weigh { node, weight } => {
                let id = self.machines[node].id;
                self.change(OperatorChange::Weight(id, Some(weight)));
            }
            Fault::Announce { node, weight } => self.machines[node].weight = weight,
            Fault::NoQuorum { lasts, .. } => {
                // The control network fails.
                for host in &mut self.hosts {
                    (host.cut, host.is_half_cut, host.ways) = (now + lasts, false, Ways::Both);
                }
            }
            Fault::KilledCoordinator { .. }
            | Fault::StoppedCoordinator { .. }
            | Fault::CutOffCoordinator { .. }
            | Fault::ClockJump { .. } => self.suffer_host(fault),
        }
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the caller handles the faults of nodes"
    )]
    fn suffer_host(&mut self, fault: Fault) {
        let now = self.now;
        let is_odd = self.random.one_in(2);
        match fault {
            Fault::KilledCoordinator { host, lasts } => {
                let host = &mut self.hosts[host];
                host.end = None;
                host.starts = now + lasts;
                host.loses_file |= self.kind == RunKind::Storm && is_odd;
            }
            Fault::StoppedCoordinator { host, lasts } if is_odd => {
                self.hosts[host].full = now + lasts
            }
            Fault::StoppedCoordinator { host, lasts } => self.hosts[host].stopped = now + lasts,
            Fault::CutOffCoordinator { host, lasts } => {
                let host = &mut self.hosts[host];
                (host.cut, host.is_half_cut, host.ways) = (now + lasts, is_odd, Ways::of(lasts));
            }
            Fault::ClockJump { host, to } => {
                self.hosts[host].skew = Duration::from_secs(to);
            }
            _ => {}
        }
    }
}
