//! `fanpcap node`: follows the topology, and selects packets on the monitored devices.

mod identity;
mod device;
mod attachment;
mod kernel;
mod capture;
mod report;
mod metrics;
mod stream;
mod agent;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Error, Result, bail, ensure};
use clap::Args;
use fanpcap_cluster::control::ClusterId;
use fanpcap_cluster::{Announcement, NodeId, Setup};
use fanpcap_linux::wait::{clock, stop};
use fanpcap_select::Action;
use fanpcap_terminal::{DeviceArgument, streams};

use crate::conf::{Conf, Engine, Mode, PATH, Role};
use crate::credentials::{self, Reloader};
use crate::engine;
use crate::frames;
use crate::keyring::Keyring;
use crate::shipping::{Shipper, ShipperSettings};
use crate::textfile;
use agent::Agent;
use attachment::{Attachment, Detached};
use capture::Capture;
use device::Device;
use kernel::Kernel;
use metrics::Metrics;
use report::{ReportTransport, Reporter};
use stream::Stream;

/// Captures this machine's part of a mirrored link (as root)
#[derive(Args, Debug)]
#[command(mut_arg("device", |it| {
    it.help("The device that receives the mirrored packets, instead of the settings' device; with \
             commas between several")
}))]
pub(crate) struct Arguments {
    #[command(flatten)]
    device: DeviceArgument,
    /// The settings of the cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
    /// This machine's node id, instead of the settings' id
    #[arg(long, value_name = "ID")]
    node: Option<String>,
    /// Also runs on the device of the default route, or on a device with an address. This may cut
    /// off the machine
    #[arg(long)]
    force: bool,
    /// Writes counters for Prometheus to a file every second: for node_exporter's textfile
    /// collector
    #[arg(long, value_name = "FILE")]
    metrics: Option<PathBuf>,
    /// Removes the selection from the devices and ends; other nodes' packets are no longer dropped
    #[arg(long)]
    detach: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let named = arguments.device.name().map(crate::conf::devices);
    let named = named.transpose()?;
    if arguments.detach {
        // If the command line names the devices, no settings are needed.
        let names = match named {
            Some(names) => names,
            None => Conf::load(&arguments.config)?.devices,
        };
        return detach_all(&names);
    }
    let conf = Conf::load(&arguments.config)?;
    conf.check_files(Role::Node)?;
    let devices = devices(named.as_ref().unwrap_or(&conf.devices))?;
    for device in &devices {
        device.check_ethernet()?;
        if !arguments.force {
            device.check()?;
        }
    }
    let names: Vec<&str> = devices.iter().map(|it| it.name.as_str()).collect();
    let names = names.join(", ");
    textfile::check("--metrics", arguments.metrics.as_deref())?;
    stop::on_signals().context("catching signals")?;
    let keyring = credentials::keyring(&conf, Role::Node)?;
    let reloader = Reloader::new(&arguments.config, Role::Node, Arc::clone(&keyring), say)?;
    if keyring.tls().is_none() && !conf.analyzers.is_empty() {
        say(credentials::OPEN);
    }
    let announcement = announcement(&conf, arguments, devices.len())?;
    warn();
    let kernel = Kernel::take(devices, frames::cluster(&conf), action(&conf)?)?;
    kernel.crowded().iter().for_each(|it| say(it));
    let stream = Stream::new(frames::numbers(&conf)?);
    let engine = engine::node_side(&conf, &announcement)?;
    say(&format!(
        "node {} of cluster {} on {names}, topologies come from {}",
        announcement.node,
        conf.cluster,
        conf.engine.place()
    ));
    let id = ClusterId::of_name(&conf.cluster);
    let shipper = shipper(&conf, &announcement, id, keyring);
    let to = match conf.mode {
        Mode::Distribution => ReportTransport::Counts(Box::new(shipper)),
        Mode::Capture => ReportTransport::Capture(Capture::start(shipper)?),
    };
    let mut reporter = Reporter::new(announcement, to);
    // Until a topology comes, records and counts go to the analyzers of the settings.
    reporter.follow(&conf.analyzers);
    let metrics = arguments.metrics.clone();
    let metrics = metrics.map(|file| Metrics::new(file, &conf.cluster, announcement.node, &names));
    let mut agent = Agent::new(engine, kernel, stream, reporter, metrics, reloader);
    agent.run(&announcement)?;
    Ok(ExitCode::SUCCESS)
}

/// What an operator can do if no device is named.
const NO_DEVICE: &str =
    "no device: name it, as in 'fanpcap node eth1', or 'device = NAME' in the settings";

/// The devices with these names, each device once.
fn devices(names: &[String]) -> Result<Vec<Device>> {
    ensure!(!names.is_empty(), NO_DEVICE);
    let devices: Result<Vec<Device>> = names.iter().map(|name| Device::find(name)).collect();
    let devices = devices?;
    for (at, device) in devices.iter().enumerate() {
        let twice = devices[..at].iter().find(|it| it.ifindex == device.ifindex);
        if let Some(twice) = twice {
            bail!("{} and {} are one device", twice.name, device.name);
        }
    }
    Ok(devices)
}

/// Detaches the selection from each of these devices. If a device fails, the other devices are
/// detached first, and then the error is returned.
fn detach_all(names: &[String]) -> Result<ExitCode> {
    ensure!(!names.is_empty(), NO_DEVICE);
    let done = names.iter().map(|name| Device::find(name).and_then(detach));
    let mut errors: Vec<Error> = done.filter_map(Result::err).collect();
    let last = errors.pop();
    errors.iter().for_each(|error| say(&streams::words(error)));
    last.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn detach(device: Device) -> Result<()> {
    let name = device.name.clone();
    let had = Attachment::take(device)?.detach()?;
    say(&match had {
        Detached::Nothing => format!("{name} had no selection"),
        Detached::Selection | Detached::SelectionBeforeEngine => {
            format!("{name} has no selection any more: all packets pass")
        }
    });
    if had == Detached::SelectionBeforeEngine {
        say(&format!(
            "applications that captured on device {name} with the XDP engine have lost it: \
             start them again"
        ));
    }
    Ok(())
}

fn shipper(
    conf: &Conf,
    announcement: &Announcement,
    cluster: ClusterId,
    keyring: Arc<Keyring>,
) -> Shipper {
    let settings = ShipperSettings {
        cluster: cluster.0,
        node: announcement.node,
        boot: announcement.boot,
        session: clock::monotonic_ns(),
        link: ETHERNET,
        transport: conf.transport,
    };
    Shipper::new(settings, keyring)
}

fn announcement(conf: &Conf, arguments: &Arguments, devices: usize) -> Result<Announcement> {
    let node: NodeId = match (&arguments.node, conf.node) {
        (Some(text), _) => crate::conf::node(text)?,
        (None, Some(node)) => node,
        (None, None) => identity::node_id(Path::new(identity::PATH))?,
    };
    let address = conf.address.or_else(|| towards_etcd(conf)).unwrap_or(ANY);
    Ok(Announcement {
        node,
        boot: identity::boot()?,
        weight: conf.weight,
        address: SocketAddr::new(address, 0),
        setup: setup(conf, devices),
    })
}

/// This node's version and settings. `None` if a number of the version does not fit into 8 bits.
fn setup(conf: &Conf, devices: usize) -> Option<Setup> {
    Some(Setup {
        version: env!("CARGO_PKG_VERSION").parse().ok()?,
        header: (conf.mode == Mode::Capture).then_some(conf.header),
        key: conf.selection.key,
        devices: u8::try_from(devices).ok(),
    })
}

/// The unspecified address: the machine's routes choose the local address.
const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The local address from which this machine reaches etcd, for operators. A socket that is
/// connected to etcd's first endpoint has this address. Nothing is sent. With the embedded engine,
/// the coordinators see the node's address themselves.
fn towards_etcd(conf: &Conf) -> Option<IpAddr> {
    let Engine::Etcd(etcd) = &conf.engine else {
        return None;
    };
    let (_, server) = etcd.endpoints.first()?.split_once("://")?;
    let server = server.to_socket_addrs().ok()?.next()?;
    let bound: SocketAddr = match server {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(bound).ok()?;
    socket.connect(server).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Warns of unsuitable settings, but does not refuse them.
fn warn() {
    let [own, first] = ["self", "1"].map(|it| std::fs::read_link(format!("/proc/{it}/ns/mnt")));
    if let (Ok(own), Ok(first)) = (own, first) {
        if own != first {
            say("the selection stops when the last process of the agent's mount namespace ends");
        }
    }
}

/// Prints one line on standard error, which systemd writes to its journal.
fn say(line: &str) {
    streams::note(&format!("fanpcap node: {line}\n"));
}

/// Link type of Ethernet (`LINKTYPE_ETHERNET`).
const ETHERNET: u16 = 1;

/// Maximum number of bytes before the network header: an Ethernet header and two tags.
const LINK: u16 = 22;

fn action(conf: &Conf) -> Result<Action> {
    Ok(match conf.mode {
        Mode::Distribution => Action::PassToNext,
        Mode::Capture => Action::Ship {
            bytes: (LINK + conf.header).next_multiple_of(8),
            shape: fanpcap_xdp::pool_shape().context("'mode = capture'")?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_says_its_version_and_settings() {
        let conf = "cluster = a\nengine = fixed\nnodes = a1\n";
        let capture = format!("{conf}mode = capture\nheader = 64\nanalyzers = 10.0.0.9:1");
        let of = |text: &str| setup(&Conf::parse(text, "c").unwrap(), 2).unwrap();
        assert_eq!(of(conf).version.to_string(), env!("CARGO_PKG_VERSION"));
        assert_eq!((of(conf).header, of(conf).key.name()), (None, "flow"));
        assert_eq!(of(conf).devices, Some(2));
        let capture = of(&capture);
        assert_eq!((capture.header, capture.key.name()), (Some(64), "packet"));
    }

    #[test]
    fn a_node_of_etcd_has_the_address_towards_it() {
        let of =
            |more: &str| towards_etcd(&Conf::parse(&format!("cluster = a\n{more}"), "c").unwrap());
        let local = of("engine = etcd\netcd = http://127.0.0.1:2379");
        assert_eq!(local, Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(of("engine = fixed\nnodes = a1"), None);
    }
}
