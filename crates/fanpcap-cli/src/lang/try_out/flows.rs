//! Flows: does one member get all of each, in both directions?

use std::collections::HashMap;

use fanpcap_wire::{FlowKey, Layers};

use super::datagrams::Datagrams;
use super::members::Members;
use super::place::FlowSide;

/// How deep a packet is looked into for its flow: that of the innermost.
const INNER_MAX: usize = fanpcap_steer::INNER_MAX;

/// What is known of all flows.
#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: HashMap<FlowKey, Flow>,
    datagrams: Datagrams,
    /// Packets that are not IP.
    strangers: u64,
}

/// What is known of one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    /// By direction: from the smaller end, from the greater one.
    ways: [Option<Way>; 2],
    /// Who got all of its datagrams of which a later fragment came first.
    late: Option<Members>,
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug)]
struct Way {
    packets: u64,
    /// Who got a part.
    some: Members,
    /// Who got all.
    all: Members,
}

/// What becomes of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// One member, or more, gets all of it.
    Whole,
    /// Nobody gets all of it, for the directions go to different members.
    Apart,
    /// Nobody gets all of one direction.
    Split,
    /// Whole but for datagrams of which a later fragment came first.
    Late,
}

impl Flows {
    /// A packet that these members get, one at least, at a time in nanoseconds.
    pub(super) fn take(&mut self, layers: &Layers<'_>, to: Members, now_ns: u64) {
        let Some(outer) = layers.ip() else {
            self.strangers += 1;
            return;
        };
        let (mut ip, mut layers) = (*outer, *layers);
        let mut fragment = ip.is_fragment().then_some(ip);
        for _ in 0..INNER_MAX {
            let Some(inner) = layers.inner() else { break };
            let Some(inside) = inner.ip().copied() else {
                break;
            };
            (ip, layers) = (inside, inner);
            fragment = fragment.or(ip.is_fragment().then_some(ip));
        }
        let shown = FlowSide::of(&ip);
        let (place, late) = match fragment {
            Some(ip) => self.datagrams.take(&ip, shown, to, now_ns),
            None => (Some(shown), false),
        };
        if let Some(place) = place {
            self.flows
                .entry(place.flow)
                .or_default()
                .take(place, to, late);
        }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&FlowKey, &Flow)> {
        self.flows.iter()
    }

    pub(super) fn datagrams(&self) -> &Datagrams {
        &self.datagrams
    }

    pub(super) fn strangers(&self) -> u64 {
        self.strangers
    }
}

impl Flow {
    fn take(&mut self, place: FlowSide, to: Members, late: bool) {
        if late {
            self.late = Some(self.late.map_or(to, |members| members.and(to)));
            return;
        }
        let way = self.ways[place.direction].get_or_insert(Way {
            packets: 0,
            some: Members::NONE,
            all: to,
        });
        way.packets += 1;
        way.some = way.some.or(to);
        way.all = way.all.and(to);
    }

    pub(super) fn fate(&self) -> Fate {
        let ways = || self.ways.iter().flatten();
        if ways().any(|way| way.all.is_empty()) {
            return Fate::Split;
        }
        let all = ways().map(|way| way.all).reduce(Members::and);
        if all.is_some_and(Members::is_empty) {
            return Fate::Apart;
        }
        let with_late = all.into_iter().chain(self.late).reduce(Members::and);
        match with_late {
            Some(nobody) if nobody.is_empty() => Fate::Late,
            Some(_) | None => Fate::Whole,
        }
    }

    pub(super) fn packets(&self) -> u64 {
        self.ways.iter().flatten().map(|way| way.packets).sum()
    }

    /// Who got a part of each direction; nobody where nothing came.
    pub(super) fn members(&self) -> [Members; 2] {
        self.ways
            .map(|way| way.map_or(Members::NONE, |way| way.some))
    }

    pub(super) fn goes_both_ways(&self) -> bool {
        self.ways.iter().all(Option::is_some)
    }
}
