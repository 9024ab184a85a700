//! The coordinators of a cluster on the embedded engine.

use std::time::Duration;

use fanpcap_cluster::control::{CoordinatorEnd, CoordinatorSettings, Role, State};
use fanpcap_cluster::coordinator::{Coordinator, Note, Timing};
use fanpcap_cluster::{Topology, WriteError};

use super::{HEARTBEAT, MILLI, NEVER, Network, OFFLINE, Ways, chair_at};
use crate::proof::lineage::Written;
use crate::store::Time;

/// A coordinator, its file, and what befalls it.
pub(super) struct Chair {
    core: Coordinator,
    pub(super) end: Option<CoordinatorEnd>,
    file: Option<State>,
    /// Whether its file is gone when it starts again.
    pub(super) loses_file: bool,
    pub(super) starts: Time,
    pub(super) stopped: Time,
    /// Until then it can't write its file.
    pub(super) full: Time,
    /// Until then it is cut off; from all, or from the others and every second node.
    pub(super) cut: Time,
    pub(super) is_half_cut: bool,
    pub(super) ways: Ways,
    /// How far its monotonic clock is from the time.
    pub(super) skew: Duration,
    leads: bool,
}

/// What the last leader knows.
pub(super) struct Last {
    pub(super) topology: Option<Box<Topology>>,
    /// Whether it knows of no node that is due a bucket.
    pub(super) has_nobody: bool,
}

impl Chair {
    pub(super) fn new(outlast: Duration) -> Self {
        Self {
            core: Coordinator::new(timing(outlast)),
            end: None,
            file: None,
            loses_file: false,
            starts: 0,
            stopped: 0,
            full: 0,
            cut: 0,
            is_half_cut: false,
            ways: Ways::Both,
            skew: Duration::from_secs(10_000),
            leads: false,
        }
    }
}

impl Network {
    fn start_chair(&mut self, at: usize) {
        let beat = HEARTBEAT / 5;
        let number = u8::try_from(at).expect("few");
        let others = (0..self.chairs.len()).filter(|other| *other != at);
        let settings = CoordinatorSettings {
            others: others.map(chair_at).collect(),
            pulse: beat,
            silence: beat * 3,
            ballot: beat,
            announce: HEARTBEAT,
            offline: OFFLINE,
            settle: beat * 2,
            retry: beat / 2,
            ..CoordinatorSettings::new(number, chair_at(at))
        };
        let endpoint = self.endpoint(Role::Coordinator, u32::from(number));
        let (now, outlast) = (self.time(), self.outlast);
        let chair = &mut self.chairs[at];
        if std::mem::take(&mut chair.loses_file) {
            chair.file = None;
        }
        chair.core = Coordinator::new(timing(outlast));
        let file = chair.file.clone();
        let has_file = file.is_some();
        chair.end = Some(CoordinatorEnd::new(now, settings, endpoint, file));
        self.say(|| format!("coordinator {at} starts, with a file: {has_file}"));
    }

    pub(super) fn step_chair(&mut self, at: usize) {
        let (now, time) = (self.now, self.time());
        if self.chairs[at].starts <= now {
            self.chairs[at].starts = NEVER;
            self.start_chair(at);
        }
        let chair = &mut self.chairs[at];
        if chair.stopped > now {
            return;
        }
        let Some(end) = &mut chair.end else { return };
        end.tick(time);
        self.flush_chair(at);
        if now % (50 * MILLI) == 0 {
            self.plan(at);
        }
        self.flush_chair(at);
    }

    /// Has the coordinator plan, and writes what it says.
    fn plan(&mut self, at: usize) {
        let time = self.time();
        let chair = &mut self.chairs[at];
        let Some(end) = &mut chair.end else { return };
        let view = end.view(time).clone();
        let step = chair.core.step(&view, time + chair.skew);
        let mut story: Vec<String> = step.notes.iter().map(ToString::to_string).collect();
        if chair.leads != view.leads {
            chair.leads = view.leads;
            story.push(format!("leads: {} {:?}", view.leads, end.leader()));
        }
        if let Some(write) = step.write {
            let written = end.write(time, &write.topology, write.replaces);
            story.push(format!("writes {written:?} {}", write.change));
            match written {
                Ok(revision) => self.written.push(Written {
                    revision,
                    replaces: write.replaces,
                    topology: write.topology,
                }),
                Err(error) => assert!(!matches!(error, WriteError::Engine(_)), "{error}"),
            }
        }
        for line in story {
            self.say(|| format!("coordinator {at}: {line}"));
        }
    }

    /// Stores what has changed, then sends.
    fn flush_chair(&mut self, at: usize) {
        let now = self.now;
        let chair = &mut self.chairs[at];
        let Some(end) = &mut chair.end else { return };
        match end.to_store() {
            Some(_) if chair.full > now => end.not_stored(),
            Some(state) => {
                end.stored(&state);
                chair.file = Some(state);
            }
            None => {}
        }
        let out: Vec<_> = std::iter::from_fn(|| end.outgoing()).collect();
        for (to, datagram) in out {
            self.send(chair_at(at), to, datagram);
        }
    }

    /// What the one coordinator that leads knows at the end; `None` if there are none or several.
    pub(super) fn last(&mut self) -> Option<Last> {
        let time = self.time();
        let mut leading = self.chairs.iter_mut().filter_map(|chair| {
            let view = chair.end.as_mut()?.view(time).clone();
            view.leads.then(|| Last {
                topology: view.topology.map(|(_, topology)| topology),
                has_nobody: chair.core.conditions().any(|note| *note == Note::Nobody),
            })
        });
        let last = leading.next()?;
        leading.next().is_none().then_some(last)
    }
}

fn timing(outlast: Duration) -> Timing {
    Timing {
        lease: OFFLINE,
        outlast,
        ..Timing::default()
    }
}
