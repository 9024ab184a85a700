//! A monitored device: whether a selection may be attached to it, and its promiscuous mode.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_linux::netlink::{address, link, route};
use fanpcap_linux::{bpf, ethtool, interface};

/// A device that receives mirrored packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Device {
    pub(crate) ifindex: u32,
    pub(crate) name: String,
}

impl Device {
    /// Finds the device with this name in the calling thread's network namespace.
    pub(crate) fn find(name: &str) -> Result<Self> {
        let found = interface::find(name).context("looking for the device")?;
        let ifindex = found.with_context(|| interface::missing(name))?;
        let name = name.to_owned();
        Ok(Self { ifindex, name })
    }

    /// Refuses a device without Ethernet frames, because the selection reads only Ethernet frames.
    pub(crate) fn check_ethernet(&self) -> Result<()> {
        let found = link::get(self.ifindex).context("reading the device")?;
        let name = &self.name;
        ensure!(
            found.hardware == ARPHRD_ETHER,
            "{name} has no Ethernet frames: name the device that receives the mirrored packets"
        );
        Ok(())
    }

    /// Refuses a device that the machine itself needs, because the selection drops packets of other
    /// nodes, and would also drop the machine's own packets.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { ifindex, name } = self;
        let force = "--force allows this device, but may cut this machine off";
        let leads = route::leads_through(*ifindex).context("reading the routes")?;
        ensure!(!leads, "{name} carries the default route; {force}");
        let addressed = address::has_address(*ifindex).context("reading the addresses")?;
        ensure!(
            !addressed,
            "{name} has an IP address, so it gets packets for this machine; {force}"
        );
        Ok(())
    }

    /// Refuses a device that runs another XDP program than `own`, the id of this node's program.
    pub(crate) fn check_xdp(&self, own: Option<u32>) -> Result<()> {
        let found = link::get(self.ifindex).context("reading the device")?;
        match found.xdp {
            Some(xdp) if Some(xdp.program) != own => {
                let program = xdp.program;
                let called = bpf::program_name(program).unwrap_or_else(|_| "unknown".to_owned());
                let name = &self.name;
                ensure!(
                    !is_engine(&called),
                    "applications capture on device {name} with the XDP engine ({called}): stop \
                     them, start the node, then start them again to capture behind the selection"
                );
                bail!(
                    "{name} has another XDP program, {called} (number {program}): stop what runs \
                     it, or see 'bpftool net show dev {name}'"
                )
            }
            _ => Ok(()),
        }
    }

    /// The number of receive queues; 0 if several CPUs may serve queues with the same number.
    pub(crate) fn queues(&self) -> u32 {
        let device = ethtool::Device::find(self.ifindex).ok();
        let queues = device.and_then(|device| device.receive_queues());
        let kind = link::get(self.ifindex).map(|link| link.kind);
        queues_of(&kind.unwrap_or_default(), queues.unwrap_or(1))
    }

    /// Sets the promiscuous mode, which outlives the agent. Returns whether the mode changed.
    pub(crate) fn set_promiscuous(&self, promiscuous: bool) -> Result<bool> {
        let socket = UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"));
        let socket = socket.context("opening a socket")?;
        let set = interface::set_promiscuous(socket.as_fd(), self.ifindex, promiscuous);
        set.with_context(|| format!("setting the promiscuous mode of {}", self.name))
    }

    /// Why the device can't get packets; `None` if it can. The text can follow the device's name.
    pub(crate) fn silence(&self) -> Option<&'static str> {
        link::get(self.ifindex).map_or(Some("is down"), |found| found.silence())
    }
}

/// Computes [`Device::queues`] for a device of the type `kind` with `queues` queues. A bond's BPF
/// program runs at all ports of the bond, and each port numbers its queues from 0. So several CPUs
/// may serve queues with the same number.
fn queues_of(kind: &str, queues: u32) -> u32 {
    match kind {
        "bond" => 0,
        _ => queues.max(1),
    }
}

/// Whether a BPF program has a name that the XDP engine (fanpcap-xdp) uses.
fn is_engine(name: &str) -> bool {
    ["fanpcap_xdp", "fanpcap_root"].contains(&name)
}

/// linux/if_arp.h.
const ARPHRD_ETHER: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_cpus_may_serve_the_queues_of_a_bond() {
        assert_eq!(queues_of("bond", 16), 0);
        assert_eq!(queues_of("veth", 4), 4);
        assert_eq!(queues_of("", 0), 1);
    }
}
