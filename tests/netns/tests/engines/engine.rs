//! The engines, and what takes the packets for each of them: the kernel, a poller, or a stand-in.

use anyhow::{Result, ensure};
use fanpcap_netns::poller::{Poller, Summary};
use fanpcap_netns::{DEVICE, Wire};
use fanpcap_testkit::{Program, dpdk, library, netmap, pfring, veth};

/// An engine, by the name that precedes the device's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Tpacket,
    Xdp,
    Packet,
    Afxdp,
    Dpdk,
    Netmap,
    Zc,
    Pfring,
}

/// An engine that members can use on the wire's end.
pub(crate) struct Served {
    engine: Engine,
    /// The program `fanpcap poller`, if the kernel does not take the packets for the members.
    poller: Option<Poller>,
    /// Settings of the members' environment.
    settings: Vec<(&'static str, String)>,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Tpacket => "tpacket",
            Self::Xdp => "xdp",
            Self::Packet => "packet",
            Self::Afxdp => "afxdp",
            Self::Dpdk => "dpdk",
            Self::Netmap => "netmap",
            Self::Zc => "zc",
            Self::Pfring => "pfring",
        }
    }

    /// The engine and what takes its packets in this test, for the table.
    pub(crate) fn title(self) -> String {
        let name = self.name();
        match self {
            Self::Tpacket | Self::Xdp | Self::Packet | Self::Afxdp => format!("`{name}`"),
            Self::Dpdk => format!("`{name}`, by net_af_packet"),
            Self::Netmap | Self::Zc | Self::Pfring => format!("`{name}`, stand-in"),
        }
    }

    /// The device as an application names it.
    pub(crate) fn device(self) -> String {
        let device = match self == Self::Dpdk {
            true => "net_af_packet0",
            false => DEVICE,
        };
        format!("{}:{device}", self.name())
    }

    /// Whether the group's packets are shared by fanpcap, so that all such engines give a flow to
    /// the same member.
    pub(crate) fn is_steered(self) -> bool {
        self != Self::Pfring
    }

    /// Whether a program of the device's driver takes the packets while members capture.
    fn is_at_driver(self) -> bool {
        matches!(self, Self::Xdp | Self::Afxdp)
    }

    /// Starts what takes the packets of the wire's end.
    pub(crate) fn serve(self, wire: &Wire) -> Result<Served> {
        let scratch = &wire.scratch;
        let mut settings = Vec::new();
        let device = self.device();
        let start = |device: &str, options: &[&str], variable| {
            Poller::start_set(device, options, &[variable], scratch).map(Some)
        };
        let poller = match self {
            Self::Tpacket | Self::Xdp => None,
            Self::Packet | Self::Afxdp => Some(Poller::start(self.name(), scratch)?),
            Self::Dpdk => {
                let plugin = dpdk::plugin(scratch)?.display().to_string();
                let device = format!("{device},iface={DEVICE},framecnt=16384");
                start(&device, &["--no-huge"], ("FANPCAP_DPDK_PLUGIN", plugin))?
            }
            Self::Netmap => {
                let module = netmap::stand_in(scratch)?.display().to_string();
                start(&device, &[], ("LD_PRELOAD", module))?
            }
            Self::Zc => start(&device, &[], with_pfring(wire)?)?,
            Self::Pfring => {
                settings.push(with_pfring(wire)?);
                None
            }
        };
        Ok(Served {
            engine: self,
            poller,
            settings,
        })
    }
}

/// The variable by which programs find our library, and the stand-in for PF_RING's library.
fn with_pfring(wire: &Wire) -> Result<(&'static str, String)> {
    let stand_in = pfring::stand_in(&wire.scratch)?;
    let found = format!(
        "{}:{}",
        library::library_dir()?.display(),
        stand_in.display()
    );
    Ok(("LD_LIBRARY_PATH", found))
}

impl Served {
    /// A tcpdump on the engine, which has the settings of `configuration`.
    pub(crate) fn tcpdump(&self, wire: &Wire, configuration: &str) -> Result<Program> {
        let program = wire.tcpdump_on(&self.engine.device())?;
        // Otherwise the kernel would keep packets for up to a second.
        let program = program.arg("--immediate-mode");
        let program = program.set("PCAP_CONFIG", configuration);
        let set = |program: Program, (name, value): &(&str, String)| program.set(name, value);
        Ok(self.settings.iter().fold(program, set))
    }

    /// Checks that packets do not come by another engine.
    pub(crate) fn check(&self) -> Result<()> {
        let is_at_driver = veth::has_xdp(DEVICE)?;
        ensure!(
            is_at_driver == self.engine.is_at_driver(),
            "not on the engine"
        );
        Ok(())
    }

    /// Ends the poller if there is one. Returns what it has counted.
    pub(crate) fn end(self) -> Result<Option<Summary>> {
        self.poller.map(Poller::end).transpose()
    }
}
