//! The coordinators of a cluster on the embedded engine.

use std::time::Duration;

use fanpcap_cluster::control::{CoordinatorEnd, CoordinatorSettings, Role, State};
use fanpcap_cluster::coordinator::{Condition, Coordinator, Timing};
use fanpcap_cluster::{Topology, WriteError};

use super::{HEARTBEAT, MILLI, NEVER, Network, OFFLINE, Ways, host_at};
use crate::proof::lineage::Written;
use crate::store::Time;

/// A coordinator, its file, and its faults.
pub(super) struct CoordinatorHost {
    core: Coordinator,
    pub(super) end: Option<CoordinatorEnd>,
    file: Option<State>,
    /// Whether the coordinator's file is lost before the coordinator restarts.
    pub(super) loses_file: bool,
    pub(super) starts: Time,
    pub(super) stopped: Time,
    /// The coordinator can't write its file until this time.
    pub(super) full: Time,
    /// The coordinator is cut off until this time. If `is_half_cut` is set, it still reaches the
    /// nodes with even indices.
    pub(super) cut: Time,
    pub(super) is_half_cut: bool,
    pub(super) ways: Ways,
    /// The coordinator's monotonic clock minus the simulation's time.
    pub(super) skew: Duration,
    leads: bool,
}

/// What the leader knows at the end of the run.
pub(super) struct Last {
    pub(super) topology: Option<Box<Topology>>,
    /// Whether the leader knows no live node with a weight.
    pub(super) has_nobody: bool,
}

impl CoordinatorHost {
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
    fn start_host(&mut self, at: usize) {
        let beat = HEARTBEAT / 5;
        let number = u8::try_from(at).expect("few");
        let others = (0..self.hosts.len()).filter(|other| *other != at);
        let settings = CoordinatorSettings {
            others: others.map(host_at).collect(),
            pulse: beat,
            silence: beat * 3,
            ballot: beat,
            announce: HEARTBEAT,
            offline: OFFLINE,
            settle: beat * 2,
            retry: beat / 2,
            ..CoordinatorSettings::new(number, host_at(at))
        };
        let endpoint = self.endpoint(Role::Coordinator, u32::from(number));
        let (now, outlast) = (self.time(), self.outlast);
        let host = &mut self.hosts[at];
        if std::mem::take(&mut host.loses_file) {
            host.file = None;
        }
        host.core = Coordinator::new(timing(outlast));
        let file = host.file.clone();
        let has_file = file.is_some();
        host.end = Some(CoordinatorEnd::new(now, settings, endpoint, file));
        self.say(|| format!("coordinator {at} starts, with a file: {has_file}"));
    }

    pub(super) fn step_host(&mut self, at: usize) {
        let (now, time) = (self.now, self.time());
        if self.hosts[at].starts <= now {
            self.hosts[at].starts = NEVER;
            self.start_host(at);
        }
        let host = &mut self.hosts[at];
        if host.stopped > now {
            return;
        }
        let Some(end) = &mut host.end else { return };
        end.tick(time);
        self.flush_host(at);
        if now % (50 * MILLI) == 0 {
            self.plan(at);
        }
        self.flush_host(at);
    }

    /// Notes which topology each coordinator knows.
    pub(super) fn look(&mut self) {
        let (now, time) = (self.now, self.time());
        let hosts = self.hosts.iter_mut();
        let known = hosts.map(|host| {
            let end = host.end.as_mut().filter(|_| host.stopped <= now)?;
            let (revision, _) = end.view(time).topology.as_ref()?;
            Some(*revision)
        });
        let known = known.collect();
        self.known.push(known);
    }

    /// Runs one step of the coordinator, and keeps the topology that it writes.
    fn plan(&mut self, at: usize) {
        let time = self.time();
        let host = &mut self.hosts[at];
        let Some(end) = &mut host.end else { return };
        let view = end.view(time).clone();
        let step = host.core.step(&view, time + host.skew);
        let mut story: Vec<String> = step.notes.iter().map(ToString::to_string).collect();
        if host.leads != view.leads {
            host.leads = view.leads;
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

    /// Stores the coordinator's changes, then sends its datagrams.
    fn flush_host(&mut self, at: usize) {
        let now = self.now;
        let host = &mut self.hosts[at];
        let Some(end) = &mut host.end else { return };
        match end.to_store() {
            Some(_) if host.full > now => end.note_store_failure(),
            Some(state) => {
                end.note_stored(&state);
                host.file = Some(state);
            }
            None => {}
        }
        let out: Vec<_> = std::iter::from_fn(|| end.outgoing()).collect();
        for (to, datagram) in out {
            self.send(host_at(at), to, datagram);
        }
    }

    /// What the leader knows at the end; `None` if there is not exactly one leader.
    pub(super) fn last(&mut self) -> Option<Last> {
        let time = self.time();
        let mut leading = self.hosts.iter_mut().filter_map(|host| {
            let view = host.end.as_mut()?.view(time).clone();
            view.leads.then(|| Last {
                topology: view.topology.map(|(_, topology)| topology),
                has_nobody: host
                    .core
                    .conditions()
                    .any(|note| *note == Condition::Nobody),
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
