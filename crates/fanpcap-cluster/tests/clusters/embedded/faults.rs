//! What befalls a cluster on the embedded engine.

use std::time::Duration;

use fanpcap_cluster::control::Wish;

use super::{NEVER, Network, Ways, node_at};
use crate::fate::{Blow, Weather};

impl Network {
    pub(super) fn suffer(&mut self, blow: Blow) {
        self.say(|| format!("{blow:?}"));
        let now = self.now;
        match blow {
            Blow::PowerCut { node, lasts } => {
                if self.machines[node].is_on {
                    self.machines[node].is_on = false;
                    self.kill_agent(node);
                    self.machines[node].note(now);
                    self.boots[node] = now + lasts;
                    self.agents[node] = NEVER;
                }
            }
            Blow::Standstill { node, lasts } => {
                let machine = &mut self.machines[node];
                machine.frozen = machine.frozen.max(now + lasts);
                machine.note(now);
            }
            Blow::KilledAgent { node, lasts } => {
                self.kill_agent(node);
                self.agents[node] = now + lasts;
            }
            Blow::Leave { node, lasts } => {
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
            Blow::StoppedAgent { node, lasts } => self.machines[node].stopped = now + lasts,
            Blow::CutOff { node, lasts } => {
                self.machines[node].cut = now + lasts;
                self.ways[node] = Ways::of(lasts);
            }
            Blow::Drain { node } => {
                self.drained[node] = !self.drained[node];
                let id = self.machines[node].id;
                self.wish(match self.drained[node] {
                    true => Wish::Drain(id),
                    false => Wish::Restore(id),
                });
            }
            Blow::Weigh { node, weight } => {
                let id = self.machines[node].id;
                self.wish(Wish::Weight(id, Some(weight)));
            }
            Blow::Announce { node, weight } => self.machines[node].weight = weight,
            Blow::NoQuorum { lasts, .. } => {
                // The control network is gone.
                for chair in &mut self.chairs {
                    (chair.cut, chair.is_half_cut, chair.ways) = (now + lasts, false, Ways::Both);
                }
            }
            Blow::KilledChair { .. }
            | Blow::StoppedChair { .. }
            | Blow::CutOffChair { .. }
            | Blow::ClockJump { .. } => self.suffer_chair(blow),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the others befall nodes")]
    fn suffer_chair(&mut self, blow: Blow) {
        let now = self.now;
        let is_odd = self.dice.one_in(2);
        match blow {
            Blow::KilledChair { chair, lasts } => {
                let chair = &mut self.chairs[chair];
                chair.end = None;
                chair.starts = now + lasts;
                chair.loses_file |= self.weather == Weather::Storm && is_odd;
            }
            Blow::StoppedChair { chair, lasts } if is_odd => self.chairs[chair].full = now + lasts,
            Blow::StoppedChair { chair, lasts } => self.chairs[chair].stopped = now + lasts,
            Blow::CutOffChair { chair, lasts } => {
                let chair = &mut self.chairs[chair];
                (chair.cut, chair.is_half_cut, chair.ways) = (now + lasts, is_odd, Ways::of(lasts));
            }
            Blow::ClockJump { chair, to } => {
                self.chairs[chair].skew = Duration::from_secs(to);
            }
            _ => {}
        }
    }
}
