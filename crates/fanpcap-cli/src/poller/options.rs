//! The options of `fanpcap poller`, and what they mean for a device.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use fanpcap_external::group_of_users;
use fanpcap_linux::netlink::host_use;
use fanpcap_linux::process::cpu;
use fanpcap_nic::cpus::{self, Choice, Pinning};
use fanpcap_poll::LANES_MAX;
use fanpcap_poller::Policy;
use fanpcap_poller::access::Access;
use fanpcap_poller::access::file::Resolved;
use fanpcap_poller::kind::SourceKind;
use fanpcap_poller::queue::Idle;
use std::path::PathBuf;

use super::dpdk::{self, Dpdk, Start};
use super::place::{PLACE, Place};
use super::policy;

/// Takes devices' packets for programs without privileges (as root)
///
/// A poller takes the packets of devices in user space. Applications on this machine become members
/// of groups at the poller, and share its packets by the group's steering program. A member reads
/// its packets from memory that it shares with the poller. It needs no capability.
///
/// The engine packet is a packet socket: it is on any device with Ethernet frames, and the host
/// gets its packets as before. The engine afxdp (AF_XDP) takes the packets from the host before the
/// kernel makes socket buffers of them. So do netmap, with its kernel module, and zc (PF_RING ZC),
/// with PF_RING's library and driver. The engine dpdk takes the packets of devices of DPDK, which
/// the host does not have.
///
/// The poller serves each device on a Unix socket below /run/fanpcap-pollers. It runs until SIGINT,
/// SIGTERM or SIGHUP. When it ends, its members' reads end with an error after they have read the
/// packets that are left. A device that is removed is served again when it is back, except a device
/// of DPDK.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The engine and the device, such as packet:eth0, afxdp:eth0, dpdk:0000:3b:00.0 or
    /// dpdk:net_af_packet0,iface=eth0; several devices need no further poller
    #[arg(value_name = PLACE, required = true, value_parser = Place::parse)]
    pub(super) devices: Vec<Place>,
    /// How many threads share the packets of a device of the engine packet, each with a packet
    /// socket of its own, or of the engine dpdk, each with a receive queue. Both directions of a
    /// flow come to the same thread, if a device of DPDK can do so
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = threads)]
    queues: u16,
    /// The CPUs of the threads, one thread for each receive queue: none (the kernel chooses), auto
    /// (near the device, but not its receiving CPUs), or a list such as 2,4-7, for the queues of
    /// all devices in turn
    #[arg(long, value_name = "LIST", default_value = "none", value_parser = Pinning::parse)]
    cpus: Pinning,
    /// Look for packets all the time: the least delay, but each receive queue takes a whole CPU.
    /// Without this option, a thread sleeps while no packets come
    #[arg(long)]
    spin: bool,
    /// The users who may become members besides root: a group of users, by name or number
    #[arg(long, value_name = "NAME")]
    socket_group: Option<String>,
    /// A file with rules about who may become a member of which device, and what each user may take
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Whether afxdp, netmap or zc may take the packets of a device that the host uses: yes refuses
    /// such a device, force takes its packets
    #[arg(long, value_name = "WORD", value_enum, default_value_t = Steal::Yes)]
    steal: Steal,
    /// The engine dpdk uses ordinary memory in the place of huge pages. Virtual devices work with
    /// it
    #[arg(long)]
    no_huge: bool,
    /// A further word for DPDK's own command line, such as --eal=--iova-mode=va; may be repeated
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    eal: Vec<String>,
    /// For measurements: fill the buffers of devices of the engine dpdk once, with frames of 4096
    /// flows. A device that writes to no buffer, such as net_null0, then has these frames
    #[arg(long, value_name = "BYTES", hide = true, value_parser = clap::value_parser!(u16).range(60..=1514))]
    fill: Option<u16>,
    /// Send the frames of members that have no packet socket of their own: pcap_inject() of
    /// programs without privileges. Whoever may connect may then send any frame on the devices
    #[arg(long)]
    send: bool,
    /// Print nothing but errors and the summary
    #[arg(short, long)]
    pub(super) quiet: bool,
}

/// How many threads share a device. A member's pool has a lane for each.
fn threads(text: &str) -> Result<u16, String> {
    let number: Option<u16> = text.parse().ok();
    let number = number.filter(|it| (1..=LANES_MAX).contains(&u32::from(*it)));
    number.ok_or_else(|| format!("write a number from 1 to {LANES_MAX}"))
}

/// Whether the host may lose packets that it may need. The words are those of the setting `steal`
/// for engines that take devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Steal {
    /// Only if the host does not use the device.
    Yes,
    /// Also if the host uses the device.
    Force,
}

/// The options for all devices.
#[derive(Debug)]
pub(super) struct Options {
    pinning: Pinning,
    allowed: Vec<usize>,
    /// How many sockets or queues share the packets of a device.
    pub(super) sockets: u16,
    pub(super) idle: Idle,
    /// The number of the group of users who may connect.
    pub(super) group: Option<u32>,
    /// The rules of the policy file.
    rules: Option<Resolved>,
    steal: Steal,
    /// Whether members may send frames.
    pub(super) sends: bool,
    pub(super) is_quiet: bool,
    /// What each device gives to its members.
    pub(super) policy: Policy,
    /// How DPDK starts.
    dpdk_start: Start,
    /// DPDK, if a device is one of DPDK's.
    pub(super) dpdk: Option<Dpdk>,
}

impl Options {
    /// # Errors
    /// There is no such group of users, or a device is named twice.
    pub(super) fn of(arguments: &Arguments) -> Result<Self> {
        let devices = &arguments.devices;
        let mut places = devices.iter().enumerate();
        let is_twice = |at: usize| devices[..at].iter().any(|it| it.is_same(&devices[at]));
        if let Some((_, twice)) = places.find(|(at, _)| is_twice(*at)) {
            bail!("{twice} is named twice: name each device once");
        }
        let counts = [SourceKind::Packet, SourceKind::Dpdk];
        if arguments.queues > 1 && !devices.iter().any(|it| counts.contains(&it.kind)) {
            bail!(
                "--queues is for the engines packet and dpdk: the others have a thread for each \
                 receive queue"
            );
        }
        let dpdk_start = Start {
            ordinary_memory: arguments.no_huge,
            words: arguments.eal.clone(),
            fill: arguments.fill,
        };
        dpdk::ensure_used(&dpdk_start, devices)?;
        let group = arguments.socket_group.as_deref();
        let group = group.map(group_of_users).transpose();
        let allowed = cpu::cpus().context("which CPUs this process may run on")?;
        // A wrong list is an error before any device is opened.
        cpus::choose(&arguments.cpus, None, &allowed, 1)?;
        let rules = arguments.policy.as_deref();
        let rules = rules.map(|path| policy::read(path, devices));
        Ok(Self {
            sockets: arguments.queues,
            pinning: arguments.cpus.clone(),
            allowed,
            idle: match arguments.spin {
                true => Idle::Spin,
                false => Idle::Sleep,
            },
            group: group.context("--socket-group")?,
            rules: rules.transpose()?,
            steal: arguments.steal,
            sends: arguments.send,
            is_quiet: arguments.quiet,
            policy: Policy::of_one_in(devices.len() as u64),
            dpdk_start,
            dpdk: None,
        })
    }

    /// Starts DPDK if one of the devices is DPDK's.
    ///
    /// # Errors
    /// Why DPDK does not start, and what to do.
    pub(super) fn begin_dpdk(&mut self, places: &[Place]) -> Result<()> {
        let cpu = self.allowed.first().copied().unwrap_or_default();
        self.dpdk = Dpdk::begin(places, &self.dpdk_start, self.sockets, cpu)?;
        Ok(())
    }

    /// The CPUs for the queues of a device. `before` is the number of queues of the devices before.
    pub(super) fn cpus(&self, place: &Place, before: usize, queues: usize) -> Result<Choice> {
        let own = match &self.pinning {
            Pinning::List(cpus) => Pinning::List(rotated(cpus, before)),
            Pinning::Auto | Pinning::None => self.pinning.clone(),
        };
        let interface = Some(place.device.as_str()).filter(|_| place.kind.has_interface());
        let choice = cpus::choose(&own, interface, &self.allowed, queues);
        choice.map_err(Into::into)
    }

    /// The rules of a device.
    pub(super) fn access(&self, place: &Place) -> Access {
        let access = |rules: &Resolved| rules.access(&place.to_string(), self.group);
        self.rules
            .as_ref()
            .map_or_else(Access::without_rules, access)
    }

    /// Whether users may connect whom the socket's owner and group would not let: the rules decide
    /// about each of them.
    pub(super) fn all_may_connect(&self) -> bool {
        self.rules.is_some()
    }

    /// Whether the poller reports when the host begins to use the device.
    pub(super) fn minds_the_host(&self, place: &Place) -> bool {
        place.kind.steals() && self.steal == Steal::Yes
    }

    /// Checks that the host does not need the packets that the source takes from the host.
    pub(super) fn ensure_not_the_hosts(&self, place: &Place, ifindex: u32) -> Result<()> {
        if !self.minds_the_host(place) {
            return Ok(());
        }
        let why = host_use::of(ifindex).with_context(|| format!("{place}: what the host uses"))?;
        match why {
            None => Ok(()),
            Some(why) => bail!(
                "the host uses {}: {why}, so the host would lose packets: write '--steal force' if \
                 it may, or serve packet:{}",
                place.device,
                place.device
            ),
        }
    }
}

/// The list from its entry `first` on, and then its beginning.
fn rotated(cpus: &[usize], first: usize) -> Vec<usize> {
    let first = first.checked_rem(cpus.len()).unwrap_or(0);
    [&cpus[first..], &cpus[..first]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn options(line: &str) -> Result<Options> {
        let words = std::iter::once("poller").chain(line.split_whitespace());
        Options::of(&Command::try_parse_from(words)?.arguments)
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, expected) in [
            ("", "required"),
            ("eth0", "packet:eth0 or afxdp:eth0"),
            ("packet:a packet:b packet:a", "packet:a is named twice"),
            ("packet:a --socket-group no-such-group", "no group"),
            ("afxdp:a --queues 2", "--queues is for the engines packet"),
            ("afxdp:a --no-huge", "--no-huge is for the engine dpdk"),
            ("packet:a --eal=-v", "--eal is for the engine dpdk"),
            (
                "dpdk:net_null0 dpdk:net_null0,size=9",
                "dpdk:net_null0 is named twice",
            ),
            ("packet:a --queues 65", "from 1 to 64"),
            ("packet:a --steal no", "possible values: yes, force"),
            ("packet:a --cpus 3-", "list of CPUs"),
        ] {
            let error = format!("{:#}", options(line).unwrap_err());
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn a_poller_sleeps_and_refuses_the_hosts_devices_unless_told_otherwise() {
        let lo = fanpcap_linux::interface::index("lo").unwrap();
        let stealing = Place::parse("afxdp:lo").unwrap();
        let other = Place::parse("packet:lo").unwrap();
        let default = options("afxdp:lo").unwrap();
        assert_eq!(default.idle, Idle::Sleep);
        let refused = default.ensure_not_the_hosts(&stealing, lo).unwrap_err();
        assert!(refused.to_string().contains("'--steal force'"), "{refused}");
        default.ensure_not_the_hosts(&other, lo).unwrap();
        let told = options("afxdp:lo --spin --steal force").unwrap();
        assert_eq!(told.idle, Idle::Spin);
        told.ensure_not_the_hosts(&stealing, lo).unwrap();
    }

    #[test]
    fn the_list_of_cpus_goes_on_with_the_next_device() {
        assert_eq!(rotated(&[1, 2, 3], 4), [2, 3, 1]);
        assert_eq!(rotated(&[1], 7), [1]);
    }
}
