//! The list of encapsulations: those that the walk (`fanpcap_wire`) reads, and those that the walk
//! does not read.

use super::outside::{
    Links, between, carried, frame, frame_of, in_gre, in_ip, in_segment, in_session, in_udp,
    ip_type, labels, next, ppp, service, tagged, typed, wireless,
};
use super::{Encapsulation, Talk};

const fn read(name: &'static str, wrap: fn(&Talk) -> Vec<u8>) -> Encapsulation {
    Encapsulation {
        name,
        wrap,
        is_read: true,
    }
}

const fn unread(name: &'static str, wrap: fn(&Talk) -> Vec<u8>) -> Encapsulation {
    Encapsulation {
        is_read: false,
        ..read(name, wrap)
    }
}

/// Ethernet addresses that begin with the hexadecimal digit 4 or 6, as an IP header begins with its
/// version. The addresses `AS_IPV4` and `AS_IPV6` also look like the length field of an IP header.
/// The walk must not take frames with these addresses for IP packets.
const FOURS: Links = [[0x4c, 0x5e, 0x0c, 0, 0, 1], [0x48, 0xa9, 0x8a, 0, 0, 2]];
const SIXES: Links = [[0x64, 0xd1, 0x54, 0, 0, 1], [0x6c, 0x3b, 0x6b, 0, 0, 2]];
const AS_IPV4: Links = [[0x45, 0, 0, 40, 0, 1], [0x45, 0, 0, 44, 0, 2]];
const AS_IPV6: Links = [[0x60, 0, 0, 0, 0, 20], [0x60, 0, 0, 0, 0, 8]];
const ZEROS: Links = [[0, 0, 0, 0, 0, 1], [0, 0x50, 0x56, 0, 0, 2]];
const ODD: Links = [[0xaa, 0, 4, 0, 1, 4], [0x2c, 0xea, 0x7f, 0, 0, 2]];

fn pseudowire(links: Links, word: &[u8], talk: &Talk) -> Vec<u8> {
    carried(
        0x8847,
        &labels(talk, &[word, &frame_of(links, talk)].concat()),
    )
}

fn pseudowire_bare(links: Links, talk: &Talk) -> Vec<u8> {
    pseudowire(links, &[], talk)
}

/// A pseudowire with a sequence number in its control word.
fn pseudowire_word(links: Links, talk: &Talk) -> Vec<u8> {
    let number = u8::try_from(talk.round + 1).unwrap_or(1);
    pseudowire(links, &[0, 0, 0, number], talk)
}

fn gtp(header: &[u8], payload: &[u8], talk: &Talk) -> Vec<u8> {
    in_udp(talk, 2152, &[header, payload].concat())
}

const GTP: &[u8] = &[0x30, 255, 0, 0, 0, 0, 0, 1];
const GTP_5G: &[u8] = &[0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0x10, 9, 0];
const VXLAN: &[u8] = &[8, 0, 0, 0, 0, 0, 42, 0];

/// A frame in ERSPAN. Only the frames of one direction have a fabric's time tag.
fn half_time_tagged(talk: &Talk) -> Vec<u8> {
    let frame = match talk.is_answer {
        true => tagged(talk, &[0x89, 0x88, 1, 2, 3, 4, 5, 6]),
        false => frame(talk),
    };
    let header = [0x10, 0, 0x88, 0xbe, 0, 0, 0, 1, 0x10, 1, 0, 7, 0, 0, 0, 0];
    in_gre(talk, &header, &frame)
}

fn capwap(header: &[u8], payload: &[u8], talk: &Talk) -> Vec<u8> {
    in_session(talk, 5247, &[header, payload].concat())
}

fn tzsp(header: &[u8], payload: &[u8], talk: &Talk) -> Vec<u8> {
    in_udp(talk, 37_008, &[header, payload].concat())
}

fn l2tp(header: &[u8], payload: &[u8], talk: &Talk) -> Vec<u8> {
    in_session(talk, 1701, &[header, payload].concat())
}

fn in_ppp(header: &[u8], talk: &Talk) -> Vec<u8> {
    [header, &[0, ppp(talk)], &talk.packet].concat()
}

fn pppoe(talk: &Talk) -> Vec<u8> {
    let session = in_ppp(&[0x11, 0, 0, 5, 0, 0], talk);
    between(ODD, talk, &typed(0x8864, &session))
}

/// All encapsulations.
pub const ALL: &[Encapsulation] = &[
    read("none", frame),
    read("802.1Q", |talk| tagged(talk, &[0x81, 0, 0, 5])),
    read("QinQ", |talk| {
        tagged(talk, &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6])
    }),
    read("tags 0x9200 and 0x9300", |talk| {
        tagged(talk, &[0x92, 0, 0, 5, 0x93, 0, 0, 6])
    }),
    read("VN-Tag", |talk| tagged(talk, &[0x89, 0x26, 0x80, 1, 0, 2])),
    read("VN-Tag before 802.1Q", |talk| {
        tagged(talk, &[0x89, 0x26, 0x80, 1, 0, 2, 0x81, 0, 0, 5])
    }),
    read("time tag", |talk| {
        tagged(talk, &[0x89, 0x88, 1, 2, 3, 4, 5, 6])
    }),
    read("Arista's time stamp of 64 bits", |talk| {
        tagged(talk, &[0xd2, 0x8b, 0, 1, 0, 0x10, 1, 2, 3, 4, 5, 6, 7, 8])
    }),
    read("Arista's time stamp of 48 bits", |talk| {
        let stamp = [0xd2, 0x8b, 0, 1, 1, 0x21, 1, 2, 3, 4, 5, 6, 0x81, 0, 0, 5];
        tagged(talk, &stamp)
    }),
    read("PPPoE", pppoe),
    read("MPLS", |talk| carried(0x8847, &labels(talk, &talk.packet))),
    read("pseudowire", |talk| pseudowire_bare(ODD, talk)),
    read("pseudowire, 4...", |talk| pseudowire_bare(FOURS, talk)),
    read("pseudowire, 6...", |talk| pseudowire_bare(SIXES, talk)),
    read("pseudowire, as IPv4", |talk| pseudowire_bare(AS_IPV4, talk)),
    read("pseudowire, as IPv6", |talk| pseudowire_bare(AS_IPV6, talk)),
    read("pseudowire, 0...", |talk| pseudowire_bare(ZEROS, talk)),
    read("pseudowire with control word", |talk| {
        pseudowire_word(ODD, talk)
    }),
    read("pseudowire with control word, 4...", |talk| {
        pseudowire_word(FOURS, talk)
    }),
    read("pseudowire with control word, 6...", |talk| {
        pseudowire_word(SIXES, talk)
    }),
    read("pseudowire with control word, 0...", |talk| {
        pseudowire_word(ZEROS, talk)
    }),
    read("pseudowire of PPPoE", |talk| {
        carried(0x8847, &labels(talk, &pppoe(talk)))
    }),
    read("pseudowire of tagged frames", |talk| {
        let frame = tagged(talk, &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6]);
        carried(0x8847, &labels(talk, &frame))
    }),
    read("NSH", |talk| {
        carried(0x894f, &service(6, next(talk), &talk.packet))
    }),
    read("NSH of frames", |talk| {
        carried(0x894f, &service(2, 3, &frame_of(SIXES, talk)))
    }),
    read("IP in IP", |talk| {
        in_ip(talk, if next(talk) == 1 { 4 } else { 41 }, &talk.packet)
    }),
    read("segment routing", |talk| {
        in_segment(talk, if next(talk) == 1 { 4 } else { 41 }, &talk.packet)
    }),
    read("segment routing of frames", |talk| {
        in_segment(talk, 143, &frame(talk))
    }),
    read("MPLS in IP", |talk| {
        in_ip(talk, 137, &labels(talk, &talk.packet))
    }),
    read("GRE", |talk| {
        let [high, low] = ip_type(talk).to_be_bytes();
        in_gre(talk, &[0x20, 0, high, low, 0, 0, 0, 9], &talk.packet)
    }),
    read("GRE of frames", |talk| {
        in_gre(talk, &[0, 0, 0x65, 0x58], &frame(talk))
    }),
    read("GRE of a pseudowire", |talk| {
        in_gre(
            talk,
            &[0, 0, 0x88, 0x47],
            &labels(talk, &frame_of(SIXES, talk)),
        )
    }),
    read("ERSPAN I", |talk| {
        in_gre(talk, &[0, 0, 0x88, 0xbe], &frame(talk))
    }),
    read("ERSPAN II, time tags in one direction", half_time_tagged),
    read("ERSPAN III", |talk| {
        let header = [
            0x10, 0, 0x22, 0xeb, 0, 0, 0, 1, 0x20, 1, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        in_gre(talk, &header, &tagged(talk, &[0x81, 0, 0, 5]))
    }),
    read("VXLAN", |talk| {
        in_udp(talk, 4789, &[VXLAN, &frame(talk)].concat())
    }),
    read("VXLAN of a pseudowire", |talk| {
        in_udp(talk, 4789, &[VXLAN, &pseudowire_bare(FOURS, talk)].concat())
    }),
    read("VXLAN-GPE", |talk| {
        let header = [0x0c, 0, 0, next(talk), 0, 0, 42, 0];
        in_udp(talk, 4790, &[&header[..], &talk.packet].concat())
    }),
    read("VXLAN-GPE of frames", |talk| {
        in_udp(
            talk,
            4790,
            &[&[0x0c, 0, 0, 3, 0, 0, 42, 0][..], &frame(talk)].concat(),
        )
    }),
    read("VXLAN-GPE of NSH", |talk| {
        let nsh = service(6, 3, &frame_of(FOURS, talk));
        in_udp(
            talk,
            4790,
            &[&[0x0c, 0, 0, 4, 0, 0, 42, 0][..], &nsh].concat(),
        )
    }),
    read("Geneve", |talk| {
        let header = [1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 0];
        in_udp(talk, 6081, &[&header[..], &frame(talk)].concat())
    }),
    read("GTP-U", |talk| gtp(GTP, &talk.packet, talk)),
    read("GTP-U of 5G", |talk| gtp(GTP_5G, &talk.packet, talk)),
    read("GTP-U of 5G, frames, 4...", |talk| {
        gtp(GTP_5G, &frame_of(FOURS, talk), talk)
    }),
    read("GTP-U of 5G, frames, 6...", |talk| {
        gtp(GTP_5G, &frame_of(SIXES, talk), talk)
    }),
    read("TZSP", |talk| tzsp(&[1, 0, 0, 1, 1], &frame(talk), talk)),
    read("TZSP with fields", |talk| {
        tzsp(
            &[1, 0, 0, 1, 10, 1, 200, 0, 41, 2, 0, 0, 1],
            &frame(talk),
            talk,
        )
    }),
    read("CAPWAP", |talk| {
        capwap(&[0, 0x10, 2, 0, 0, 0, 0, 0], &frame(talk), talk)
    }),
    read("L2TP version 2", |talk| {
        l2tp(&[0, 2, 0, 5, 0, 9], &in_ppp(&[0xff, 3], talk), talk)
    }),
    read("L2TP version 2, all fields, short PPP", |talk| {
        let inside = [&[ppp(talk)][..], &talk.packet].concat();
        l2tp(&[0x48, 2, 0, 0, 0, 5, 0, 9, 0, 1, 0, 1], &inside, talk)
    }),
    read("L2TP version 3", |talk| {
        l2tp(&[0, 3, 0, 0, 0, 0, 0, 7], &frame_of(SIXES, talk), talk)
    }),
    read("L2TP version 3 over IP, with sublayer", |talk| {
        in_ip(
            talk,
            115,
            &[&[0, 0, 0, 7, 0, 0, 0, 0][..], &frame(talk)].concat(),
        )
    }),
    unread("two tunnels in each other", |talk| {
        let one = in_udp(talk, 4789, &[VXLAN, &frame(talk)].concat());
        in_gre(talk, &[0, 0, 0x65, 0x58], &one)
    }),
    unread("more than six labels", |talk| {
        let more = [0, 6, 0x40, 64].repeat(5);
        carried(0x8847, &[&more, &labels(talk, &talk.packet)[..]].concat())
    }),
    unread("a pseudowire of MPLS", |talk| {
        let frame = carried(0x8847, &labels(talk, &talk.packet));
        carried(0x8847, &labels(talk, &frame))
    }),
    unread("NSH of more than 24 bytes", |talk| {
        carried(0x894f, &service(7, next(talk), &talk.packet))
    }),
    unread("two makers' tags", |talk| {
        let tags = [0x89, 0x26, 0x80, 1, 0, 2, 0x89, 0x88, 1, 2, 3, 4, 5, 6];
        in_gre(talk, &[0, 0, 0x65, 0x58], &tagged(talk, &tags))
    }),
    unread("Geneve of MPLS", |talk| {
        let header = [0, 0, 0x88, 0x47, 0, 0, 42, 0];
        in_udp(
            talk,
            6081,
            &[&header[..], &labels(talk, &talk.packet)].concat(),
        )
    }),
    unread("MPLS in UDP", |talk| {
        in_udp(talk, 6635, &labels(talk, &talk.packet))
    }),
    unread("LISP", |talk| {
        let header = [0x80, 0, 0, 1, 0, 0, 0, 0];
        in_udp(talk, 4341, &[&header[..], &talk.packet].concat())
    }),
    unread("EtherIP", |talk| {
        in_ip(talk, 97, &[&[0x30, 0][..], &frame(talk)].concat())
    }),
    unread("802.1ah", |talk| {
        carried(0x88e7, &[&[0, 0, 0, 7][..], &frame(talk)].concat())
    }),
    unread("TZSP of 802.11", |talk| {
        tzsp(&[1, 0, 0, 18, 1], &wireless(talk), talk)
    }),
    unread("CAPWAP of 802.11", |talk| {
        capwap(&[0, 0x10, 3, 0, 0, 0, 0, 0], &wireless(talk), talk)
    }),
    unread("CAPWAP under DTLS", |talk| {
        capwap(&[1, 0, 0, 0], &frame(talk), talk)
    }),
    unread("CAPWAP's own fragments", |talk| {
        capwap(&[0, 0x10, 2, 0x80, 0, 0, 0, 0], &frame(talk), talk)
    }),
    unread("L2TP version 2 with an offset", |talk| {
        l2tp(&[2, 2, 0, 5, 0, 9, 0, 0], &in_ppp(&[0xff, 3], talk), talk)
    }),
    unread("L2TP version 3 with a cookie", |talk| {
        let header = [0, 3, 0, 0, 0, 0, 0, 7, 0xc0, 0x0c, 0x1e, 0x99];
        l2tp(&header, &frame(talk), talk)
    }),
    unread("PPTP", |talk| {
        in_gre(
            talk,
            &[0x20, 1, 0x88, 0x0b, 0, 0, 0, 9],
            &in_ppp(&[0xff, 3], talk),
        )
    }),
    unread("ESP", |talk| {
        in_ip(
            talk,
            50,
            &[&[0, 0, 0, 7, 0, 0, 0, 1][..], &talk.packet].concat(),
        )
    }),
];
