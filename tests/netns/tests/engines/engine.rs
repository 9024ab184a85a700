//! The engines, and what takes the packets for each of them: the kernel, a poller, or a stand-in.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::poller::{Poller, Summary};
use fanpcap_netns::{DEVICE, Wire};
use fanpcap_poller::netmap::NetmapSource;
use fanpcap_ring::NetmapRing;
use fanpcap_testkit::traffic::Frame;
use fanpcap_testkit::{Program, dpdk, library, pfring, veth};

use crate::module::{Calls, INTERFACE, Module};
use crate::scene;

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
    by: By,
    /// Settings of the members' environment.
    settings: Vec<(&'static str, String)>,
}

/// Who takes the packets for the members.
enum By {
    /// The kernel.
    Kernel,
    /// The program `fanpcap poller`.
    Program(Poller),
    /// A poller in threads of the test, on memory as netmap's module has it.
    Module(Calls, scene::Poller),
}

/// The slots of the stand-in's ring for netmap.
const SLOTS: u32 = 1024;

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
        let by = match self {
            Self::Tpacket | Self::Xdp => By::Kernel,
            Self::Packet | Self::Afxdp => By::Program(Poller::start(self.name(), scratch)?),
            Self::Dpdk => {
                let plugin = dpdk::plugin(scratch)?.display().to_string();
                let device = format!("{},iface={DEVICE},framecnt=16384", self.device());
                let variables = [("FANPCAP_DPDK_PLUGIN", plugin)];
                By::Program(Poller::start_set(
                    &device,
                    &["--no-huge"],
                    &variables,
                    scratch,
                )?)
            }
            Self::Zc => {
                let device = self.device();
                By::Program(Poller::start_set(
                    &device,
                    &[],
                    &[with_pfring(wire)?],
                    scratch,
                )?)
            }
            Self::Pfring => {
                settings.push(with_pfring(wire)?);
                By::Kernel
            }
            Self::Netmap => of_module()?,
        };
        Ok(Served {
            engine: self,
            by,
            settings,
        })
    }
}

/// A poller on the stand-in for netmap's module.
fn of_module() -> Result<By> {
    let module = Module::new(SLOTS, 0);
    let ring = NetmapRing::new(module.map(), INTERFACE, 0).context("no ring")?;
    let calls = Calls::on(module);
    let source = Box::new(NetmapSource::new(ring, calls.clone(), 0));
    let poller = scene::Poller::start_of(Engine::Netmap.name(), source, false, Duration::ZERO)?;
    Ok(By::Module(calls, poller))
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

    /// Sends frames to the device on which the members capture.
    pub(crate) fn send(&self, wire: &Wire, frames: &[Frame]) -> Result<()> {
        let By::Module(calls, _) = &self.by else {
            return wire.send_as_tap(frames);
        };
        let mut module = calls.module();
        frames.iter().for_each(|it| module.receive(&[&it.bytes]));
        Ok(())
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

    /// Ends the poller if there is one. Returns what the program `fanpcap poller` has counted.
    pub(crate) fn end(self) -> Result<Option<Summary>> {
        match self.by {
            By::Program(poller) => poller.end().map(Some),
            By::Kernel => Ok(None),
            By::Module(_, poller) => {
                drop(poller);
                Ok(None)
            }
        }
    }
}
