//! The events of a run: planned changes, and faults of all kinds.

use std::ops::Range;

use crate::seeded_random::SeededRandom;
use crate::store::Time;

const SECOND: Time = 1_000_000;

/// How long a run lasts.
pub(crate) const END: Time = 80 * SECOND;

/// A kind of run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RunKind {
    /// Planned changes only: joins, drains, weights; agents and coordinators restart.
    Calm,
    /// Planned changes as in `Calm`. Machines also lose power, but nothing else fails.
    Deaths,
    /// All kinds of events.
    Storm,
}

/// The size of a run's cluster, and its events.
#[derive(Debug)]
pub(crate) struct RunPlan {
    pub(crate) kind: RunKind,
    pub(crate) nodes: usize,
    pub(crate) hosts: usize,
    late: usize,
    faults: u64,
    /// How many links are cut, on the embedded engine.
    cuts: u64,
    script: Vec<(Time, Fault)>,
}

/// A participant of the control protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Participant {
    Coordinator(usize),
    Node(usize),
}

/// At these times, messages from `from` to `to` are lost. The other direction may work.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) times: Range<Time>,
    pub(crate) from: Participant,
    pub(crate) to: Participant,
}

/// A fault or a planned change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    PowerCut { node: usize, lasts: Time },
    Standstill { node: usize, lasts: Time },
    KilledAgent { node: usize, lasts: Time },
    StoppedAgent { node: usize, lasts: Time },
    CutOff { node: usize, lasts: Time },
    KilledCoordinator { host: usize, lasts: Time },
    StoppedCoordinator { host: usize, lasts: Time },
    CutOffCoordinator { host: usize, lasts: Time },
    ClockJump { host: usize, to: u64 },
    NoQuorum { lasts: Time, revoke: bool },
    Drain { node: usize },
    Weigh { node: usize, weight: u16 },
    Announce { node: usize, weight: u16 },
    Leave { node: usize, lasts: Time },
}

/// All faults are over at this time.
pub(crate) const OVER: Time = 38 * SECOND;

/// A random time at which a fault begins, and how long the fault lasts.
fn when(random: &mut SeededRandom) -> (Time, Time) {
    let at = random.between(4 * SECOND, 34 * SECOND);
    let lasts = match random.between(0, 3) {
        0 => random.between(1000, SECOND),
        _ => random.between(1000, 22 * SECOND),
    };
    (at, lasts.min(OVER - at))
}

impl RunPlan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed ^ 0xfa7e);
        let kind = match seed % 4 {
            0 => RunKind::Calm,
            1 => RunKind::Deaths,
            _ => RunKind::Storm,
        };
        let nodes = 2 + random.place(7);
        Self {
            kind,
            nodes,
            hosts: 1 + random.place(3),
            late: random.place(nodes),
            faults: match kind {
                RunKind::Calm => random.between(1, 12),
                RunKind::Deaths => random.between(1, 8),
                RunKind::Storm => random.between(2, 25),
            },
            cuts: match kind {
                RunKind::Calm | RunKind::Deaths => 0,
                RunKind::Storm => random.between(0, 13),
            },
            script: Vec::new(),
        }
    }

    /// The same plan without cut links.
    pub(crate) fn without_cuts(self) -> Self {
        Self { cuts: 0, ..self }
    }

    /// A plan with only these events.
    pub(crate) fn scripted(nodes: usize, hosts: usize, script: &[(Time, Fault)]) -> Self {
        Self {
            kind: RunKind::Storm,
            nodes,
            hosts,
            late: 0,
            faults: 0,
            cuts: 0,
            script: script.to_vec(),
        }
    }

    /// Whether the node joins later than the others.
    pub(crate) fn begins_late(&self, node: usize) -> bool {
        node < self.late
    }

    /// The events and their times. All events are over in the first half of the run.
    pub(crate) fn faults(&self, random: &mut SeededRandom) -> Vec<(Time, Fault)> {
        let mut faults = self.script.clone();
        for _ in 0..self.faults {
            let (at, lasts) = when(random);
            faults.push((at, self.fault(random, lasts)));
        }
        faults
    }

    /// Cuts of links between two coordinators, or between a coordinator and a node. Most links are
    /// cut in one direction only. The cuts have a random generator of their own, so the other
    /// events of a seed are the same with and without cuts.
    pub(crate) fn cuts(&self, seed: u64) -> Vec<Cut> {
        let mut random = SeededRandom::new(seed ^ 0xc075);
        let mut cuts = Vec::new();
        for _ in 0..self.cuts {
            let (at, lasts) = when(&mut random);
            let host = random.place(self.hosts);
            let other = match random.place(self.hosts + self.nodes) {
                other if other < self.hosts => Participant::Coordinator(other),
                other => Participant::Node(other - self.hosts),
            };
            let direction = random.place(5);
            let mut cut = |from, to| {
                let times = at..at + lasts;
                cuts.push(Cut { times, from, to });
            };
            if direction < 3 {
                cut(Participant::Coordinator(host), other);
            }
            if direction > 1 {
                cut(other, Participant::Coordinator(host));
            }
        }
        cuts
    }

    fn fault(&self, random: &mut SeededRandom, lasts: Time) -> Fault {
        let node = random.place(self.nodes);
        let host = random.place(self.hosts);
        let weight = [0, 1, 1, 2, 3, 8][random.place(6)];
        let kinds = match self.kind {
            RunKind::Calm => 7,
            RunKind::Deaths => 9,
            RunKind::Storm => 16,
        };
        match random.between(0, kinds) {
            0 | 1 => Fault::Drain { node },
            2 => Fault::Weigh { node, weight },
            3 => Fault::Announce { node, weight },
            4 => Fault::KilledAgent { node, lasts },
            5 => Fault::KilledCoordinator { host, lasts },
            6 => Fault::Leave { node, lasts },
            7 | 8 => Fault::PowerCut { node, lasts },
            9 => Fault::Standstill { node, lasts },
            10 => Fault::StoppedAgent { node, lasts },
            11 => Fault::CutOff { node, lasts },
            12 => Fault::StoppedCoordinator { host, lasts },
            13 => Fault::CutOffCoordinator { host, lasts },
            14 => Fault::ClockJump {
                host,
                to: random.between(0, 20_000),
            },
            _ => Fault::NoQuorum {
                lasts,
                revoke: random.one_in(2),
            },
        }
    }
}
