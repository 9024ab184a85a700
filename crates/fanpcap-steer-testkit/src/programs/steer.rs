//! Draws steering functions.

use std::net::IpAddr;

use fanpcap_steer::ir::{Field, Flow, Key, Ports, Steer};

use super::Maker;
use crate::pools;

impl Maker<'_, '_> {
    pub(super) fn steer(&mut self) -> Steer {
        let hub = if self.group { 0 } else { 6 };
        let weights = [
            60, 10, 8, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 14, 10, 10, hub, hub, hub,
        ];
        match self.draw.weighted(&weights) {
            0 => Steer::Flow(self.flow()),
            1 => Steer::Link,
            2 => Steer::Vlan,
            3 => Steer::RoundRobin,
            4 => Steer::Random,
            5 => Steer::Cpu,
            6 => Steer::Rss,
            7 => Steer::To(self.draw.pick(&[0, 1, 5, 0x7fff_ffff])),
            8 => Steer::Field(self.field()),
            9 => Steer::Fields(self.field(), self.field()),
            10 => Steer::LocalIp(self.net()),
            11 => self.local_net(),
            12 => Steer::LocalLink(pools::link(self.draw)),
            13 => Steer::Key(self.key()),
            14 => Steer::Media,
            15 => Steer::Gtp,
            16 => Steer::DoubleLink,
            17 => Steer::DoubleIp,
            _ => Steer::DoubleField(self.field(), self.field()),
        }
    }

    fn flow(&mut self) -> Flow {
        Flow {
            ports: self
                .draw
                .pick(&[Ports::All, Ports::All, Ports::Tcp, Ports::None]),
            protocol: self.draw.one_in(3),
            vlan: self.draw.one_in(3),
        }
    }

    fn field(&mut self) -> Field {
        const OFFSETS: [u16; 12] = [0, 6, 12, 14, 20, 26, 30, 34, 36, 50, 1500, 65535];
        Field {
            offset: self.draw.pick(&OFFSETS),
            len: self.draw.pick(&[1, 2, 3, 4]),
        }
    }

    fn local_net(&mut self) -> Steer {
        let net = self.net();
        let most = match net.address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        let bits = net
            .bits
            .saturating_add(self.draw.pick(&[0, 8, 16]))
            .min(most);
        Steer::LocalNet(net, bits)
    }

    /// One to three fields, or the five fields of a flow.
    pub(super) fn key(&mut self) -> Key {
        const FLOW: Key = Key::IP_SOURCE
            .and(Key::IP_DESTINATION)
            .and(Key::PROTOCOL)
            .and(Key::SOURCE_PORT)
            .and(Key::DESTINATION_PORT);
        if self.draw.one_in(4) {
            return FLOW;
        }
        let count = 1 + self.draw.weighted(&[50, 30, 10]);
        (0..count).fold(Key(0), |key, _| key.and(Key(1 << self.draw.below(13))))
    }
}
