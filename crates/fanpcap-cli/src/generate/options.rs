//! The options of `fanpcap gen`, and the description that follows from them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use fanpcap_gen::{Description, Families, Lengths, Prefix, Rate, Transports};

/// Sends traffic: made from a description, or replayed
///
/// Frames are made once, as many as it takes for all flows and lengths to come in their proportions, and
/// sent in order, again and again. The same options and the same seed make the same frames, byte for
/// byte, whichever way they are sent. Checksums are right. The payload of a frame begins with its number,
/// unless there is no room or --no-stamp is given; what follows is the same in all frames.
///
/// Where it can, an eBPF program within the kernel sends the frames (BPF_PROG_TEST_RUN with live frames,
/// since Linux 5.18; it needs CAP_BPF, CAP_NET_ADMIN and CAP_SYS_ADMIN). That is several times as fast as
/// any reader. Else sendmmsg(2) does, past the queueing discipline (CAP_NET_RAW). Some devices refuse live
/// frames: a veth does unless its other end has an XDP program or GRO turned on. The first frame shows it;
/// the result says which way was taken, and why.
///
/// At the end it says what was sent, what the device counted meanwhile, and, for a veth, what its other
/// end received, if that is in this network namespace, in one under /run/netns or in that of a process.
/// Ctrl-C ends it earlier, with the same result.
///
/// The device that carries the default route is refused, and so is the loopback device, without --force.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The device to send on
    #[arg(short = 'i', long, value_name = "DEV")]
    pub(super) device: String,

    /// Send the packets of a capture file, pcap or pcapng, byte for byte
    ///
    /// They are sent at top speed if neither --rate nor --speed is given. A file of more than 256 MiB is
    /// read in pieces while it is sent, by sendmmsg(2) only.
    #[arg(long, value_name = "FILE", help_heading = "Replay", conflicts_with_all = [
        "len", "imix", "flows", "ipv4", "ipv6", "udp", "tcp", "both", "vlan", "vxlan", "fragments",
        "no_stamp", "src_mac", "dst_mac", "src_ip", "dst_ip", "src_ip6", "dst_ip6",
    ])]
    pub(super) replay: Option<PathBuf>,
    /// Keep the times of the file, so many times as fast
    #[arg(long, value_name = "FACTOR", help_heading = "Replay", requires = "replay",
          conflicts_with = "rate", value_parser = speed)]
    pub(super) speed: Option<f64>,
    /// Give the flows other addresses in each loop but the first
    ///
    /// The last 16 bits of IPv4 and IPv6 addresses change, in the same way for all packets of a loop, so that
    /// flows stay flows, in both directions. The checksums of IPv4, TCP, UDP and ICMPv6 follow. Multicast,
    /// broadcast and loopback addresses stay. By sendmmsg(2) only.
    #[arg(long, help_heading = "Replay", requires = "replay")]
    pub(super) flows_per_loop: bool,

    /// So many frames
    #[arg(short = 'c', long, value_name = "N", help_heading = "How much")]
    pub(super) count: Option<u64>,
    /// So long; without this, --count or --loops until Ctrl-C
    #[arg(
        short = 't',
        long,
        value_name = "S",
        help_heading = "How much",
        conflicts_with = "count"
    )]
    pub(super) seconds: Option<f64>,
    /// So often through all frames, or through the file; 0 for ever
    ///
    /// A file is replayed once if nothing is said, made frames are sent until Ctrl-C.
    #[arg(long, value_name = "N", help_heading = "How much")]
    loops: Option<u32>,

    /// Packets or bits a second, like 100kpps, 1.5Mpps, 500Mbit; top speed without it
    ///
    /// Bits are those of the frames, without check sequence, preamble and the gap between frames, which add
    /// 24 bytes a frame on Ethernet. Times follow from the beginning, so that errors never add up.
    #[arg(short = 'r', long, help_heading = "How fast")]
    pub(super) rate: Option<Rate>,
    /// Gaps between frames: even, or exponentially distributed (poisson)
    ///
    /// At even gaps below 100 us, frames that are due within 100 us go together, when the last of them is
    /// due. Poisson's frames go when they are due, or as soon as the sender has woken up.
    #[arg(long, value_enum, default_value_t = Gaps::Even, help_heading = "How fast", requires = "rate")]
    pub(super) gaps: Gaps,
    /// Stay on this CPU; without it, on the one where it starts
    ///
    /// It stays on one in any case: which queue of a device a frame takes goes by the CPU, and frames of
    /// different queues may overtake each other.
    #[arg(long, value_name = "CPU", help_heading = "How fast")]
    pub(super) core: Option<usize>,
    /// Live frames, or nothing; frames that the device refuses are lost
    #[arg(long, help_heading = "How fast", conflicts_with = "portable")]
    pub(super) live: bool,
    /// No live frames
    #[arg(long, help_heading = "How fast")]
    pub(super) portable: bool,

    /// Length of frames, or a range like 60-1514, headers of all layers included
    ///
    /// The frame check sequence (4 bytes) does not count. A frame whose headers take more is as long as
    /// these. 60 if nothing is said.
    #[arg(short = 'l', long, value_name = "N|A-B", help_heading = "Frames", value_parser = lengths)]
    len: Option<Lengths>,
    /// Lengths of 64, 594 and 1518 bytes, 7:4:1, check sequence included
    #[arg(long, help_heading = "Frames", conflicts_with = "len")]
    imix: bool,
    /// Number of flows; frames take them in turn
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 64,
        help_heading = "Frames"
    )]
    flows: u32,
    /// Flows of IPv4, which is the default; with --ipv6 half of them
    #[arg(short = '4', long, help_heading = "Frames")]
    ipv4: bool,
    /// Flows of IPv6; with --ipv4 half of them
    #[arg(short = '6', long, help_heading = "Frames")]
    ipv6: bool,
    /// Flows of UDP, which is the default; with --tcp half of them
    #[arg(long, help_heading = "Frames")]
    udp: bool,
    /// Flows of TCP; with --udp half of them
    #[arg(long, help_heading = "Frames")]
    tcp: bool,
    /// Both directions: a round of all flows, then a round of answers
    #[arg(long, help_heading = "Frames")]
    both: bool,
    /// VLAN tag; twice for 802.1ad, the outer one first
    #[arg(long, value_name = "ID", help_heading = "Frames")]
    vlan: Vec<u16>,
    /// Put the frames into VXLAN with this network identifier
    ///
    /// The tunnel goes from 192.168.100.1 to 192.168.100.2, UDP port 4789.
    #[arg(long, value_name = "VNI", help_heading = "Frames")]
    vxlan: Option<u32>,
    /// Every Nth datagram comes as three fragments
    ///
    /// Each fragment is as long as --len says, but for the last one, which is half as long.
    #[arg(long, value_name = "N", help_heading = "Frames")]
    fragments: Option<u32>,
    /// No number at the beginning of the payload
    ///
    /// The number has four bytes in network order, and their complement follows, so that checksums are the
    /// same for all.
    #[arg(long, help_heading = "Frames")]
    no_stamp: bool,

    /// Where frames come from
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:0a", value_parser = mac,
          help_heading = "Addresses")]
    src_mac: [u8; 6],
    /// Where they go
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:99", value_parser = mac,
          help_heading = "Addresses")]
    dst_mac: [u8; 6],
    /// Where IPv4 flows come from
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "10.1.0.0/16",
        help_heading = "Addresses"
    )]
    src_ip: Prefix,
    /// Where they go
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "10.2.0.0/16",
        help_heading = "Addresses"
    )]
    dst_ip: Prefix,
    /// Where IPv6 flows come from
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "fd00:1::/112",
        help_heading = "Addresses"
    )]
    src_ip6: Prefix,
    /// Where they go
    #[arg(
        long,
        value_name = "PREFIX",
        default_value = "fd00:2::/112",
        help_heading = "Addresses"
    )]
    dst_ip6: Prefix,
    /// Decides addresses, ports, the order of lengths and poisson's gaps
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
    /// The result as one line of JSON
    #[arg(long)]
    pub(super) json: bool,
    /// A line each second on standard error, even if that is no terminal
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

impl Arguments {
    /// Loops, 0 for no end.
    pub(super) fn loops(&self) -> u32 {
        let bounded = self.count.is_some() || self.seconds.is_some();
        let once = u32::from(self.replay.is_some() && !bounded);
        self.loops.unwrap_or(once)
    }

    /// What the frames are to be like.
    pub(super) fn description(&self) -> Result<Description> {
        let families = match (self.ipv4, self.ipv6) {
            (_, false) => Families::V4,
            (false, true) => Families::V6,
            (true, true) => Families::Both,
        };
        let transports = match (self.udp, self.tcp) {
            (_, false) => Transports::Udp,
            (false, true) => Transports::Tcp,
            (true, true) => Transports::Both,
        };
        if self.flows < needed(families, transports) {
            bail!(
                "--flows {}: such a mix needs {} of them at least",
                self.flows,
                needed(families, transports)
            );
        }
        let lengths = if self.imix {
            Lengths::Imix
        } else {
            self.len.unwrap_or(Lengths::Fixed(60))
        };
        Ok(Description {
            seed: self.seed,
            flows: self.flows,
            lengths,
            families,
            transports,
            answers: self.both,
            vlans: self.vlan.clone(),
            vxlan: self.vxlan,
            fragments: self.fragments,
            source_mac: self.src_mac,
            destination_mac: self.dst_mac,
            sources4: self.src_ip,
            destinations4: self.dst_ip,
            sources6: self.src_ip6,
            destinations6: self.dst_ip6,
            stamp: !self.no_stamp,
        })
    }
}

/// Flows without which a mix lacks one of its kinds.
fn needed(families: Families, transports: Transports) -> u32 {
    match (families, transports) {
        (Families::Both, Transports::Both) => 4,
        (Families::V4 | Families::V6, Transports::Both) => 3,
        (Families::Both, Transports::Udp | Transports::Tcp) => 2,
        (Families::V4 | Families::V6, Transports::Udp | Transports::Tcp) => 1,
    }
}

/// Seconds as a time.
pub(super) fn duration(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .with_context(|| format!("--seconds {seconds}: that is no time"))
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed > 0.0 && speed.is_finite() => Ok(speed),
        Ok(_) | Err(_) => Err("write a factor above 0, like 1.0".to_owned()),
    }
}

fn lengths(text: &str) -> Result<Lengths, String> {
    let number = |text: &str| text.trim().parse::<u16>();
    let wrong = |_| "write a length like 60, or a range like 60-1514".to_owned();
    match text.split_once('-') {
        None => number(text).map(Lengths::Fixed).map_err(wrong),
        Some((from, to)) => {
            let (from, to) = (number(from).map_err(wrong)?, number(to).map_err(wrong)?);
            Ok(Lengths::Uniform(from, to))
        }
    }
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Vec<u8> = text
        .split(':')
        .filter(|part| part.len() == 2)
        .filter_map(|part| u8::from_str_radix(part, 16).ok())
        .collect();
    let wrong = || "write a MAC address like 02:00:00:00:00:0a".to_owned();
    let whole = text.len() == 17;
    bytes.try_into().ok().filter(|_| whole).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("gen").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.arguments)
    }

    #[test]
    fn options_become_a_description() {
        let line = "-i x --imix -n 8 --ipv4 --ipv6 --tcp --both --vlan 5 --vlan 6 --vxlan 7 \
                    --fragments 9 --no-stamp --src-ip 10.9.0.0/24 --src-mac 02:00:00:00:00:01 --seed 3";
        let description = parse(line).unwrap().description().unwrap();
        let expected = Description {
            seed: 3,
            flows: 8,
            lengths: Lengths::Imix,
            families: Families::Both,
            transports: Transports::Tcp,
            answers: true,
            vlans: vec![5, 6],
            vxlan: Some(7),
            fragments: Some(9),
            source_mac: [2, 0, 0, 0, 0, 1],
            sources4: "10.9.0.0/24".parse().unwrap(),
            stamp: false,
            ..Description::default()
        };
        assert_eq!(description, expected);
        assert_eq!(
            parse("-i x").unwrap().description().unwrap(),
            Description::default()
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "-i x --len 60 --imix",
            "-i x --len 1-2-3",
            "-i x --len 70000",
            "-i x --rate fast",
            "-i x --gaps poisson",
            "-i x --speed 1",
            "-i x --replay f --speed 0",
            "-i x --replay f --speed 1 --rate 5",
            "-i x --replay f --tcp",
            "-i x --live --portable",
            "-i x --count 1 --seconds 1",
            "-i x --src-mac 02:00:00:00:00",
            "-i x --src-mac 02:00:00:00:00:0:a",
            "-i x --flows-per-loop",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let one = parse("-i x -n 3 --ipv4 --ipv6 --udp --tcp").unwrap();
        assert!(one.description().is_err());
    }

    #[test]
    fn a_file_is_replayed_once_unless_told_otherwise() {
        assert_eq!(parse("-i x").unwrap().loops(), 0);
        assert_eq!(parse("-i x --replay f").unwrap().loops(), 1);
        assert_eq!(parse("-i x --replay f --loops 0").unwrap().loops(), 0);
        assert_eq!(parse("-i x --replay f --seconds 2").unwrap().loops(), 0);
    }
}
