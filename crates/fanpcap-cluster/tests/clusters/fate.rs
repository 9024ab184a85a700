//! What befalls a cluster: planned changes, or faults of all kinds.

use std::ops::Range;

use crate::dice::Dice;
use crate::store::Time;

const SECOND: Time = 1_000_000;

/// How long a run lasts.
pub(crate) const END: Time = 80 * SECOND;

/// A kind of run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Weather {
    /// Planned changes only: joins, drains, weights; agents and coordinators restart.
    Calm,
    /// The same, and machines lose power while all else works.
    Deaths,
    /// Everything at once.
    Storm,
}

/// A run's frame.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) weather: Weather,
    pub(crate) nodes: usize,
    pub(crate) chairs: usize,
    late: usize,
    blows: u64,
    /// Links that are cut, on the embedded engine.
    cuts: u64,
    script: Vec<(Time, Blow)>,
}

/// One who sends and receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Party {
    Chair(usize),
    Node(usize),
}

/// What the one sends to the other is lost for a time. The other way may be open.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub(crate) times: Range<Time>,
    pub(crate) from: Party,
    pub(crate) to: Party,
}

/// What befalls it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Blow {
    PowerCut { node: usize, lasts: Time },
    Standstill { node: usize, lasts: Time },
    KilledAgent { node: usize, lasts: Time },
    StoppedAgent { node: usize, lasts: Time },
    CutOff { node: usize, lasts: Time },
    KilledChair { chair: usize, lasts: Time },
    StoppedChair { chair: usize, lasts: Time },
    CutOffChair { chair: usize, lasts: Time },
    ClockJump { chair: usize, to: u64 },
    NoQuorum { lasts: Time, revoke: bool },
    Drain { node: usize },
    Weigh { node: usize, weight: u16 },
    Announce { node: usize, weight: u16 },
    Leave { node: usize, lasts: Time },
}

/// When all faults are over.
pub(crate) const OVER: Time = 38 * SECOND;

/// When a fault begins, and how long it lasts.
fn when(dice: &mut Dice) -> (Time, Time) {
    let at = dice.between(4 * SECOND, 34 * SECOND);
    let lasts = match dice.between(0, 3) {
        0 => dice.between(1000, SECOND),
        _ => dice.between(1000, 22 * SECOND),
    };
    (at, lasts.min(OVER - at))
}

impl Scene {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0xfa7e);
        let weather = match seed % 4 {
            0 => Weather::Calm,
            1 => Weather::Deaths,
            _ => Weather::Storm,
        };
        let nodes = 2 + dice.place(7);
        Self {
            weather,
            nodes,
            chairs: 1 + dice.place(3),
            late: dice.place(nodes),
            blows: match weather {
                Weather::Calm => dice.between(1, 12),
                Weather::Deaths => dice.between(1, 8),
                Weather::Storm => dice.between(2, 25),
            },
            cuts: match weather {
                Weather::Calm | Weather::Deaths => 0,
                Weather::Storm => dice.between(0, 13),
            },
            script: Vec::new(),
        }
    }

    /// The same, with all links whole.
    pub(crate) fn without_cuts(self) -> Self {
        Self { cuts: 0, ..self }
    }

    /// A run in which just this happens.
    pub(crate) fn scripted(nodes: usize, chairs: usize, script: &[(Time, Blow)]) -> Self {
        Self {
            weather: Weather::Storm,
            nodes,
            chairs,
            late: 0,
            blows: 0,
            cuts: 0,
            script: script.to_vec(),
        }
    }

    /// Whether the node joins only when the others are at work.
    pub(crate) fn begins_late(&self, node: usize) -> bool {
        node < self.late
    }

    /// What befalls the cluster, and when. All is over when half of the run is.
    pub(crate) fn blows(&self, dice: &mut Dice) -> Vec<(Time, Blow)> {
        let mut blows = self.script.clone();
        for _ in 0..self.blows {
            let (at, lasts) = when(dice);
            blows.push((at, self.blow(dice, lasts)));
        }
        blows
    }

    /// The links between coordinators, and between coordinators and nodes, that are cut: most of
    /// them one way only. The seed's other events stay as they are.
    pub(crate) fn cuts(&self, seed: u64) -> Vec<Cut> {
        let mut dice = Dice::new(seed ^ 0xc075);
        let mut cuts = Vec::new();
        for _ in 0..self.cuts {
            let (at, lasts) = when(&mut dice);
            let chair = dice.place(self.chairs);
            let other = match dice.place(self.chairs + self.nodes) {
                other if other < self.chairs => Party::Chair(other),
                other => Party::Node(other - self.chairs),
            };
            let way = dice.place(5);
            let mut cut = |from, to| {
                let times = at..at + lasts;
                cuts.push(Cut { times, from, to });
            };
            if way < 3 {
                cut(Party::Chair(chair), other);
            }
            if way > 1 {
                cut(other, Party::Chair(chair));
            }
        }
        cuts
    }

    fn blow(&self, dice: &mut Dice, lasts: Time) -> Blow {
        let node = dice.place(self.nodes);
        let chair = dice.place(self.chairs);
        let weight = [0, 1, 1, 2, 3, 8][dice.place(6)];
        let kinds = match self.weather {
            Weather::Calm => 7,
            Weather::Deaths => 9,
            Weather::Storm => 16,
        };
        match dice.between(0, kinds) {
            0 | 1 => Blow::Drain { node },
            2 => Blow::Weigh { node, weight },
            3 => Blow::Announce { node, weight },
            4 => Blow::KilledAgent { node, lasts },
            5 => Blow::KilledChair { chair, lasts },
            6 => Blow::Leave { node, lasts },
            7 | 8 => Blow::PowerCut { node, lasts },
            9 => Blow::Standstill { node, lasts },
            10 => Blow::StoppedAgent { node, lasts },
            11 => Blow::CutOff { node, lasts },
            12 => Blow::StoppedChair { chair, lasts },
            13 => Blow::CutOffChair { chair, lasts },
            14 => Blow::ClockJump {
                chair,
                to: dice.between(0, 20_000),
            },
            _ => Blow::NoQuorum {
                lasts,
                revoke: dice.one_in(2),
            },
        }
    }
}
