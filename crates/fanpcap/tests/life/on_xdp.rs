//! The activation of a handle on the engine on XDP.

use super::fake::World;
use fanpcap::activate::activate;
use fanpcap::handle::{ERROR, WARNING};

const LOOPBACK: &str = "lo is a loopback device";

#[test]
fn packet_sockets_stand_in_for_the_engine_and_the_application_is_told_why() {
    let world = World::default();
    let p = world.open("xdp:lo", Some("caplen = 1500\n"));
    p.change(|state| state.refused_on_xdp = Some(LOOPBACK));
    assert_eq!(activate(p), WARNING);
    let text =
        "packet sockets are read, not the engine xdp: lo is a loopback device (set by xdp:lo)";
    assert_eq!(p.change(|state| state.error.clone()), text);
    let calls = [
        "0 snaplen 1500",
        "0 buffer 8388608",
        "0 activate",
        "0 take over",
        "0 truncate",
    ];
    assert_eq!(world.calls(), calls);
}

#[test]
fn a_member_on_packet_sockets_has_its_mode() {
    let config = "driver@fx0 = xdp\ngroup = 7\nfanout = lb\n";
    let world = World::default();
    let p = world.open("fx0", Some(config));
    p.change(|state| state.refused_on_xdp = Some("no"));
    assert_eq!(activate(p), WARNING);
    p.change(|state| {
        assert_eq!(state.joined_as.as_deref(), Some("lb"));
        assert!(state.error.ends_with("no (set by /etc/pcap.conf:1)"));
    });
}

#[test]
fn a_handle_that_packet_sockets_can_not_serve_either_fails() {
    let world = World::default();
    let p = world.open("xdp:fx0", Some(""));
    p.change(|state| {
        state.refused_on_xdp = Some("no");
        state.activate = (ERROR, "said by the library");
    });
    assert_eq!(activate(p), ERROR);
    assert_eq!(p.change(|state| state.error.clone()), "said by the library");
}
