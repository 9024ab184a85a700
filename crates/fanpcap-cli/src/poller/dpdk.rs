//! DPDK in the poller's process: finds the plugin, starts DPDK, and opens its devices.

use anyhow::{Context, Result, bail, ensure};
use fanpcap_dpdk::{
    Bus, DeviceName, Eal, EalOptions, Facts, Plugin, arguments_for, check_pci, free_huge_bytes,
    huge_pages_for,
};
use fanpcap_gen::{Description, Lengths};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;
use fanpcap_linux::process::capabilities;
use fanpcap_poller::Sender;
use fanpcap_poller::dpdk::{self, DpdkSource, memory_mib, open};
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use super::place::Place;

/// What starts with the process, and opens devices.
#[derive(Debug)]
pub(super) struct Dpdk {
    eal: Eal,
    version: String,
    fill: Option<u16>,
}

/// A device that is open.
pub(super) struct Opened {
    pub(super) sources: Vec<DpdkSource>,
    pub(super) sender: Sender,
    /// The driver, and what it lacks, in words.
    pub(super) way: String,
}

/// How DPDK starts, by the options of the command.
#[derive(Clone, Debug, Default)]
pub(super) struct Start {
    /// Ordinary memory in the place of huge pages.
    pub(super) ordinary_memory: bool,
    /// More words for DPDK.
    pub(super) words: Vec<String>,
    /// For measurements: the length of the frames with which buffers are filled.
    pub(super) fill: Option<u16>,
}

/// Where sysfs is mounted.
const SYS: &str = "/sys";

impl Dpdk {
    /// Starts DPDK if one of the devices is DPDK's. `queues` is the number of queues of each of
    /// them, and `cpu` a CPU of this process.
    ///
    /// # Errors
    /// Why DPDK does not start, and what to do.
    pub(super) fn begin(
        places: &[Place],
        start: &Start,
        queues: u16,
        cpu: usize,
    ) -> Result<Option<Self>> {
        let names: Vec<&DeviceName> = places.iter().filter_map(|it| it.of_dpdk.as_ref()).collect();
        let Some(first) = places.iter().find(|it| it.of_dpdk.is_some()) else {
            return Ok(None);
        };
        let all_queues = u32::from(queues).saturating_mul(u32::try_from(names.len())?);
        let begun = begin(&names, start, all_queues, cpu);
        begun.map(Some).with_context(|| first.to_string())
    }

    /// Opens a device.
    ///
    /// # Errors
    /// Why the device can't be opened, and what to do.
    pub(super) fn open(&self, name: &DeviceName, queues: u16) -> Result<Opened> {
        if name.bus() == Bus::Pci {
            check_pci(Path::new(SYS), name.name())?;
        }
        let opened = match self.fill {
            None => open(self.eal, name, queues)?,
            Some(len) => filled(self.eal, name, queues, len)?,
        };
        let mut way = way(&self.version, &opened.facts, queues);
        way.extend(cut(name, name.interface().and_then(longest_on)));
        Ok(Opened {
            sources: opened.sources,
            sender: Sender::of_device(opened.sender),
            way,
        })
    }

    /// Drops all capabilities of DPDK's own thread. It began before this process dropped its own.
    ///
    /// # Errors
    /// The thread does not do so.
    pub(super) fn drop_capabilities(&self) -> Result<()> {
        let (sender, receiver) = mpsc::channel();
        self.eal.in_own_thread(move || {
            // The receiver may have given up.
            let _ = sender.send(capabilities::keep_only(&[]));
        })?;
        let dropped = receiver.recv_timeout(PATIENCE);
        dropped.context("the thread of DPDK does not answer")??;
        Ok(())
    }
}

/// The longest wait for DPDK's thread.
const PATIENCE: Duration = Duration::from_secs(10);

fn begin(names: &[&DeviceName], start: &Start, queues: u32, cpu: usize) -> Result<Dpdk> {
    let plugin = Plugin::find()?;
    if !start.ordinary_memory {
        ensure!(
            free_huge_bytes(Path::new(SYS)) > 0,
            "DPDK needs huge pages, and none is free: reserve {} MiB ('sysctl vm.nr_hugepages={}' \
             where they have 2 MiB), or write --no-huge for virtual devices",
            memory_mib(queues),
            huge_pages_for(Path::new(SYS), memory_mib(queues))
        );
    }
    let options = EalOptions {
        ordinary_mib: start.ordinary_memory.then(|| memory_mib(queues)),
        has_pci: names.iter().any(|it| it.bus() == Bus::Pci),
        cpu,
        prefix: format!("fanpcap-{}", std::process::id()),
        more: start.words.clone(),
    };
    Ok(Dpdk {
        eal: plugin.begin(&options)?,
        version: plugin.runs(),
        fill: start.fill,
    })
}

/// Opens a device for measurements, with frames of this length in its buffers.
fn filled(eal: Eal, name: &DeviceName, queues: u16, len: u16) -> Result<dpdk::Opened> {
    let description = Description {
        flows: FILLED_FLOWS,
        lengths: Lengths::Fixed(len),
        ..Description::default()
    };
    let frames = description.pool()?;
    let mut opened = dpdk::open_to_fill(eal, name, queues)?;
    for source in &mut opened.sources {
        let mut numbers = 0..;
        source.fill(|buffer| {
            let frame = numbers.next().map_or_else(Vec::new, |it| frames.frame(it));
            let len = frame.len().min(buffer.len());
            buffer[..len].copy_from_slice(&frame[..len]);
        })?;
    }
    Ok(opened)
}

const FILLED_FLOWS: u32 = 4096;

/// How packets come, for the line about a device that is served.
fn way(version: &str, facts: &Facts, queues: u16) -> String {
    let mut text = format!("{version}, driver {}", facts.driver);
    if facts.has_interrupts {
        text += ", with interrupts";
    }
    if facts.has_stamps {
        text += ", the device's time stamps";
    }
    if !facts.is_promiscuous {
        text += ", not promiscuous";
    }
    if queues > 1 && !facts.is_symmetric {
        text += ", queues chosen by the driver";
    }
    text
}

/// The longest frame of an interface without tags, which packet sockets have beside the frame.
fn longest_on(interface: &str) -> Option<u32> {
    const ETHERNET_HEADER: u32 = 14;
    let link = link::get(interface::index(interface)?).ok()?;
    link.mtu.checked_add(ETHERNET_HEADER)
}

/// Words for the line of a device that cuts frames of its interface, the longest of which has this
/// length. Neither the device nor its members tell that a frame was cut.
fn cut(name: &DeviceName, longest: Option<u32>) -> Option<String> {
    let whole = name.longest_whole()?;
    let longest = longest.filter(|longest| *longest > whole)?;
    let (arguments, more) = arguments_for(longest);
    let advice = match more > whole {
        true => format!(" ('{arguments}' takes {more})"),
        false => String::new(),
    };
    Some(format!(", cuts packets after {whole} bytes{advice}"))
}

/// Checks that an option that is only for DPDK has a device.
pub(super) fn ensure_used(start: &Start, places: &[Place]) -> Result<()> {
    if places.iter().any(|it| it.of_dpdk.is_some()) {
        return Ok(());
    }
    if start.ordinary_memory {
        bail!("--no-huge is for the engine dpdk");
    }
    ensure!(start.words.is_empty(), "--eal is for the engine dpdk");
    ensure!(start.fill.is_none(), "--fill is for the engine dpdk");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_packets_that_are_cut() {
        let name = DeviceName::parse("net_af_packet0,iface=eth1").unwrap();
        let said = cut(&name, Some(9014)).unwrap();
        assert_eq!(
            said,
            ", cuts packets after 1982 bytes ('framesz=16384,blocksz=16384' takes 16318)"
        );
        assert_eq!(cut(&name, Some(1514)), None);
        assert_eq!(cut(&name, None), None);
        let large = DeviceName::parse("net_af_packet0,framesz=16384").unwrap();
        let said = cut(&large, Some(65_550)).unwrap();
        assert_eq!(said, ", cuts packets after 16318 bytes");
        let other = DeviceName::parse("net_pcap0,iface=eth1").unwrap();
        assert_eq!(cut(&other, Some(9014)), None);
    }

    #[test]
    fn the_line_names_what_the_device_has_and_lacks() {
        let facts = Facts {
            driver: "net_ixgbe".to_owned(),
            mtu: None,
            descriptors: 4096,
            is_symmetric: true,
            has_interrupts: true,
            has_stamps: false,
            is_promiscuous: true,
        };
        assert_eq!(
            way("DPDK 22.11.11", &facts, 4),
            "DPDK 22.11.11, driver net_ixgbe, with interrupts"
        );
        let other = Facts {
            is_symmetric: false,
            has_interrupts: false,
            is_promiscuous: false,
            ..facts
        };
        let text = way("DPDK", &other, 2);
        assert!(
            text.ends_with("not promiscuous, queues chosen by the driver"),
            "{text}"
        );
        assert_eq!(memory_mib(4), 64 + 4 * 36);
    }
}
