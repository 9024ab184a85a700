//! The two ends of a conversation, and the encapsulation of its packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::RngCore;

use crate::frame::{CLIENT, Ends, Frame, Mac, Packet, SERVER, Segment};
use crate::frame::{in_erspan, in_geneve, in_vxlan, ip, sctp, tcp, turned, udp};

/// The transport, which carries the ports.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    Sctp,
}

pub(crate) const TRANSPORTS: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::Sctp];

/// The two ends of one flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Talk {
    pub(crate) transport: Transport,
    pub(crate) client: (IpAddr, u16),
    pub(crate) server: (IpAddr, u16),
}

impl Talk {
    /// Flow `number` with random addresses and ports. No two flows have the same client.
    pub(crate) fn draw(
        random: &mut Pcg64Mcg,
        transport: Transport,
        ipv4: bool,
        number: usize,
    ) -> Self {
        let number = u16::try_from(number).expect("no more flows than addresses");
        let [high, low] = number.to_be_bytes();
        let drawn = random.next_u64().to_be_bytes();
        let (client, server): (IpAddr, IpAddr) = if ipv4 {
            (
                Ipv4Addr::new(10, 1, high, low).into(),
                Ipv4Addr::new(10, 2, drawn[0], drawn[1]).into(),
            )
        } else {
            let host = u16::from_be_bytes([drawn[0], drawn[1]]);
            (
                Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, number).into(),
                Ipv6Addr::new(0xfd00, 2, 0, 0, 0, 0, 0, host).into(),
            )
        };
        // The ports must not be those of a tunnel or of RTP, and must differ from each other.
        let client_port = u16::from_be_bytes([drawn[2], drawn[3]]) | 0x8000;
        let server_port = u16::from_be_bytes([drawn[4], drawn[5]]) & 0x03ff | 1;
        Self {
            transport,
            client: (client, client_port),
            server: (server, server_port),
        }
    }

    /// Addresses of the sender and the receiver.
    pub(crate) fn ends(&self, reply: bool) -> Ends<IpAddr> {
        if reply {
            (self.server.0, self.client.0)
        } else {
            (self.client.0, self.server.0)
        }
    }

    /// The packet with this payload.
    pub(crate) fn packet(&self, reply: bool, data: &[u8]) -> Packet {
        ip(self.ends(reply), &self.segment(reply, data))
    }

    /// The IP payload of the packet that [`Talk::packet`] returns.
    pub(crate) fn segment(&self, reply: bool, data: &[u8]) -> Segment {
        let ports = if reply {
            (self.server.1, self.client.1)
        } else {
            (self.client.1, self.server.1)
        };
        match self.transport {
            Transport::Tcp => tcp(ports, data),
            Transport::Udp => udp(ports, data),
            Transport::Sctp => sctp(ports, data),
        }
    }

    /// The ICMP error that a router sends to the client because it has refused a request. The
    /// router has an address of its own.
    pub(crate) fn refusal(&self) -> Packet {
        let router: IpAddr = match self.client.0 {
            IpAddr::V4(_) => Ipv4Addr::new(172, 16, 0, 1).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 1).into(),
        };
        let refused = self.packet(false, &[0; 64]).refused();
        ip((router, self.client.0), &refused)
    }
}

/// The properties of one packet on the wire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) reply: bool,
    /// The flow's VLAN.
    pub(crate) vlan: u16,
    /// Whether a tunnel's own packets are IPv4.
    pub(crate) outer_ipv4: bool,
    /// A number that a tunnel or a label switch chooses freely for each packet.
    pub(crate) entropy: u16,
}

/// Puts a packet into a frame.
pub(crate) type Wrap = fn(&Packet, Way) -> Vec<u8>;

/// All ways to put a packet into a frame.
pub(crate) const WRAPS: [(&str, Wrap); 11] = [
    ("plain", plain),
    ("VLAN", vlan),
    ("QinQ", qinq),
    ("MPLS", |packet, way| {
        let label = 16 + u32::from(way.entropy);
        packet.labelled(&[label, 17]).between(way.macs())
    }),
    ("PPPoE", |packet, way| {
        packet.in_session(5).between(way.macs())
    }),
    ("VXLAN", vxlan),
    ("Geneve", |packet, way| {
        way.over(&in_geneve(&packet.between(way.inner_macs()), way.port(), 7))
    }),
    ("GRE", |packet, way| way.over(&packet.in_gre(7))),
    ("GTP-U", |packet, way| {
        way.over(&packet.in_gtp(way.port(), u32::from(way.entropy)))
    }),
    ("IPIP", |packet, way| way.over(&packet.in_ip())),
    ("ERSPAN", |packet, way| {
        let frame = packet.between(way.inner_macs());
        way.over(&in_erspan(&frame, u32::from(way.entropy)))
    }),
];

pub(crate) fn plain(packet: &Packet, way: Way) -> Vec<u8> {
    packet.between(way.macs())
}

pub(crate) fn vlan(packet: &Packet, way: Way) -> Vec<u8> {
    packet.tagged(0x8100, way.vlan).between(way.macs())
}

pub(crate) fn qinq(packet: &Packet, way: Way) -> Vec<u8> {
    let customer = packet.tagged(0x8100, way.vlan);
    customer.tagged(0x88a8, 100).between(way.macs())
}

pub(crate) fn vxlan(packet: &Packet, way: Way) -> Vec<u8> {
    way.over(&in_vxlan(&packet.between(way.inner_macs()), way.port(), 7))
}

impl Way {
    fn macs(self) -> Ends<Mac> {
        directed((CLIENT, SERVER), self.reply)
    }

    pub(crate) fn inner_macs(self) -> Ends<Mac> {
        let (one, other) = ([0x02, 0, 0, 0, 1, 1], [0x02, 0, 0, 0, 1, 2]);
        directed((one, other), self.reply)
    }

    /// A tunnel's source port, which differs from packet to packet.
    pub(crate) fn port(self) -> u16 {
        self.entropy | 0xc000
    }

    /// The ends of the tunnel.
    pub(crate) fn tunnel_ends(self) -> Ends<IpAddr> {
        let ends: Ends<IpAddr> = if self.outer_ipv4 {
            ([192, 168, 100, 1].into(), [192, 168, 100, 2].into())
        } else {
            let host = |last| [0xfd00, 9, 0, 0, 0, 0, 0, last].into();
            (host(1), host(2))
        };
        directed(ends, self.reply)
    }

    /// The tunnel's outer packet in its frame.
    fn over(self, carried: &Segment) -> Vec<u8> {
        ip(self.tunnel_ends(), carried).between(self.macs())
    }
}

/// A frame that leaves this host if `leaves` is true, and otherwise arrives.
pub(crate) fn seen(bytes: Vec<u8>, leaves: bool) -> Frame {
    if leaves {
        Frame::leaving(bytes)
    } else {
        Frame::arriving(bytes)
    }
}

fn directed<T>(ends: Ends<T>, reply: bool) -> Ends<T> {
    if reply { turned(ends) } else { ends }
}
