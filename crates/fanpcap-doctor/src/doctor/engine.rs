//! Checks whether the machine has what the engine of the named device needs: libraries and kernel
//! modules of others, the plugin for DPDK, huge pages, a driver.

use std::path::Path;

use fanpcap_config::driver::Driver;
use fanpcap_dpdk::{
    Bus, DeviceName, LoadError, PciError, Plugin, check_pci, free_huge_bytes, huge_pages_for,
};
use fanpcap_linux::netlink::host_use;
use fanpcap_linux::netlink::link::Link;
use fanpcap_pfring::OpenError as PfringError;
use fanpcap_poller::dpdk::memory_mib;
use fanpcap_poller::kind::{OpenError, SourceKind};

use super::finding::{Effect, Finding, word};

/// A reason for which nobody can capture on a device by an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lack {
    /// The device as an application opens it: `netmap:eth0`.
    place: String,
    what: String,
    fix: String,
}

/// Reads what the machine lacks for a device that no poller serves. `links` are the devices of the
/// network namespace, and `root` is where proc and sysfs are mounted.
pub(super) fn lacks(engine: Driver, device: &str, links: &[Link], root: &Path) -> Vec<Lack> {
    let place = format!("{engine}:{device}");
    let lack = |(what, fix): (String, String)| Lack {
        place: place.clone(),
        what,
        fix,
    };
    let kind = SourceKind::named(engine.name());
    if kind.is_some_and(|it| !it.has_interface()) {
        return of_dpdk(device, &root.join("sys"))
            .into_iter()
            .map(lack)
            .collect();
    }
    let needs_pfring = kind.is_none_or(|it| it == SourceKind::Zc);
    let pfring = needs_pfring.then(fanpcap_pfring::check);
    let pfring = pfring.and_then(Result::err).map(of_pfring);
    let link = links.iter().find(|it| it.name == device);
    let source = kind
        .zip(link)
        .and_then(|(kind, link)| of_source(kind, link));
    pfring.into_iter().chain(source).map(lack).collect()
}

/// What a device of DPDK lacks, and the commands that give it.
fn of_dpdk(device: &str, sys: &Path) -> Vec<(String, String)> {
    let name = match DeviceName::parse(device) {
        Ok(name) => name,
        Err(error) => {
            let what = format!("DPDK has no device of this name: {error}");
            return vec![(what, LIST.to_owned())];
        }
    };
    // A process with raised privileges can't look for it.
    let plugin = Plugin::find().err().filter(|it| *it != LoadError::Raised);
    let plugin = plugin.map(|error| (error.to_string(), of_plugin(&error)));
    let huge = (free_huge_bytes(sys) == 0).then(|| of_huge_pages(sys, name.bus()));
    let is_pci = name.bus() == Bus::Pci;
    let driver = is_pci.then(|| check_pci(sys, name.name()));
    let driver = driver.and_then(Result::err).map(of_pci);
    plugin.into_iter().chain(huge).chain(driver).collect()
}

/// The command that lists DPDK's devices.
const LIST: &str = "dpdk-devbind.py --status    # lists the devices";

/// The command that gives the machine a plugin that can be loaded.
fn of_plugin(error: &LoadError) -> String {
    let is_missing = matches!(error, LoadError::Missing(_));
    let fix = match is_missing {
        true => "apt-get install fanpcap-dpdk    # in the source tree: make dpdk",
        false => "apt-get install --reinstall fanpcap fanpcap-dpdk",
    };
    fix.to_owned()
}

fn of_huge_pages(sys: &Path, bus: Bus) -> (String, String) {
    let mib = memory_mib(1);
    let note = match bus {
        Bus::Pci => format!("{mib} MiB more, where huge pages have 2 MiB"),
        Bus::Vdev => "or start the poller with --no-huge".to_owned(),
    };
    let pages = huge_pages_for(sys, mib);
    let fix = format!("sysctl vm.nr_hugepages={pages}    # {note}");
    ("DPDK needs huge pages, and none is free".to_owned(), fix)
}

fn of_pci(error: PciError) -> (String, String) {
    let fix = match &error {
        PciError::Missing(_) => LIST.to_owned(),
        PciError::NoDriver(address) | PciError::Kernel(address, _) => {
            format!("dpdk-devbind.py --bind=vfio-pci {address}")
        }
    };
    (error.to_string(), fix)
}

/// What the machine lacks of PF_RING, and the command that gives it.
fn of_pfring(error: PfringError) -> (String, String) {
    let has_library = !matches!(error, PfringError::Library(_));
    let fix = match has_library {
        true => "modprobe pf_ring    # of the package pfring-dkms of packages.ntop.org",
        false => "apt-get install pfring    # of packages.ntop.org",
    };
    (error.to_string(), fix.to_owned())
}

/// Why a source of a poller can't be on a network interface, and the command for that. `None` also
/// if another finding says it, or if only root's poller can find out.
fn of_source(kind: SourceKind, link: &Link) -> Option<(String, String)> {
    let name = word(&link.name);
    let error = match kind.check(link) {
        Ok(()) => return of_host(kind, link),
        Err(OpenError::Gone | OpenError::Down | OpenError::Privilege { .. }) => return None,
        Err(error) => error,
    };
    let fix = if matches!(error, OpenError::Queues(..)) {
        format!("ethtool -l {name}    # -L sets fewer queues")
    } else if matches!(error, OpenError::NotEthernet) {
        format!("tcpdump -n -i {name}    # packet sockets capture there")
    } else if kind == SourceKind::Netmap && matches!(error, OpenError::Told(_)) {
        "modprobe netmap    # after its module was built".to_owned()
    } else {
        format!("fanpcap poller packet:{name}    # as root, for packet:{name}")
    };
    Some((error.to_string(), fix))
}

/// The host uses a device whose packets the source would take.
fn of_host(kind: SourceKind, link: &Link) -> Option<(String, String)> {
    let why = host_use::of(link.index).ok().flatten()?;
    let name = word(&link.name);
    let told = (
        format!(
            "the host uses {}: {why}, and would lose the packets",
            link.name
        ),
        format!(
            "fanpcap poller packet:{name}    # as root, for packet:{name}; or --steal force if the \
             host may lose them"
        ),
    );
    kind.steals().then_some(told)
}

impl Lack {
    pub(super) fn finding(&self) -> Finding {
        let told = [
            self.what.clone(),
            "until then captures on the device by this engine get an error".to_owned(),
            self.fix.clone(),
        ];
        Finding::new("engine-lacks", Effect::Refuses, &self.place, told)
    }
}

#[cfg(test)]
mod tests;
