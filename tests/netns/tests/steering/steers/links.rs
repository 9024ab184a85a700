//! Steering by Ethernet: addresses, tags, bytes at an offset.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::{PORTS, arrives, between4, each, leaves, mac, packet4, remote, steered};
use crate::frame::{Frame, Packet, SERVER, turned};

#[test]
#[ignore = "needs root: run by make test"]
fn links_go_by_both_ethernet_addresses() -> Result<()> {
    let frames = each(|n| {
        let key = Some(n.into());
        let ends = (mac(n), SERVER);
        vec![
            (Frame::arriving(packet4(n, 1, PORTS).between(ends)), key),
            (
                Frame::leaving(packet4(n, 2, PORTS).between(turned(ends))),
                key,
            ),
            (
                Frame::arriving(Packet::other(0x88b5, &[n; 50]).between(ends)),
                key,
            ),
        ]
    });
    steered("steer_link", &frames).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn local_links_go_by_the_address_that_is_not_the_gateways() -> Result<()> {
    let gateway = [0x4c, 0x60, 0xde, 0x86, 0x55, 0x46];
    let frames = each(|n| {
        let key = Some(n.into());
        let near = Some(1000 + u64::from(n));
        vec![
            (
                Frame::arriving(packet4(n, 1, PORTS).between((gateway, mac(n)))),
                key,
            ),
            (
                Frame::leaving(packet4(n, 2, PORTS).between((mac(n), gateway))),
                key,
            ),
            // Neither end is the gateway, so the selector differs from that of frames to and from
            // the gateway.
            (
                Frame::arriving(packet4(n, 3, PORTS).between((mac(n), SERVER))),
                near,
            ),
            (
                Frame::leaving(packet4(n, 4, PORTS).between((SERVER, mac(n)))),
                near,
            ),
        ]
    });
    steered("steer_local_link \"4c:60:de:86:55:46\"", &frames).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn vlans_go_by_the_outermost_tag() -> Result<()> {
    let frames = each(|n| {
        let vlan = 100 + u16::from(n);
        let key = Some(vlan.into());
        let inner = packet4(n, 3, PORTS).tagged(0x8100, 7);
        vec![
            (arrives(packet4(n, 1, PORTS).tagged(0x8100, vlan)), key),
            (leaves(packet4(n, 2, PORTS).tagged(0x8100, vlan)), key),
            (arrives(inner.tagged(0x88a8, vlan)), key),
            (arrives(packet4(n, 4, PORTS)), None),
        ]
    });
    steered("steer_vlan", &frames).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn fields_go_by_bytes_of_the_frame() -> Result<()> {
    // The offset is that of IPv4's destination, in a frame without tags.
    let frames = each(|n| {
        let far = Ipv4Addr::new(203, 0, 113, n);
        let short = Packet::other(0x88b5, &[n; 18]);
        vec![
            (arrives(between4(remote(n, 1), far)), Some(n.into())),
            (leaves(between4(remote(n, 2), far)), Some(n.into())),
            // The frame ends within the field.
            (arrives(short), None),
        ]
    });
    steered("steer_field 30 4", &frames).map(drop)
}

#[test]
#[ignore = "needs root: run by make test"]
fn symmetric_fields_may_change_places() -> Result<()> {
    let frames = each(|n| {
        let far = Ipv4Addr::new(203, 0, 113, n);
        let near = remote(n, 1);
        vec![
            (arrives(between4(near, far)), Some(n.into())),
            (leaves(between4(far, near)), Some(n.into())),
        ]
    });
    steered("steer_field_symmetric 26 30 4", &frames).map(drop)
}
