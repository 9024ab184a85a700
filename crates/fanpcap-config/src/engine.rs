//! The engines: what takes packets from a device.

use std::fmt;

/// An engine, as the prefix of a device, `driver@DEV` and PCAP_DRIVER name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `tpacket`: the kernel's AF_PACKET.
    Tpacket,
    /// `xdp`: BPF programs at the device's driver.
    Xdp,
    /// `afxdp`: the kernel's AF_XDP.
    Afxdp,
    /// `dpdk`: DPDK's drivers.
    Dpdk,
    /// `netmap`.
    Netmap,
    /// `pfring`: PF_RING.
    Pfring,
    /// `zc`: PF_RING ZC.
    Zc,
    /// `pfq`: formerly a kernel module; now [`Engine::Tpacket`], with steering programs in the
    /// kernel.
    Pfq,
}

impl Engine {
    /// All engines, in the order in which messages list them.
    pub const ALL: [Engine; 8] = [
        Engine::Tpacket,
        Engine::Xdp,
        Engine::Afxdp,
        Engine::Dpdk,
        Engine::Netmap,
        Engine::Pfring,
        Engine::Zc,
        Engine::Pfq,
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Tpacket => "tpacket",
            Engine::Xdp => "xdp",
            Engine::Afxdp => "afxdp",
            Engine::Dpdk => "dpdk",
            Engine::Netmap => "netmap",
            Engine::Pfring => "pfring",
            Engine::Zc => "zc",
            Engine::Pfq => "pfq",
        }
    }

    /// The engine with this lower-case name.
    pub fn named(name: &str) -> Option<Engine> {
        Engine::ALL.into_iter().find(|engine| engine.name() == name)
    }

    /// Whether the engine reads the rings of packet sockets.
    pub fn is_rings(self) -> bool {
        matches!(self, Engine::Tpacket | Engine::Pfq)
    }

    /// Whether this version has the engine.
    pub fn is_ours(self) -> bool {
        self.is_rings() || self == Engine::Xdp
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
