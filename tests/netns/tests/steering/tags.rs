//! VLAN tags. The kernel moves the outermost tag of a received frame from the frame's bytes to the
//! skb. A sent frame has all tags in its bytes. A steering program must see the same tags in
//! received and in sent frames.

use anyhow::Result;

use crate::cast::Row::{At, ByFlow, Somewhere, Together};
use crate::cast::{Case, Player, check_on, player};
use crate::frame::{CLIENT, Frame, Packet, SERVER, ip, udp};
use crate::scene::on_scene;

const UNTAGGED: &[&str] = &["none>", "none<"];
const Q: &[&str] = &["q>", "q<"];
const AD: &[&str] = &["ad>", "ad<"];
const QINQ: &[&str] = &["qinq>", "qinq<"];
const PRIORITY: &[&str] = &["priority>", "priority<"];
const FOUR: &[&str] = &["four>", "four<"];
const FIVE: &[&str] = &["five>", "five<"];

const TAGGED: &[&[&str]] = &[Q, AD, QINQ, PRIORITY, FOUR, FIVE];
const IPV4: &[&[&str]] = &[UNTAGGED, Q, AD, QINQ, PRIORITY, FOUR];

#[test]
#[ignore = "needs root: run by make test"]
fn a_tag_beside_the_frame_is_as_one_in_it() -> Result<()> {
    on_scene(1, |scene| check_on(scene, &cast(), CASES))
}

const CASES: &[Case<'_>] = &[
    ("vlan >-> steer_to 1", &[At(1, TAGGED)]),
    ("l3_proto 0x8100 >-> steer_to 1", &[At(1, TAGGED)]),
    (
        "filter (not has_vlan) >-> steer_to 1",
        &[At(1, &[UNTAGGED])],
    ),
    ("vlan_id_filter [5] >-> steer_to 1", &[At(1, &[Q])]),
    (
        "vlan_id_filter [6, 7] >-> steer_to 1",
        &[At(1, &[AD, QINQ])],
    ),
    (
        "vlan_id_filter [0] >-> steer_to 1",
        &[At(1, &[UNTAGGED, PRIORITY])],
    ),
    (
        "vlan_id_filter [vlan_anytag] >-> steer_to 1",
        &[At(1, TAGGED)],
    ),
    ("filter (has_vid 0) >-> steer_to 1", &[At(1, &[PRIORITY])]),
    (
        "filter (vid .> 6) >-> steer_to 1",
        &[At(1, &[QINQ, FOUR, FIVE])],
    ),
    (
        "steer_vlan",
        &[
            Together(&[Q]),
            Together(&[AD]),
            Together(&[QINQ]),
            Together(&[PRIORITY]),
            Together(&[FOUR]),
            Together(&[FIVE]),
        ],
    ),
    // The program skips four tags. If a fifth tag follows, the bytes after the four tags are no
    // network header.
    (
        "filter (eth_type .== 0x0800) >-> steer_to 1",
        &[At(1, IPV4)],
    ),
    (
        "filter (eth_type .== 0x8100) >-> steer_to 1",
        &[At(1, &[FIVE])],
    ),
    ("udp >-> steer_flow", &[ByFlow(IPV4)]),
    ("port 53 >-> steer_to 2", &[At(2, IPV4)]),
    (
        "steer_link",
        &[Together(&[UNTAGGED, Q, AD, QINQ, PRIORITY, FOUR, FIVE])],
    ),
    // In libpcap's expressions the tags are part of the frame.
    (
        "filter \"udp port 53\" >-> steer_to 1",
        &[At(1, &[UNTAGGED])],
    ),
    ("filter \"vlan 5\" >-> steer_to 1", &[At(1, &[Q])]),
    (
        "filter \"vlan 7 and vlan 5 and udp\" >-> steer_to 1",
        &[At(1, &[QINQ])],
    ),
    (
        "filter \"ether[12:2] = 0x88a8\" >-> steer_to 1",
        &[At(1, &[AD, QINQ, FOUR, FIVE])],
    ),
    ("filter \"len = 58\" >-> steer_to 1", &[At(1, &[FOUR])]),
];

#[test]
#[ignore = "needs root: run by make test"]
fn a_field_is_of_the_frame_without_the_tag_beside_it() -> Result<()> {
    on_scene(1, |scene| {
        // Byte 14 is the first byte of IPv4, or of a tag that is in the frame.
        let header = Together(&[UNTAGGED, &["q>", "ad>", "priority>"]]);
        let tag = Together(&[&["q<", "ad<"], QINQ, FOUR, FIVE]);
        let rows = &[header, tag, Somewhere(&[&["priority<"]])];
        check_on(scene, &cast(), &[("main = steer_field 14 1", rows)])
    })
}

/// The tags of a frame with their types, the innermost first, and the names of the frames that have
/// these tags.
type Tags = (&'static [&'static str], &'static [(u16, u16)]);

const TAGS: [Tags; 7] = [
    (UNTAGGED, &[]),
    (Q, &[(0x8100, 5)]),
    (AD, &[(0x88a8, 6)]),
    (QINQ, &[(0x8100, 5), (0x88a8, 7)]),
    (PRIORITY, &[(0x8100, 0x6000)]),
    (FOUR, &[(0x8100, 5), (0x8100, 6), (0x8100, 7), (0x88a8, 8)]),
    (
        FIVE,
        &[
            (0x8100, 5),
            (0x8100, 6),
            (0x8100, 7),
            (0x8100, 8),
            (0x88a8, 9),
        ],
    ),
];

/// Frames with their flows. The first frame of each flow arrives, the other leaves.
fn cast() -> Vec<Player> {
    (40000..)
        .zip(TAGS)
        .flat_map(|(port, tags)| flow(port, tags))
        .collect()
}

fn flow(port: u16, (names, tags): Tags) -> [Player; 2] {
    let (client, server) = ([10, 0, 0, 1].into(), [192, 168, 0, 42].into());
    let wrap = |packet: Packet, (kind, vlan): &(u16, u16)| packet.tagged(*kind, *vlan);
    let tagged = |packet| tags.iter().fold(packet, wrap);
    let there = tagged(ip((client, server), &udp((port, 53), &[])));
    let back = tagged(ip((server, client), &udp((53, port), &[])));
    let (arriving, leaving) = (there.framed(), back.between((SERVER, CLIENT)));
    [
        player(names[0], names[0], Frame::arriving(arriving)),
        player(names[1], names[0], Frame::leaving(leaving)),
    ]
}
