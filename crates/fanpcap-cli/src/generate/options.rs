//! The options of `fanpcap gen`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fanpcap_gen::{Lengths, Prefix, Rate};
use fanpcap_terminal::{DeviceArgument, at_least_one};

use super::values::{lengths, mac, seconds, speed};

/// Sends traffic: made from a description, or replayed
///
/// Frames are generated once, in a number that gives all flows and lengths their proportions. They
/// are then sent in order, again and again. The same options and the same seed give the same
/// frames, byte for byte, for each way of sending. Checksums are correct. The payload of a frame
/// begins with the frame's number, unless there is no room or --no-stamp is given. The rest of the
/// payload is the same in all frames.
///
/// If possible, an eBPF program within the kernel sends the frames (BPF_PROG_TEST_RUN with live
/// frames, since Linux 5.18; it needs CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN). This is several
/// times as fast as any reader. Otherwise sendmmsg(2) sends them, bypassing the queueing discipline
/// (CAP_NET_RAW). Some devices refuse live frames. For example, a veth refuses them unless its
/// other end has an XDP program or GRO turned on. The command detects this by the device's
/// counters, which it checks after the first 64 frames and repeatedly afterwards. It then uses
/// sendmmsg(2). It also uses sendmmsg(2) for fewer than 64 frames and below 6400 frames a second.
/// The result says which way was used, and why.
///
/// At the end, the command prints how many frames were sent, and how many the device counted in
/// that time. For a veth, it also prints how many frames the other end received. For this, the
/// other end must be in this network namespace, in a namespace under /run/netns, or in the
/// namespace of a process. Ctrl-C ends the command earlier; the result is printed too.
///
/// The exit status is 0 if the device accepted all frames. It is 1 if the device refused or dropped
/// frames, or if sending ended with an error. The number of frames sent is printed in each case.
///
/// Without --force some devices are refused: the loopback device; a device with a default route, in
/// any table; a device below a bridge, bond, VRF or VLAN that has a default route; and a VLAN,
/// macvlan, ipvlan or macsec above a refused device, or on the same lower device as a refused
/// device. For a tunnel, the device through which the tunnel's packets leave is not checked.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("device", |it| it.required(true).help("The device to send on")))]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(super) device: DeviceArgument,

    /// Send the packets of a capture file, pcap or pcapng, byte for byte
    ///
    /// The packets are sent at top speed if neither --rate nor --speed is given. A file of more
    /// than 256 MiB is read in pieces while it is sent, by sendmmsg(2) only.
    #[arg(long, value_name = "FILE", help_heading = "Replay", conflicts_with_all = [
        "len", "imix", "flows", "ipv4", "ipv6", "udp", "tcp", "both", "vlan", "vxlan", "fragments",
        "no_stamp", "src_mac", "dst_mac", "src_ip", "dst_ip", "src_ip6", "dst_ip6",
        "dst_port",
    ])]
    pub(super) replay: Option<PathBuf>,
    /// Keep the file's time intervals, but N times as fast
    #[arg(long, value_name = "FACTOR", help_heading = "Replay", requires = "replay",
          conflicts_with = "rate", value_parser = speed)]
    pub(super) speed: Option<f64>,
    /// Change the flows' addresses in each loop except the first
    ///
    /// The last 16 bits of IPv4 and IPv6 addresses change, in the same way for all packets of a
    /// loop, so that each flow keeps its packets, in both directions. The checksums of IPv4, TCP,
    /// UDP and ICMPv6 are updated. Multicast, broadcast and loopback addresses stay. Works with
    /// sendmmsg(2) only.
    #[arg(long, help_heading = "Replay", requires = "replay")]
    pub(super) flows_per_loop: bool,
    /// Leave out packets that are too long for the device, and count them
    #[arg(long, help_heading = "Replay", requires = "replay")]
    pub(super) skip_long: bool,

    /// Number of frames
    #[arg(
        short = 'c',
        long,
        value_name = "N",
        value_parser = at_least_one::<u64>,
        help_heading = "How much"
    )]
    pub(super) count: Option<u64>,
    /// Duration in seconds; without --seconds, --count and --loops, frames are sent until Ctrl-C
    ///
    /// Sending ends in time even if the rate can't be kept; the result then reports the lower rate.
    #[arg(
        short = 't',
        long,
        value_name = "SECONDS",
        value_parser = seconds,
        help_heading = "How much",
        conflicts_with = "count"
    )]
    pub(super) seconds: Option<f64>,
    /// How often to send all frames, or the file; 0: without end
    ///
    /// By default a file is replayed once, and generated frames are sent until Ctrl-C. If --count
    /// or --seconds is also given, sending ends at the first limit that is reached.
    #[arg(long, value_name = "N", help_heading = "How much")]
    pub(super) loops: Option<u32>,

    /// Packets or bits a second, like 100kpps, 1.5Mpps, 500Mbit; without this option, top speed
    ///
    /// The rate counts the bits of the frames. It does not count check sequence, preamble and the
    /// gap between frames, which add 24 bytes to each frame on Ethernet. Send times are computed
    /// from the start, so that errors do not accumulate.
    #[arg(short = 'r', long, help_heading = "How fast")]
    pub(super) rate: Option<Rate>,
    /// Gaps between frames: even, or exponentially distributed (poisson)
    ///
    /// At even gaps below 100 us, frames that are due within 100 us are sent together when the last
    /// of these frames is due. With poisson, a frame is sent when it is due, or as soon as the
    /// sender has woken up.
    #[arg(long, value_enum, default_value_t = Gaps::Even, help_heading = "How fast", requires = "rate")]
    pub(super) gaps: Gaps,
    /// Send from this CPU; default: the CPU where the command starts
    ///
    /// The command always sends from one CPU: the CPU determines a frame's queue at the device, and
    /// frames of different queues may overtake each other.
    #[arg(long, value_name = "CPU", help_heading = "How fast")]
    pub(super) core: Option<usize>,
    /// Use live frames only; fail if most of the frames don't leave the device
    #[arg(long, help_heading = "How fast", conflicts_with = "portable")]
    pub(super) live: bool,
    /// Use no live frames
    #[arg(long, help_heading = "How fast")]
    pub(super) portable: bool,

    /// Length of frames, or a range like 60-1514, headers of all layers included
    ///
    /// The frame check sequence (4 bytes) does not count. A frame whose headers are longer has the
    /// length of its headers. The default is 60.
    #[arg(short = 'l', long, value_name = "N|A-B", help_heading = "Frames", value_parser = lengths)]
    pub(super) len: Option<Lengths>,
    /// Lengths of 64, 594 and 1518 bytes, 7:4:1, check sequence included
    #[arg(long, help_heading = "Frames", conflicts_with = "len")]
    pub(super) imix: bool,
    /// Number of flows; the frames belong to the flows in turn
    ///
    /// A mode that gives packets to members in turn seems to keep flows whole if the number of
    /// flows is a multiple of the number of members. For a test of such a mode, take a prime
    /// number.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 64,
        help_heading = "Frames"
    )]
    pub(super) flows: u32,
    /// IPv4 flows, the default; with --ipv6, half of the flows are IPv4
    #[arg(short = '4', long, help_heading = "Frames")]
    pub(super) ipv4: bool,
    /// IPv6 flows; with --ipv4, half of the flows are IPv6
    #[arg(short = '6', long, help_heading = "Frames")]
    pub(super) ipv6: bool,
    /// UDP flows, the default; with --tcp, half of the flows are UDP
    #[arg(long, help_heading = "Frames")]
    pub(super) udp: bool,
    /// TCP flows; with --udp, half of the flows are TCP
    #[arg(long, help_heading = "Frames")]
    pub(super) tcp: bool,
    /// Send both directions: a round of all flows, then a round of answers
    #[arg(long, help_heading = "Frames")]
    pub(super) both: bool,
    /// VLAN tag; give it twice for 802.1ad, the outer tag first
    #[arg(long, value_name = "ID", help_heading = "Frames")]
    pub(super) vlan: Vec<u16>,
    /// Put the frames into VXLAN with this network identifier
    ///
    /// The tunnel goes from 192.168.100.1 to 192.168.100.2, UDP port 4789.
    #[arg(long, value_name = "VNI", help_heading = "Frames")]
    pub(super) vxlan: Option<u32>,
    /// Every Nth datagram comes as three fragments
    ///
    /// Each fragment has the length of --len, except the last, which is half as long.
    #[arg(long, value_name = "N", help_heading = "Frames")]
    pub(super) fragments: Option<u32>,
    /// No number at the beginning of the payload
    ///
    /// The number has four bytes in network order. The complement of these bytes follows, so that
    /// all frames have the same checksum.
    #[arg(long, help_heading = "Frames")]
    pub(super) no_stamp: bool,

    /// Source MAC address of the frames
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:0a", value_parser = mac,
          help_heading = "Addresses")]
    pub(super) src_mac: [u8; 6],
    /// Destination MAC address of the frames
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:99", value_parser = mac,
          help_heading = "Addresses")]
    pub(super) dst_mac: [u8; 6],
    /// Source addresses of IPv4 flows
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "10.1.0.0/16",
        help_heading = "Addresses"
    )]
    pub(super) src_ip: Prefix,
    /// Destination addresses of IPv4 flows
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "10.2.0.0/16",
        help_heading = "Addresses"
    )]
    pub(super) dst_ip: Prefix,
    /// Source addresses of IPv6 flows
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "fd00:1::/112",
        help_heading = "Addresses"
    )]
    pub(super) src_ip6: Prefix,
    /// Destination addresses of IPv6 flows
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "fd00:2::/112",
        help_heading = "Addresses"
    )]
    pub(super) dst_ip6: Prefix,
    /// Destination port of all flows; port 9 discards
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 9,
        help_heading = "Addresses"
    )]
    pub(super) dst_port: u16,
    /// Seed of the random choices: addresses, ports, the order of lengths, and the gaps of poisson
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        help_heading = "Addresses"
    )]
    pub(super) seed: u64,

    /// Send even on the device that carries the default route, or on the loopback device
    #[arg(long)]
    pub(super) force: bool,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print a line each second on standard error, even if standard error is not a terminal
    #[arg(long)]
    pub(super) progress: bool,
}

/// Gaps between frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Gaps {
    /// All the same.
    Even,
    /// Exponentially distributed.
    Poisson,
}
