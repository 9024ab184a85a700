//! The variants of a run: the system's library, and our library with each kind of handle.

use std::env;
use std::ffi::OsStr;
use std::process::Command;

use anyhow::Result;
use fanpcap_loading::{on_ours, on_system};
use fanpcap_testkit::dpdk;

/// A library, and its environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variant {
    /// The system's library.
    System,
    /// Our library with no setting: it passes the system's handle on unchanged.
    Staged,
    /// Our library with its own reader of packet sockets.
    Tpacket,
    /// Our library with a handle that is the only member of a group.
    Group,
    /// Our library with an XDP program on the device. The program also passes all packets to the
    /// host.
    Xdp,
    /// Our library as a member of a poller that reads packet sockets.
    Packet,
    /// Our library as a member of a poller that reads AF_XDP sockets.
    Afxdp,
    /// Our library as a member of a poller of DPDK's driver net_af_packet.
    Dpdk,
    /// Our library as a member of a poller of netmap, by the stand-in for netmap's module.
    Netmap,
    /// Our library as a member of a poller of PF_RING ZC, by the stand-in for PF_RING's library.
    Zc,
    /// Our library with rings of PF_RING, by the stand-in for PF_RING's library.
    Pfring,
}

/// The variants that are compared with the system's library, in the order of the matrix's columns.
pub const COMPARED: [Variant; 10] = [
    Variant::Staged,
    Variant::Tpacket,
    Variant::Group,
    Variant::Xdp,
    Variant::Packet,
    Variant::Afxdp,
    Variant::Dpdk,
    Variant::Netmap,
    Variant::Zc,
    Variant::Pfring,
];

/// Milliseconds that a program waits for further packets after the packets that it has counted.
const SETTLED: (&str, &str) = ("FANPCAP_SETTLED", "200");

/// The time stamps of packets have whole microseconds.
const MICROSECONDS: (&str, &str) = ("FANPCAP_MICROSECONDS", "1");

/// The settings of devices that have a poller, or PF_RING.
const PACKET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/packet.conf");
const AFXDP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/afxdp.conf");
const DPDK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/dpdk.conf");
const NETMAP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/netmap.conf");
const ZC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/zc.conf");
const PFRING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/pfring.conf");

impl Variant {
    /// The variant's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Staged => "nothing set",
            Self::Tpacket => "tpacket",
            Self::Group => "group of one",
            Self::Xdp => "xdp",
            Self::Packet => "packet",
            Self::Afxdp => "afxdp",
            Self::Dpdk => "dpdk",
            Self::Netmap => "netmap",
            Self::Zc => "zc",
            Self::Pfring => "pfring",
        }
    }

    /// The devices that a poller serves for this variant, each with its engine, and with DPDK's
    /// arguments. Devices that a program makes have no poller, so the system's library reads them.
    pub const fn polled(self) -> &'static [&'static str] {
        match self {
            Self::System
            | Self::Staged
            | Self::Tpacket
            | Self::Group
            | Self::Xdp
            | Self::Pfring => &[],
            Self::Packet => &["packet:va", "packet:vb", "packet:lo"],
            Self::Afxdp => &["afxdp:va", "afxdp:vb"],
            Self::Dpdk => &[
                "dpdk:net_af_packet0,iface=va,framecnt=4096",
                "dpdk:net_af_packet1,iface=vb,framecnt=4096",
            ],
            Self::Netmap => &["netmap:va", "netmap:vb"],
            Self::Zc => &["zc:va", "zc:vb"],
        }
    }

    /// Sockets of the poller that get other names. Programs know the devices of DPDK by the names
    /// of the interfaces below them.
    pub const fn renamed(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Dpdk => &[
                ("dpdk:net_af_packet0", "dpdk:va"),
                ("dpdk:net_af_packet1", "dpdk:vb"),
            ],
            Self::System
            | Self::Staged
            | Self::Tpacket
            | Self::Group
            | Self::Xdp
            | Self::Packet
            | Self::Afxdp
            | Self::Netmap
            | Self::Zc
            | Self::Pfring => &[],
        }
    }

    /// Whether this machine has what the variant needs: DPDK.
    pub fn is_possible(self) -> bool {
        self != Self::Dpdk || dpdk::is_installed()
    }

    /// The variables that select this variant.
    pub const fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::System | Self::Staged => &[],
            Self::Tpacket => &[("PCAP_DRIVER", "tpacket")],
            // A group has only one device, so each device has its own group.
            Self::Group => &[
                ("PCAP_GROUP", "7"),
                ("PCAP_GROUP_va", "8"),
                ("PCAP_GROUP_lo", "9"),
                ("PCAP_GROUP_any", "10"),
                ("PCAP_GROUP_tun0", "11"),
                ("PCAP_FANOUT", "hash"),
            ],
            Self::Xdp => &[("PCAP_DRIVER", "xdp")],
            // No counter says that all packets have come that a filter will reject.
            Self::Packet => &[("PCAP_CONFIG", PACKET), SETTLED],
            Self::Afxdp => &[("PCAP_CONFIG", AFXDP), SETTLED],
            Self::Dpdk => &[("PCAP_CONFIG", DPDK), SETTLED],
            Self::Netmap => &[("PCAP_CONFIG", NETMAP), SETTLED, MICROSECONDS],
            Self::Zc => &[("PCAP_CONFIG", ZC), SETTLED, MICROSECONDS],
            // PF_RING counts packets when they are read, so no counter says that they have come.
            Self::Pfring => &[("PCAP_CONFIG", PFRING), SETTLED, ("FANPCAP_UNCOUNTED", "1")],
        }
    }

    /// A command that runs `program` in this variant.
    ///
    /// # Errors
    /// Our library isn't staged.
    pub fn command(self, program: impl AsRef<OsStr>) -> Result<Command> {
        let mut command = match self {
            Self::System => on_system(program),
            Self::Staged
            | Self::Tpacket
            | Self::Group
            | Self::Xdp
            | Self::Packet
            | Self::Afxdp
            | Self::Dpdk
            | Self::Netmap
            | Self::Zc
            | Self::Pfring => on_ours(program)?,
        };
        command.envs(self.environment().iter().copied());
        Ok(command)
    }
}

/// The variants in `CONFORMANCE_ONLY`, separated by commas; all variants if it is not set. Leaves
/// out those that are not possible on this machine.
pub fn compared() -> Vec<Variant> {
    let only = env::var("CONFORMANCE_ONLY").ok();
    let is_named = |variant: &Variant| {
        let only = only.as_ref();
        only.is_none_or(|only| only.split(',').any(|name| name == variant.name()))
    };
    let possible = COMPARED.into_iter().filter(|it| it.is_possible());
    possible.filter(is_named).collect()
}
