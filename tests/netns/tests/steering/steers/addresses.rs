//! Steering by IP: the addresses of both ends or the local address, ports, keys.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};

use super::{
    Keyed, PORTS, apart, arrives, back4, between4, each, echo4, leaves, outcome_of, packet4,
    packet6, remote, steered, with_udp,
};
use crate::frame::{Packet, turned};

#[test]
#[ignore = "needs root: run by make test"]
fn p2p_goes_by_addresses_whatever_the_ports() -> Result<()> {
    let frames = each(|n| {
        let key = Some(n.into());
        let port = 1000 + u16::from(n);
        vec![
            (arrives(packet4(n, 1, (port, 80))), key),
            (arrives(packet4(n, 1, (port, 443))), key),
            (leaves(back4(n, 1, (80, port))), key),
            (arrives(packet6(n, (port, 80))), Some(1000 + u64::from(n))),
            (arrives(packet6(n, (port, 81))), Some(1000 + u64::from(n))),
            (arrives(Packet::other(0x0806, &[n; 28])), None),
        ]
    });
    steered("main = steer_p2p", &frames).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn local_addresses_go_by_the_local_side() -> Result<()> {
    let frames = each(|n| {
        let local = Ipv4Addr::new(192, 168, 1, n);
        let key = Some(n.into());
        let both = Some(1000 + u64::from(n));
        let neighbour = Ipv4Addr::new(192, 168, 1, 200);
        vec![
            (arrives(between4(local, remote(n, 1))), key),
            (leaves(between4(remote(n, 2), local)), key),
            (arrives(between4(neighbour, local)), both),
            (arrives(between4(local, neighbour)), both),
            (arrives(between4(remote(n, 3), remote(n, 4))), None),
            (arrives(packet6(n, PORTS)), None),
        ]
    });
    steered("steer_local_ip \"192.168.1.0/24\"", &frames).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn local_nets_go_by_the_local_sides_network() -> Result<()> {
    let frames = each(|n| {
        let host = |last| Ipv4Addr::new(192, 168, n, last);
        let key = Some(n.into());
        vec![
            (arrives(between4(host(1), remote(n, 1))), key),
            (arrives(between4(remote(n, 2), host(2))), key),
            (leaves(between4(host(250), remote(n, 3))), key),
            (arrives(between4(remote(n, 3), remote(n, 4))), None),
        ]
    });
    steered("steer_local_net \"192.168.0.0\" 16 24", &frames).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn keys_tell_source_and_destination_apart() -> Result<()> {
    let frames = each(|n| {
        let key = u64::from(n);
        let ports = (1000 + u16::from(n), 80);
        let tagged = packet4(n, 1, ports).tagged(0x8100, 5);
        vec![
            (arrives(packet4(n, 1, ports)), Some(key)),
            (arrives(tagged), Some(key)),
            (leaves(back4(n, 1, turned(ports))), Some(1000 + key)),
            (arrives(with_udp(n, ports)), Some(2000 + key)),
            (arrives(packet6(n, ports)), Some(3000 + key)),
            // The packet has no ports, so it has no key and reaches no member.
            (arrives(echo4(n)), None),
        ]
    });
    let outcome = steered("steer_key key_5tuple", &frames)?;
    ensure!(
        apart(&frames, &outcome, 1000) > 0,
        "both directions always go together"
    );
    let by_source: Vec<Keyed> = each(|n| {
        vec![
            (arrives(packet4(n, 1, (1, 2))), Some(n.into())),
            (
                arrives(between4(remote(n, 1), remote(n, 50))),
                Some(n.into()),
            ),
        ]
    });
    steered("steer_key \"ip_src\"", &by_source).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_tuples_differ_in_what_they_tell_apart() -> Result<()> {
    let frames = each(|n| {
        let ports = (1000 + u16::from(n), 80);
        let key = u64::from(n);
        vec![
            (arrives(packet4(n, 1, ports)), Some(key)),
            (leaves(back4(n, 1, turned(ports))), Some(key)),
            (
                arrives(packet4(n, 1, ports).tagged(0x8100, 5)),
                Some(1000 + key),
            ),
            (arrives(with_udp(n, ports)), Some(2000 + key)),
        ]
    });
    // For each program: whether it distinguishes flows that differ only by a tag, and whether it
    // distinguishes TCP and UDP flows that have the same addresses and ports.
    for (program, by_tag, by_protocol) in [
        ("main = steer_flow", false, false),
        ("steer_flow_5_tuple", false, true),
        ("steer_flow_6_tuple", true, true),
    ] {
        let outcome = outcome_of(program, &frames)?;
        outcome.ensure_all_came()?;
        let told = [
            apart(&frames, &outcome, 1000) > 0,
            apart(&frames, &outcome, 2000) > 0,
        ];
        ensure!(
            told == [by_tag, by_protocol],
            "{program}: tag and protocol tell apart: {told:?}"
        );
    }
    steered("steer_flow_6_tuple", &frames).map(drop)
}
