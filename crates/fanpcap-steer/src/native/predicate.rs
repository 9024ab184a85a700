//! Evaluates predicates.

use std::net::{IpAddr, Ipv4Addr};

use fanpcap_wire::{Ip, Layers, Link, Udp};

use super::{Packet, address, key};
use crate::hash;
use crate::ir::{Comparison, Header, Predicate, Property, Side, Tree};

/// The packet and the state that a predicate reads.
pub(super) struct Question<'q> {
    pub(super) program: &'q Tree,
    pub(super) packet: &'q Packet<'q>,
    pub(super) layers: &'q Layers<'q>,
    pub(super) mark: Option<u32>,
    pub(super) state: u32,
}

impl<'q> Question<'q> {
    pub(super) fn holds(&self, predicate: &Predicate) -> bool {
        match predicate {
            Predicate::Constant(value) => *value,
            Predicate::Not(one) => !self.holds(one),
            Predicate::And(one, other) => self.holds(one) && self.holds(other),
            Predicate::Or(one, other) => self.holds(one) || self.holds(other),
            Predicate::Xor(one, other) => self.holds(one) != self.holds(other),
            Predicate::Compare(property, comparison, number) => self
                .property(*property)
                .is_some_and(|value| compares(value, *comparison, *number)),
            Predicate::Member(property, set) => self
                .property(*property)
                .is_some_and(|value| self.is_member(value.into(), *set)),
            Predicate::Has(header) => self.has(*header),
            Predicate::Address(side, net) => {
                self.address(*side, |address| address::is_in(address, net))
            }
            Predicate::AddressIn {
                side,
                ipv6,
                bits,
                set,
            } => self.address(*side, |address| {
                let cut = address::number(address::cut(address, *bits));
                address.is_ipv6() == *ipv6 && self.is_member(cut, *set)
            }),
            Predicate::Port(side, number) => self.port(*side, *number),
            Predicate::Pcap(filter) => {
                let filter = self.program.filters.get(*filter);
                filter.is_some_and(|filter| filter.accepts(self.packet))
            }
            Predicate::Share { index, of, key } => key::hash_of(self.layers, *key, hash::SHARE)
                .is_some_and(|hash| hash.checked_rem(*of) == Some(*index)),
            Predicate::Rtp => self.udp().and_then(Udp::rtp).is_some(),
            Predicate::Rtcp => self.udp().and_then(Udp::rtcp).is_some(),
        }
    }

    fn udp(&self) -> Option<Udp<'q>> {
        self.layers.ip()?.udp()
    }

    fn is_member(&self, value: u128, set: usize) -> bool {
        let set = self.program.sets.get(set);
        set.is_some_and(|set| set.binary_search(&value).is_ok())
    }

    fn address(&self, side: Side, fits: impl Fn(IpAddr) -> bool) -> bool {
        self.layers.ip().is_some_and(|ip| match side {
            Side::Either => fits(ip.source()) || fits(ip.destination()),
            Side::Source => fits(ip.source()),
            Side::Destination => fits(ip.destination()),
        })
    }

    fn port(&self, side: Side, number: u16) -> bool {
        let ports = self.layers.ip().and_then(Ip::ports);
        ports.is_some_and(|ports| match side {
            Side::Either => ports.source == number || ports.destination == number,
            Side::Source => ports.source == number,
            Side::Destination => ports.destination == number,
        })
    }

    fn has(&self, header: Header) -> bool {
        let link = |fits: fn(&Link<'q>) -> bool| self.layers.link().is_some_and(fits);
        let ip = |fits: fn(&Ip<'q>) -> bool| self.layers.ip().is_some_and(fits);
        match header {
            Header::Link => link(|_| true),
            Header::Tag => self.layers.tag().is_some(),
            Header::Ipv4 => ip(|ip| ip.ipv4().is_some()),
            Header::Ipv6 => ip(|ip| ip.ipv6().is_some()),
            Header::Ip => ip(|_| true),
            Header::Fragment => ip(Ip::is_fragment),
            Header::FirstFragment => ip(Ip::is_first_fragment),
            Header::LaterFragment => ip(Ip::is_later_fragment),
            Header::Inner => self.layers.inner().is_some(),
            Header::LinkBroadcast => link(|link| link.destination() == [0xff; 6]),
            Header::LinkMulticast => link(|link| link.destination()[0] & 1 != 0),
            Header::IpBroadcast => ip(|ip| ip.destination() == Ipv4Addr::BROADCAST),
            Header::IpMulticast => ip(|ip| ip.destination().is_multicast()),
        }
    }

    fn property(&self, property: Property) -> Option<u64> {
        let ip = || self.layers.ip();
        Some(match property {
            Property::EtherType => self.layers.ether_type()?.into(),
            Property::VlanId => self.layers.tag()?.id().into(),
            Property::Protocol => ip()?.protocol.into(),
            Property::Tos => ip()?.tos().into(),
            Property::IpLength => ip()?.total_len().into(),
            Property::IpId => ip()?.id?.into(),
            Property::IpFragment => ip()?.flags_and_offset.into(),
            Property::Ttl => ip()?.ttl().into(),
            Property::TcpSource => ip()?.tcp()?.source().into(),
            Property::TcpDestination => ip()?.tcp()?.destination().into(),
            Property::TcpHeaderLength => ip()?.tcp()?.header_len().into(),
            Property::UdpSource => ip()?.udp()?.source().into(),
            Property::UdpDestination => ip()?.udp()?.destination().into(),
            Property::UdpLength => ip()?.udp()?.datagram_len().into(),
            Property::IcmpType => ip()?.icmp()?.kind.into(),
            Property::IcmpCode => ip()?.icmp()?.code.into(),
            Property::Mark => self.mark?.into(),
            Property::State => self.state.into(),
            Property::Queue => self.packet.queue?.into(),
        })
    }
}

fn compares(value: u64, comparison: Comparison, number: u64) -> bool {
    match comparison {
        Comparison::Less => value < number,
        Comparison::LessEqual => value <= number,
        Comparison::Equal => value == number,
        Comparison::NotEqual => value != number,
        Comparison::Greater => value > number,
        Comparison::GreaterEqual => value >= number,
        Comparison::AnyBit => value & number != 0,
        Comparison::AllBits => value & number == number,
    }
}
