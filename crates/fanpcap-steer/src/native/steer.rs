//! Evaluates steering functions: from a packet to a decision.

use fanpcap_wire::{Frame, Ip, Layers, Link, Udp, number};

use super::{Decision, Run, address, key};
use crate::hash::{self, NUMBER_MAX};
use crate::ir::{Field, Flow, Net, Ports, Steer};

/// Two ends: each is the hash of an address, of an address with its port, or of a field, as in
/// [`crate::hash`].
type Pair = (u64, u64);

impl Run<'_> {
    /// The decision of a steering function; `None` if the packet lacks the property that selects
    /// the member.
    pub(super) fn steer(&mut self, steer: &Steer, layers: &Layers<'_>) -> Option<Decision> {
        Some(match steer {
            Steer::Flow(flow) => Decision::Steer(of_flow(*flow, layers)?),
            Steer::Media => Decision::Steer(media(layers.ip()?)?),
            Steer::Rss => match self.packet.hash {
                0 => Decision::Steer(of_flow(Flow::WHOLE, layers).unwrap_or(0)),
                given => Decision::Steer(given & NUMBER_MAX),
            },
            Steer::Link => self.link(layers.link()?),
            Steer::Vlan => by(hash::end(layers.tag()?.id().into())),
            Steer::RoundRobin => Decision::Member(self.state.turn(self.packet.cpu)),
            Steer::Random => Decision::Steer(self.state.random()),
            Steer::Cpu => Decision::Member(self.packet.cpu & NUMBER_MAX),
            Steer::To(member) => Decision::Member(*member),
            Steer::Field(field) => by(self.field(*field)?),
            Steer::Fields(one, other) => by_both((self.field(*one)?, self.field(*other)?)),
            Steer::LocalIp(net) => self.local(layers.ip()?, net, u8::MAX)?,
            Steer::LocalNet(net, bits) => self.local(layers.ip()?, net, *bits)?,
            Steer::LocalLink(gateway) => self.local_link(layers.link()?, *gateway),
            Steer::Key(fields) => Decision::Steer(key::hash_of(layers, *fields, 0)?),
            Steer::DoubleLink => double(links(layers.link()?)),
            Steer::DoubleIp => double(addresses(layers.ip()?, u8::MAX)),
            Steer::DoubleField(one, other) => double((self.field(*one)?, self.field(*other)?)),
            Steer::Gtp => self.gtp(layers)?,
        })
    }

    /// The number of packets that carry the fragment, if the fragment must follow its datagram. A
    /// fragment must follow if its member depends on ports or on the carried packet's headers,
    /// because only the first fragment has these.
    pub(super) fn follows(&self, steer: &Steer) -> Option<u32> {
        let by_ports = matches!(steer, Steer::Flow(flow) if flow.ports != Ports::None)
            || matches!(steer, Steer::Media)
            || matches!(steer, Steer::Rss if self.packet.hash == 0);
        let by_carried = matches!(steer, Steer::Flow(_)) && self.looks_inside > 0;
        (by_ports || by_carried).then_some(self.inside)
    }

    fn link(&self, link: &Link<'_>) -> Decision {
        if link.destination() == [0xff; 6] && !self.group {
            Decision::Broadcast
        } else {
            by_both(links(link))
        }
    }

    /// The hash of a field of the frame ([`hash::end`]). Offsets do not count the frame's outermost
    /// tag.
    fn field(&self, field: Field) -> Option<u64> {
        let Frame { bytes, tag } = self.packet.frame;
        // A tag is skipped only if the frame also has the type behind the tag: the kernel removes
        // only such a tag from a frame.
        let is_tag = |bytes: &[u8]| matches!(bytes, [0x81, 0, ..] | [0x88, 0xa8, ..]);
        let is_tagged = tag.is_none() && bytes.get(12..18).is_some_and(is_tag);
        let from = usize::from(field.offset);
        let number = (from..from + usize::from(field.len)).try_fold(0, |number, at| {
            let at = if is_tagged && at >= 12 { at + 4 } else { at };
            Some((number << 8) | u64::from(*bytes.get(at)?))
        });
        Some(hash::end(number?))
    }

    fn local(&self, ip: &Ip<'_>, net: &Net, bits: u8) -> Option<Decision> {
        let (source, destination) = addresses(ip, bits);
        let is_local = |address| address::is_in(address, net);
        match (is_local(ip.source()), is_local(ip.destination())) {
            (true, true) => Some(self.at_both((source, destination))),
            (true, false) => Some(by(source)),
            (false, true) => Some(by(destination)),
            (false, false) => None,
        }
    }

    fn local_link(&self, link: &Link<'_>, gateway: [u8; 6]) -> Decision {
        let (source, destination) = links(link);
        if link.source() == gateway {
            by(destination)
        } else if link.destination() == gateway {
            by(source)
        } else {
            self.at_both((source, destination))
        }
    }

    /// `ends` are the hashes of the packet's two addresses. In a group, their sum selects one
    /// member. Without a group, each of them selects a member.
    fn at_both(&self, ends: Pair) -> Decision {
        if self.group {
            by_both(ends)
        } else {
            double(ends)
        }
    }

    fn gtp(&self, layers: &Layers<'_>) -> Option<Decision> {
        let ip = layers.ip()?;
        let udp = ip.udp()?;
        let is_at = |port| udp.source() == port || udp.destination() == port;
        let by_address =
            |layers: &Layers<'_>| of_flow(Flow::ADDRESSES, layers).map(Decision::Steer);
        let inner = layers.inner().filter(|_| is_at(number::PORT_GTP_USER));
        match inner {
            Some(inner) => by_address(&inner),
            None if !is_at(number::PORT_GTP_CONTROL) => None,
            None if self.group => by_address(layers),
            None => Some(Decision::Broadcast),
        }
    }
}

fn of_flow(flow: Flow, layers: &Layers<'_>) -> Option<u32> {
    let quoted = layers.ip()?.quoted();
    let ip = quoted.as_ref().or(layers.ip())?;
    let with_ports = match flow.ports {
        Ports::None => false,
        Ports::Tcp => ip.protocol == number::TCP,
        Ports::All => true,
    };
    let (source, destination) = ip
        .ports()
        .filter(|_| with_ports)
        .map_or((0, 0), |ports| (ports.source, ports.destination));
    let source = address::end(ip.source(), source);
    let destination = address::end(ip.destination(), destination);
    let mut hash = hash::both(source, destination);
    if flow.protocol {
        hash = hash::fold(hash, ip.protocol.into());
    }
    if flow.vlan {
        let id = layers.tag().map_or(0, |tag| tag.id());
        hash = hash::fold(hash, id.into());
    }
    Some(hash::finish(hash))
}

fn media(ip: &Ip<'_>) -> Option<u32> {
    let is_media = |udp: Udp<'_>| udp.rtp().is_some() || udp.rtcp().is_some();
    // A later fragment does not contain the headers after IP, so any later fragment of UDP may be
    // media, and takes the outcome of its first fragment.
    let may_be = ip.is_later_fragment() && ip.protocol == number::UDP;
    if !may_be && !ip.udp().is_some_and(is_media) {
        return None;
    }
    let (source, destination) = ip
        .ports()
        .map_or((0, 0), |ports| (ports.source / 2, ports.destination / 2));
    let source = address::end(ip.source(), source);
    let destination = address::end(ip.destination(), destination);
    Some(hash::finish(hash::both(source, destination)))
}

fn links(link: &Link<'_>) -> Pair {
    let [source, destination] = [link.source(), link.destination()].map(address::link);
    (hash::end(source), hash::end(destination))
}

fn addresses(ip: &Ip<'_>, bits: u8) -> Pair {
    let [source, destination] = [ip.source(), ip.destination()];
    let end = |address| address::end(address::cut(address, bits), 0);
    (end(source), end(destination))
}

fn by(end: u64) -> Decision {
    Decision::Steer(hash::finish(end))
}

fn by_both((one, other): Pair) -> Decision {
    by(hash::both(one, other))
}

fn double((one, other): Pair) -> Decision {
    Decision::Double(hash::finish(one), hash::finish(other))
}
