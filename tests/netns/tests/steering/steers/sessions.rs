//! Steering by session: media sessions, and sessions of mobile users.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;

use super::{PORTS, arrives, between4, each, leaves, packet4, remote, steered};
use crate::frame::{Ends, ip, turned, udp};

#[test]
#[ignore = "needs root: run by make test"]
fn media_go_by_session() -> Result<()> {
    let frames = each(|n| {
        let session = |plus| (20000 + 2 * u16::from(n) + plus, 30000 + plus);
        let ends = (remote(n, 1).into(), remote(n, 2).into());
        let there = |ports, data: &[u8]| arrives(ip(ends, &udp(ports, data)));
        let back = |ports, data: &[u8]| leaves(ip(turned(ends), &udp(turned(ports), data)));
        let key = Some(n.into());
        vec![
            (there(session(0), &rtp(0x80)), key),
            (back(session(0), &rtp(0x80)), key),
            (there(session(1), &rtcp(200)), key),
            (back(session(1), &rtcp(201)), key),
            // Frames that are no session: another version, another type, and DNS.
            (there(session(0), &rtp(0x40)), None),
            (there(session(1), &rtcp(199)), None),
            (there((20000, 53), &rtp(0x80)), None),
        ]
    });
    steered("steer_rtp", &frames).map(drop)
}

/// An RTP packet whose first byte is `begin`: 0x80 is version 2.
fn rtp(begin: u8) -> [u8; 12] {
    [begin, 8, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]
}

/// A packet of RTCP of this type.
fn rtcp(kind: u8) -> [u8; 8] {
    [0x80, kind, 0, 1, 0, 0, 0, 1]
}

#[test]
#[ignore = "needs root: run by make test"]
fn mobile_users_go_by_their_own_addresses() -> Result<()> {
    let frames = each(|n| {
        let stations: Ends<IpAddr> = (remote(0, 1).into(), remote(0, 2).into());
        let user = Ipv4Addr::new(10, 9, 0, n);
        let up = between4(user, remote(n, 9)).in_gtp(40000 + u16::from(n), 7);
        let down = between4(remote(n, 9), user).in_gtp(50000, 9);
        let control = udp((2123, 2123), &[n; 12]);
        vec![
            (arrives(ip(stations, &up)), Some(n.into())),
            (leaves(ip(turned(stations), &down)), Some(n.into())),
            (arrives(ip(stations, &control)), Some(1000)),
            (arrives(packet4(n, 1, PORTS)), None),
        ]
    });
    steered("steer_gtp", &frames).map(drop)
}
