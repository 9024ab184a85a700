//! Flows: whether the same member gets all packets of a flow, in both directions.

use std::collections::{BTreeMap, HashMap};

use fanpcap_wire::{FlowKey, Ip, Layers};

use super::datagrams::Datagrams;
use super::members::Members;
use super::place::FlowSide;

/// Maximum depth of nested IP headers. A packet belongs to the flow of its innermost header.
const INNER_MAX: usize = fanpcap_steer::INNER_MAX;

/// All flows of a capture.
#[derive(Debug, Default)]
pub(super) struct Flows {
    flows: HashMap<FlowKey, Flow>,
    pub(super) datagrams: Datagrams,
    /// Packets that are not IP.
    pub(super) strangers: u64,
    /// For each outer protocol, the number of packets whose inner packet can't be read.
    pub(super) unread: BTreeMap<&'static str, u64>,
}

/// One flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flow {
    /// The two directions: packets from the flow's lower end, and packets from its higher end.
    ways: [Option<Way>; 2],
    /// Members that got all late datagrams of the flow: those of which a later fragment came first.
    late: Option<Members>,
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug)]
struct Way {
    packets: u64,
    /// Members that got some packets.
    some: Members,
    /// Members that got all packets.
    all: Members,
}

/// Whether a member gets the whole flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// At least one member gets all of the flow.
    Whole,
    /// No member gets the whole flow: the directions go to different members.
    Apart,
    /// No member gets all packets of one direction.
    Split,
    /// The flow is whole, except for datagrams of which a later fragment came first.
    Late,
}

impl Flows {
    /// Notes a packet that the members `to` (at least one) get at `now_ns`.
    pub(super) fn take(&mut self, layers: &Layers<'_>, to: Members, now_ns: u64) {
        if let Some(carrier) = layers.unread() {
            *self.unread.entry(carrier).or_default() += 1;
        }
        let Some((ip, fragment)) = innermost(layers) else {
            self.strangers += 1;
            return;
        };
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

    /// All flows.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&FlowKey, &Flow)> {
        self.flows.iter()
    }
}

/// The innermost IP packet, and the outermost fragment around it, or it itself if it is a fragment.
pub(super) fn innermost<'a>(layers: &Layers<'a>) -> Option<(Ip<'a>, Option<Ip<'a>>)> {
    // If MPLS labels carry a frame, there is no outer IP packet: begin with that frame.
    let framed = layers.inner().filter(|_| layers.ip().is_none());
    let mut layers = framed.unwrap_or(*layers);
    let mut ip = layers.ip().copied()?;
    let mut fragment = ip.is_fragment().then_some(ip);
    for _ in 0..INNER_MAX {
        let Some(inner) = layers.inner() else { break };
        let Some(inside) = inner.ip().copied() else {
            break;
        };
        (ip, layers) = (inside, inner);
        fragment = fragment.or(ip.is_fragment().then_some(ip));
    }
    Some((ip, fragment))
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

    /// The members that got packets of each direction.
    pub(super) fn members(&self) -> [Members; 2] {
        self.ways
            .map(|way| way.map_or(Members::NONE, |way| way.some))
    }

    pub(super) fn goes_both_ways(&self) -> bool {
        self.ways.iter().all(Option::is_some)
    }
}
