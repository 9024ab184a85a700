//! Draws predicates. They compare with numbers that drawn packets have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fanpcap_steer::ir::{Comparison, Header, Net, Predicate, Property, Side};

use super::Maker;
use crate::{Draw, pools};

const COMPARISONS: [Comparison; 8] = [
    Comparison::Equal,
    Comparison::NotEqual,
    Comparison::Less,
    Comparison::LessEqual,
    Comparison::Greater,
    Comparison::GreaterEqual,
    Comparison::AnyBit,
    Comparison::AllBits,
];

impl Maker<'_, '_> {
    pub(super) fn predicate(&mut self, depth: usize) -> Predicate {
        let deep = usize::from(depth > 1);
        let weights = [
            36,
            50,
            24,
            20,
            12 * deep,
            12 * deep,
            12 * deep,
            8 * deep,
            12,
            12,
            14,
            12,
            8,
            8,
            4,
        ];
        match self.draw.weighted(&weights) {
            0 => Predicate::Has(self.draw.pick(&Header::ALL)),
            1 => self.compare(),
            2 => Predicate::Port(self.side(), pools::port(self.draw)),
            3 => Predicate::Address(self.side(), self.net()),
            4 => Predicate::Not(self.boxed(depth)),
            5 => Predicate::And(self.boxed(depth), self.boxed(depth)),
            6 => Predicate::Or(self.boxed(depth), self.boxed(depth)),
            7 => Predicate::Xor(self.boxed(depth), self.boxed(depth)),
            8 => self.member(),
            9 => self.address_in(),
            10 => self.filter(),
            11 => self.share(),
            12 => Predicate::Rtp,
            13 => Predicate::Rtcp,
            _ => Predicate::Constant(self.draw.one_in(2)),
        }
    }

    fn boxed(&mut self, depth: usize) -> Box<Predicate> {
        Box::new(self.predicate(depth - 1))
    }

    fn side(&mut self) -> Side {
        self.draw
            .pick(&[Side::Either, Side::Source, Side::Destination])
    }

    fn compare(&mut self) -> Predicate {
        let property = self.draw.pick(&Property::ALL);
        let comparison = self.draw.pick(&COMPARISONS);
        let number = if self.draw.one_in(30) {
            self.draw.u64()
        } else {
            value(self.draw, property)
        };
        Predicate::Compare(property, comparison, number)
    }

    fn member(&mut self) -> Predicate {
        let property = self.draw.pick(&Property::ALL);
        Predicate::Member(property, self.set(|draw| value(draw, property).into()))
    }

    fn share(&mut self) -> Predicate {
        let of = self.draw.pick(&[2, 1, 3, 16]);
        let index = self.draw.u32() % of;
        let key = self.key();
        Predicate::Share { index, of, key }
    }

    /// Draws a set. Some sets are small, others are so large that the compiled program looks them
    /// up in a map.
    fn set(&mut self, mut element: impl FnMut(&mut Draw<'_>) -> u128) -> usize {
        let count = self.draw.pick(&[1, 2, 3, 16, 17, 40]);
        let mut set: Vec<u128> = (0..count).map(|_| element(self.draw)).collect();
        set.sort_unstable();
        set.dedup();
        self.sets.push(set);
        self.sets.len() - 1
    }

    pub(super) fn net(&mut self) -> Net {
        let ipv6 = self.draw.one_in(3);
        let bits = bits(self.draw, ipv6);
        let address = address(self.draw, ipv6, bits);
        Net { address, bits }
    }

    fn address_in(&mut self) -> Predicate {
        let ipv6 = self.draw.one_in(3);
        let bits = bits(self.draw, ipv6);
        let set = self.set(|draw| match address(draw, ipv6, bits) {
            IpAddr::V4(address) => u32::from(address).into(),
            IpAddr::V6(address) => address.into(),
        });
        let side = self.side();
        Predicate::AddressIn {
            side,
            ipv6,
            bits,
            set,
        }
    }
}

fn bits(draw: &mut Draw<'_>, ipv6: bool) -> u8 {
    if ipv6 {
        draw.pick(&[128, 64, 32, 48, 127, 65, 8, 1, 0])
    } else {
        draw.pick(&[32, 24, 16, 8, 31, 25, 4, 1, 0])
    }
}

/// Draws an address and clears all bits except the first `bits`.
fn address(draw: &mut Draw<'_>, ipv6: bool, bits: u8) -> IpAddr {
    let cut = |number: u128, width: u32| {
        let behind = width - u32::from(bits);
        number
            .checked_shr(behind)
            .unwrap_or(0)
            .checked_shl(behind)
            .unwrap_or(0)
    };
    if ipv6 {
        Ipv6Addr::from(cut(pools::address_6(draw).into(), 128)).into()
    } else {
        let number = cut(u32::from(pools::address(draw)).into(), 32);
        Ipv4Addr::from(u32::try_from(number).unwrap_or(0)).into()
    }
}

/// Draws a number that some drawn packets have as the value of this property.
fn value(draw: &mut Draw<'_>, property: Property) -> u64 {
    match property {
        Property::EtherType => pools::ether_type(draw).into(),
        Property::VlanId => pools::vlan(draw).into(),
        Property::Protocol => pools::protocol(draw).into(),
        Property::Tos | Property::Ttl | Property::IcmpCode => pools::small(draw).into(),
        Property::IpLength => draw.pick(&[40, 28, 20, 44, 60, 100, 128]),
        Property::IpId => draw.pick(&[1, 2, 0]),
        Property::IpFragment => draw.pick(&[0, 0x4000, 0x2000, 1, 185, 0x1fff, 0x3fff]),
        Property::TcpSource
        | Property::TcpDestination
        | Property::UdpSource
        | Property::UdpDestination => pools::port(draw).into(),
        Property::TcpHeaderLength => draw.pick(&[20, 24, 60]),
        Property::UdpLength => draw.pick(&[8, 20, 12, 27, 60]),
        Property::IcmpType => draw.pick(&[8, 3, 0, 11, 1, 2, 128, 129]),
        Property::Mark | Property::State => draw.pick(&[1, 0, 2, u64::from(u32::MAX)]),
        Property::Queue => draw.pick(&[0, 1, 3]),
    }
}
