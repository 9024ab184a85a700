//! Filters of packets that the host sends. A handle of our library on the XDP engine must get the
//! same packets, and have the same counters, as a handle of the system's libpcap on the same
//! device.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_netns::tagger::Tagger;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_pcap::{Handle, Library, Stats};
use fanpcap_testkit::Injector;
use fanpcap_testkit::frames::{ethernet, fragment, tag, tcp, udp, v4, v6};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::veth::ip;

const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const MPLS: u16 = 0x8847;
const PPPOE: u16 = 0x8864;
const OTHER: u16 = 0x88b5;

/// Expressions of pcap-filter(7). The kernel runs all of them on packet sockets.
const EXPRESSIONS: &[&str] = &[
    "",
    "ip",
    "ip6",
    "not ip",
    "udp",
    "tcp",
    "port 53",
    "udp dst portrange 50-60",
    "host 10.0.0.1",
    "src net 10.0.0.0/8 and not port 53",
    "ip6 host 2001:db8::1",
    "ether host 02:00:00:00:00:01",
    "ether proto 0x88b5",
    "ether[12:2] = 0x8100",
    "ether[0] & 1 = 0",
    "ether[len - 1] = 0x5a",
    "ether[10:4] = 0x00010800",
    "ether[14:4] & 0xfff = 5",
    "vlan",
    "not vlan",
    "vlan 5",
    "vlan 6",
    "vlan and vlan",
    "vlan 5 and vlan 6",
    "vlan and udp",
    "vlan and ip6",
    "vlan 5 and udp port 53",
    "vlan or udp",
    "udp or vlan and udp",
    "vlan and ether[12:2] = 0x0800",
    "inbound",
    "outbound",
    "not outbound",
    "outbound and vlan and udp",
    "inbound or tcp",
    "len > 200",
    "less 64",
    "greater 1000",
    "len = 64",
    "len = 68",
    "vlan and len = 64",
    "mpls",
    "mpls 16",
    "mpls 16 and mpls 17 and udp",
    "vlan and mpls",
    "pppoes",
    "pppoes and ip",
    "llc",
    "ether[12:2] < 1500",
    "ip[8] > 5",
    "ip[6:2] & 0x1fff != 0",
    "ip[ip[2:2] - 1] = 0x5a",
    "udp[8] = 0x5a",
    "udp[4:2] > 200",
    "tcp[tcpflags] & tcp-syn != 0",
    "ip6[6] = 44",
    "ether[1400] = 0x5a",
    "ether[5000] = 0x5a",
    "ether multicast",
    "ip proto 132",
];

/// Frames of all kinds that the expressions tell apart. Their last bytes are 0x5a.
fn frames() -> Vec<Vec<u8>> {
    let payload = |len| vec![0x5a; len];
    let datagram = |port, len| udp(7, port, &payload(len));
    let label = |label: u32, last: u32| ((label << 12) | (last << 8) | 64).to_be_bytes();
    let labelled = |packet: &[u8]| [&label(16, 0)[..], &label(17, 1), packet].concat();
    let plain = v4(17, 0, &datagram(53, 22));
    let session = [&[0x11, 0, 0, 1, 0, 70, 0, 0x21][..], &plain].concat();
    let mut frames = vec![
        ethernet(IPV4, &plain),
        ethernet(IPV4, &v4(17, 0, &datagram(7777, 22))),
        ethernet(IPV4, &v4(17, 0, &datagram(55, 1400))),
        ethernet(IPV4, &v4(17, 0, &datagram(55, 8000))),
        ethernet(IPV4, &v4(6, 0, &[&tcp(80, 53)[..], &payload(40)].concat())),
        ethernet(IPV4, &v4(17, 185, &payload(30))),
        ethernet(IPV4, &v4(132, 0, &payload(30))),
        ethernet(IPV6, &v6(17, &datagram(53, 30))),
        ethernet(IPV6, &v6(44, &fragment(17, 1, &datagram(53, 30)))),
        ethernet(MPLS, &labelled(&plain)),
        ethernet(PPPOE, &session),
        ethernet(OTHER, &payload(46)),
        ethernet(50, &[&[0xaa, 0xaa, 3][..], &payload(47)].concat()),
        ethernet(40, &[&[0xff, 0xff][..], &payload(44)].concat()),
        ethernet(OTHER, &[]),
    ];
    let inner = [IPV4.to_be_bytes().to_vec(), plain].concat();
    let inside = |vlan: u16| tag(vlan, IPV4, &inner[2..]);
    frames.push(ethernet(TAG, &inside(5)));
    frames.push(ethernet(TAG, &tag(5, TAG, &inside(6))));
    frames.push(ethernet(SERVICE_TAG, &tag(6, TAG, &inside(5))));
    frames.push(ethernet(TAG, &tag(6, MPLS, &labelled(&inner[2..]))));
    frames.push(ethernet(TAG, &tag(5, IPV6, &v6(17, &datagram(53, 30)))));
    frames
}

fn failed(error: fanpcap_pcap::Error) -> anyhow::Error {
    anyhow!("{error:?}")
}

/// A handle on the device that does not wait for packets.
fn open(library: &Path, device: &str, snaplen: i32, bytes: Option<i32>) -> Result<Handle> {
    let library = Library::open(library).map_err(|error| anyhow!("{error}"))?;
    let mut created = library.create(device).map_err(failed)?;
    created.set_snaplen(snaplen).map_err(failed)?;
    created.set_immediate_mode(true).map_err(failed)?;
    if let Some(bytes) = bytes {
        created.set_buffer_size(bytes).map_err(failed)?;
    }
    let (mut handle, warning) = created.activate().map_err(failed)?;
    ensure!(warning.is_none(), "{warning:?}");
    handle.set_nonblock(true).map_err(failed)?;
    Ok(handle)
}

/// A handle of our library on the engine, and one of the system's libpcap.
fn both(snaplen: i32) -> Result<[Handle; 2]> {
    let ours = library_dir()?.join("libpcap.so.0.8");
    let engine = open(&ours, &format!("xdp:{DEVICE}"), snaplen, None)?;
    let system = open(Path::new("libpcap.so.0.8"), DEVICE, snaplen, Some(16 << 20))?;
    Ok([engine, system])
}

/// A packet as an application gets it: its length on the wire, and its captured bytes.
type Packet = (u32, Vec<u8>);

/// Reads all packets that the handle has now.
fn read(handle: &mut Handle) -> Result<Vec<Packet>> {
    let mut packets = Vec::new();
    loop {
        let before = packets.len();
        let take = |header: &fanpcap_pcap::Header, bytes: &[u8]| {
            packets.push((header.len, bytes.to_vec()));
        };
        handle.dispatch(None, take).map_err(failed)?;
        if packets.len() == before {
            return Ok(packets);
        }
    }
}

/// How much the counters have grown.
fn grown(handle: &mut Handle, before: &mut Stats) -> Result<(u32, u32)> {
    let now = handle.stats().map_err(failed)?;
    let grown = (
        now.received.wrapping_sub(before.received),
        now.dropped.wrapping_sub(before.dropped),
    );
    *before = now;
    Ok(grown)
}

/// Whether the frame has an MPLS label behind its tags. If the card can't insert tags into such
/// frames, the kernel puts the tag into the frame before packet sockets receive it, but after the
/// engine has captured it (net/core/dev.c, `net_mpls_features`).
fn is_labelled(frame: &[u8]) -> bool {
    let types = frame[12..].chunks_exact(4);
    let mut types = types.map(|it| u16::from_be_bytes([it[0], it[1]]));
    types.find(|it| ![TAG, SERVICE_TAG].contains(it)) == Some(MPLS)
}

/// Sets each expression on both handles, sends the frames, and compares what both have.
fn compare(handles: &mut [Handle; 2], frames: &[Vec<u8>], what: &str) -> Result<usize> {
    let sender = Injector::open(DEVICE)?;
    let mut before = [Stats::default(); 2];
    let mut all = 0;
    for expression in EXPRESSIONS {
        for handle in &mut *handles {
            handle.set_filter(expression).map_err(failed)?;
        }
        // On the first packet of a new filter, libpcap runs the filter itself, without knowing the
        // packet's direction. So only the second round is compared.
        for _ in 0..2 {
            for (handle, before) in handles.iter_mut().zip(&mut before) {
                read(handle)?;
                grown(handle, before)?;
            }
            for frame in frames {
                sender.send(frame)?;
            }
        }
        let [engine, system] = &mut *handles;
        let (found, expected) = (read(engine)?, read(system)?);
        ensure!(
            found == expected,
            "{what}, '{expression}': {found:x?}\nlibpcap: {expected:x?}"
        );
        let counts = grown(engine, &mut before[0])?;
        let expected = grown(system, &mut before[1])?;
        ensure!(
            counts == expected,
            "{what}, '{expression}': {counts:?} {expected:?}"
        );
        all += found.len();
    }
    Ok(all)
}

/// Runs `test` on a wire whose frames may have 9000 bytes. Sent frames get a tag beside them, if
/// the tag's protocol is not 0. Skips the test if the kernel has no hook for sent packets.
fn on_tagged(
    protocol: u16,
    vlan: u16,
    test: impl FnOnce(&Wire) -> Result<()> + Send,
) -> Result<()> {
    on_wire(1, |wire| {
        for device in ["va", "vb"] {
            ip(&format!("link set {device} mtu 9000"))?;
        }
        let tagger = match protocol {
            0 => None,
            _ => Some(Tagger::of(DEVICE, protocol, vlan)?),
        };
        test(wire)?;
        drop(tagger);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_filter_gets_what_it_gets_on_a_packet_socket() -> Result<()> {
    for (protocol, vlan) in [(0, 0), (TAG, 5), (SERVICE_TAG, 0xe006)] {
        for snaplen in [262_144, 70] {
            on_tagged(protocol, vlan, |_| {
                let mut frames = frames();
                frames.retain(|it| protocol == 0 || !is_labelled(it));
                let what = format!("tag {protocol:x} {vlan:x}, snaplen {snaplen}");
                let all = compare(&mut both(snaplen)?, &frames, &what)?;
                println!("{what}: {all} packets");
                ensure!(all > 200, "{what}: {all} packets");
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Sends `count` datagrams of 1400 bytes to port 9, and ten datagrams to port 7777.
fn flood(count: usize) -> Result<()> {
    let sender = Injector::open(DEVICE)?;
    let unwanted = ethernet(IPV4, &v4(17, 0, &udp(7, 9, &[0; 1400])));
    let wanted = ethernet(IPV4, &v4(17, 0, &udp(7, 7777, &[0; 100])));
    for _ in 0..count / 100 {
        sender.send_all(&[&unwanted; 100])?;
    }
    sender.send_all(&[&wanted; 10]).context("the wanted ones")
}

#[test]
#[ignore = "needs root: run by make test"]
fn unwanted_packets_take_no_room_and_are_not_counted() -> Result<()> {
    on_wire(1, |_| {
        for (filter, count, wanted) in [("port 1", 400_000, 0), ("udp port 7777", 200_000, 10)] {
            let mut handles = both(262_144)?;
            for handle in &mut handles {
                handle.set_filter(filter).map_err(failed)?;
            }
            flood(count)?;
            for handle in &mut handles {
                let found = read(handle)?.len();
                let (received, dropped) = grown(handle, &mut Stats::default())?;
                let found = (found, received, dropped);
                ensure!(found == (wanted as usize, wanted, 0), "{filter}: {found:?}");
            }
        }
        Ok(())
    })
}
