//! The activation of a handle on one device.

use super::fake::{World, tcpdump};
use fanpcap::activate::activate;
use fanpcap::handle::{ERROR, Life, Member, PERM_DENIED, System, WARNING};
use fanpcap_group::join::JoinError;
use fanpcap_group::record::NoFlow;

const GROUP: Option<&str> = Some("def_group = 7\n");
const DRIVER: Option<&str> = Some("driver@fx0 = tpacket\n");
const JOINED: [&str; 7] = [
    "0 buffer 16777216",
    "0 protocol 6",
    "0 activate",
    "0 take over",
    "0 join",
    "0 truncate",
    "0 publish",
];

#[test]
fn a_plain_handle_is_the_system_librarys() {
    let world = World::default();
    let p = world.open("fx0", None);
    p.change(|state| state.activate = (WARNING, "said by the library"));
    assert_eq!(activate(p), WARNING);
    assert_eq!(world.calls(), ["0 activate"]);
    assert_eq!(p.error(), "said by the library");
}

#[test]
fn wrong_settings_activate_nothing() {
    let world = World::default();
    let p = world.open("fx0", Some("driver@fx0 = tpakcet\n"));
    assert_eq!(activate(p), ERROR);
    assert!(
        p.error().contains("did you mean 'tpacket'"),
        "{}",
        p.error()
    );
    assert!(world.calls().is_empty());
}

#[test]
fn a_handle_that_we_read_gets_a_larger_ring_unless_the_application_asks_for_one() {
    let world = World::default();
    let p = world.open("fx0", DRIVER);
    assert_eq!(activate(p), 0);
    let calls = [
        "0 buffer 8388608",
        "0 activate",
        "0 take over",
        "0 truncate",
    ];
    assert_eq!(world.calls(), calls);
    let world = World::default();
    let p = world.open("fx0", DRIVER);
    p.note(|notes| notes.buffer_size = Some(4096));
    assert_eq!(activate(p), 0);
    assert_eq!(world.calls(), &calls[1..]);
}

#[test]
fn the_settings_ring_replaces_the_applications() {
    for config in ["ring@fx0 = 32M\n", "driver@fx0 = xdp\nring@fx0 = 32M\n"] {
        for asked in [None, Some(4096), Some(1 << 30)] {
            let world = World::default();
            let p = world.open("fx0", Some(config));
            p.note(|notes| notes.buffer_size = asked);
            assert_eq!(activate(p), 0);
            assert_eq!(world.calls()[0], "0 buffer 33554432");
            assert_eq!(p.notes().buffer_size, Some(32 << 20));
        }
    }
}

#[test]
fn the_snapshot_length_is_the_shorter_of_the_applications_and_the_settings() {
    let config = Some("caplen = 96\n");
    for (asked, set) in [(None, 96), (Some(64), 64), (Some(0), 96), (Some(1500), 96)] {
        let world = World::default();
        let p = world.open("fx0", config);
        p.note(|notes| notes.snaplen = asked);
        assert_eq!(activate(p), 0);
        assert_eq!(world.calls()[0], format!("0 snaplen {set}"));
    }
}

#[test]
fn who_asks_by_name_is_told_when_the_systems_library_reads() {
    for (device, status) in [("tpacket:fx0", WARNING), ("fx0", 0)] {
        let world = World::default();
        let p = world.open(device, DRIVER);
        p.change(|state| state.is_served = false);
        assert_eq!(activate(p), status, "{device}");
        let text = "fanpcap can't read this device: the system's libpcap does";
        assert_eq!(p.error() == text, status == WARNING);
    }
}

#[test]
fn a_member_is_activated_silently_and_joins() {
    let world = World::default();
    let p = world.open("fx0", GROUP);
    assert_eq!(activate(p), 0);
    assert_eq!(world.calls(), JOINED);
    assert_eq!(p.group().unwrap().group, 7);
    assert_eq!(world.plans.get(), 1);
}

#[test]
fn a_handle_that_could_not_join_may_try_again() {
    let world = World::default();
    let p = world.open("fx0", GROUP);
    p.change(|state| state.refused = Some(|| JoinError::Full(7)));
    assert_eq!(activate(p), ERROR);
    assert_eq!(world.calls(), &JOINED[..5]);
    assert!(
        p.error().starts_with("fan-out group 7 is full"),
        "{}",
        p.error()
    );
    assert!(p.error().ends_with("(set by /etc/pcap.conf:1)"));
    // The system's library has activated the handle already.
    p.change(|state| state.refused = None);
    assert_eq!(activate(p), 0);
    assert_eq!(world.calls(), JOINED[4..]);
}

#[test]
fn a_handle_that_could_not_be_activated_is_silent_no_more() {
    let world = World::default();
    let p = world.open("fx0", GROUP);
    p.note(|notes| notes.protocol = Some(0x0800));
    p.change(|state| state.activate = (ERROR, "no"));
    assert_eq!(activate(p), ERROR);
    assert_eq!(
        world.calls(),
        &[
            "0 buffer 16777216",
            "0 protocol 6",
            "0 activate",
            "0 protocol 2048"
        ]
    );
    assert_eq!(p.error(), "no");
}

#[test]
fn who_may_not_capture_is_told_of_the_group() {
    let world = World::default();
    let p = world.open("fx0", GROUP);
    p.change(|state| state.activate = (PERM_DENIED, "socket: not permitted"));
    assert_eq!(activate(p), PERM_DENIED);
    let text = p.error();
    assert!(
        text.contains("socket: not permitted") && text.contains("pcap.conf:1"),
        "{text}"
    );
}

#[test]
fn a_group_that_is_shared_with_a_stranger_is_a_warning() {
    let world = World::default();
    let p = world.open("fx0", GROUP);
    p.change(|state| state.stranger = Some(tcpdump(None)));
    assert_eq!(activate(p), WARNING);
    let text = "fan-out group 7 is shared with another program, tcpdump (process 42)";
    assert!(p.error().starts_with(text), "{}", p.error());
}

#[test]
fn the_stranger_that_could_not_load_flow_is_told_with_its_reason() {
    let world = World::default();
    let p = world.open("fx0", GROUP);
    p.change(|state| state.stranger = Some(tcpdump(Some(NoFlow::NotPermitted))));
    assert_eq!(activate(p), WARNING);
    let text = "(process 42), in mode hash, because it has no CAP_BPF for flow: each sees";
    assert!(p.error().contains(text), "{}", p.error());
}

#[test]
fn a_warning_of_the_systems_library_is_passed_on_when_joining_has_none() {
    let world = World::default();
    let p = world.open("fx0", GROUP);
    p.change(|state| state.activate = (WARNING, "no promiscuous mode"));
    assert_eq!(activate(p), WARNING);
    assert_eq!(p.error(), "no promiscuous mode");
}
