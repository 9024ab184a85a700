//! The activation of a handle whose packets come from a poller.

use super::fake::{ONE_POLLER, World};
use fanpcap::activate::activate;
use fanpcap::fanout::fanout;
use fanpcap::filter::set_filter;
use fanpcap::gone::{NotBack, come_back};
use fanpcap::handle::{ERROR, Life, Member, PERM_DENIED, System, WARNING};
use fanpcap::several;
use fanpcap_config::settings::Group;
use fanpcap_engine::{NO_POLLER, Refusal, SILENT_POLLER};
use fanpcap_group::join::{EngineError, JoinError};
use fanpcap_linux::packet::ETH_P_ALL;

fn no_poller() -> JoinError {
    let text = "no poller serves packet:fx0: start one: fanpcap poller packet:fx0";
    EngineError::from(Refusal::new(text, NO_POLLER)).into()
}

fn silent() -> JoinError {
    let text = "the poller of packet:fx0 does not answer: it is stopped or busy";
    EngineError::from(Refusal::new(text, SILENT_POLLER)).into()
}

fn full() -> JoinError {
    EngineError::from(Refusal::new("the group has 256 members", "poller-refused")).into()
}

/// The calls for a handle with a poller.
const ENTERS: [&str; 6] = [
    "0 buffer 2097152",
    "0 protocol 6",
    "0 activate",
    "0 enter packet",
    "0 take over on xdp",
    "0 publish",
];

#[test]
fn a_handle_enters_a_group_of_the_poller_in_place_of_the_kernels() {
    for config in ["", "group = 7\n", "group = 7\nfanout@7 = flow+weight=3\n"] {
        let world = World::default();
        let p = world.open("packet:fx0", Some(config));
        assert_eq!(activate(p), 0, "{}", p.error());
        assert_eq!(world.calls(), ENTERS);
        let notes = p.notes();
        assert_eq!(notes.is_alone, config.is_empty());
        let asked = notes.on_engine.unwrap();
        assert!(asked.engine.is_polled() && asked.outgoing);
    }
}

#[test]
fn packets_of_the_host_are_left_out_if_the_setting_says_so() {
    let world = World::default();
    let config = "driver@fx0 = afxdp\noutgoing@fx0 = no\n";
    let p = world.open("fx0", Some(config));
    assert_eq!(activate(p), 0);
    assert!(!p.notes().on_engine.unwrap().outgoing);
    assert_eq!(world.calls()[3], "0 enter afxdp");
}

#[test]
fn without_a_poller_the_handle_fails_and_may_be_activated_again() {
    for (device, config, expected) in [
        ("packet:fx0", "group = 7\n", ""),
        ("fx0", "driver@fx0 = packet\n", " (set by /etc/pcap.conf:1)"),
        (
            "fx0",
            "group = 7\ndriver@fx0 = packet\n",
            " (set by /etc/pcap.conf:2)",
        ),
    ] {
        let world = World::default();
        let p = world.open(device, Some(config));
        p.change(|state| state.refused_by_poller = Some(no_poller));
        assert_eq!(activate(p), ERROR);
        assert_eq!(p.error(), format!("{}{expected}", no_poller()));
        assert_eq!(world.calls(), ENTERS[..4], "packet sockets do not stand in");
        p.change(|state| state.refused_by_poller = None);
        assert_eq!(activate(p), 0);
        assert_eq!(world.calls(), ENTERS[3..]);
    }
}

#[test]
fn a_refusal_has_the_setting_of_the_group() {
    let world = World::default();
    let p = world.open("packet:fx0", Some("group = 7\n"));
    p.change(|state| state.refused_by_poller = Some(full));
    assert_eq!(activate(p), ERROR);
    assert_eq!(
        p.error(),
        "the group has 256 members (set by /etc/pcap.conf:1)"
    );
}

#[test]
fn a_missing_privilege_is_not_blamed_on_the_steering_program() {
    for config in ["", "group = 7\nfanout@7 = flow\n"] {
        let world = World::default();
        let p = world.open("packet:fx0", Some(config));
        p.change(|state| state.activate = (PERM_DENIED, "socket: no"));
        assert_eq!(activate(p), PERM_DENIED);
        let text = "socket: no: a handle of a poller needs CAP_NET_RAW or user namespaces";
        assert_eq!(p.error(), text);
    }
}

/// The engine has no poller, and user namespaces do not help.
#[test]
fn a_missing_privilege_of_pf_ring_is_told() {
    let world = World::default();
    let p = world.open("pfring:fx0", Some(""));
    p.change(|state| state.activate = (PERM_DENIED, "socket: no"));
    assert_eq!(activate(p), PERM_DENIED);
    let text = "socket: no: the engine pfring needs CAP_NET_RAW and CAP_NET_ADMIN";
    assert_eq!(p.error(), text);
}

#[test]
fn several_devices_have_pollers_and_groups() {
    let failed = |devices: &str, config: &str| {
        let world = World::default();
        let p = world.open_several(devices, config);
        assert_eq!(activate(p), ERROR);
        assert!(world.calls().is_empty(), "no handle is activated");
        p.error()
    };
    let error = failed("fx0^fx1", "driver@fx1 = packet\n");
    assert!(
        error.starts_with("not all devices of the handle are on"),
        "{error}"
    );
    for config in ["", "group = 7\n", "group_fx0 = 7\ngroup_fx1 = 8\n"] {
        let world = World::default();
        let p = world.open_several("packet:fx0^fx1", config);
        assert_eq!(activate(p), 0, "{}", p.error());
        let calls = world.calls();
        let entered = ["0 enter packet", "1 enter packet", "0 take over several"];
        assert!(calls.join(",").contains(&entered.join(",")), "{calls:?}");
    }
}

/// The groups of one number have to be one, which only one poller can do.
#[test]
fn one_group_on_several_devices_needs_one_poller() {
    let noted = |config: &str| {
        let world = World::default();
        let p = world.open_several("packet:fx0^fx1", config);
        assert_eq!(activate(p), 0, "{}", p.error());
        let notes = several::all(p).into_iter().map(|part| part.notes());
        let notes: Vec<(u32, u64)> = notes.map(|it| (it.whole, it.poller)).collect();
        assert!(notes[0].0 > 0 && notes[0].0 == notes[1].0, "{notes:?}");
        (
            notes[0].0,
            notes
                .into_iter()
                .map(|(_, poller)| poller)
                .collect::<Vec<u64>>(),
        )
    };
    let (first, needed) = noted("group = 7\n");
    assert_eq!(needed, [0, ONE_POLLER]);
    let (second, needed) = noted("group_fx0 = 7\ngroup_fx1 = 8\n");
    assert_eq!(needed, [0, 0], "two groups");
    assert_ne!(first, second, "two handles");
    assert_eq!(noted("").1, [0, 0], "no group");
    let world = World::default();
    let p = world.open("packet:fx0", Some("group = 7\n"));
    assert_eq!(activate(p), 0);
    assert_eq!((p.notes().whole, p.notes().poller), (0, 0), "one device");
}

#[test]
fn what_a_poller_can_not_do_is_an_error() {
    let world = World::default();
    let p = world.open("packet:fx0", Some(""));
    p.note(|notes| notes.protocol = Some(0x0800));
    assert_eq!(activate(p), ERROR);
    assert!(p.error().contains("only one protocol"), "{}", p.error());
    p.note(|notes| notes.protocol = Some(ETH_P_ALL));
    fanout(p, 7, Some("flow+sticky".to_owned())).unwrap();
    assert_eq!(activate(p), 0);
    let joined = p.change(|state| state.joined_as.clone());
    assert_eq!(joined.unwrap(), "flow+sticky");
    let late = fanout(p, 8, None).unwrap_err();
    let expected =
        "pcap_fanout: a handle on the engine packet joins a group only in pcap_activate()";
    assert!(late.starts_with(expected), "{late}");
    let other = fanout(p, 7, Some("main = steer_rrobin".to_owned()));
    assert!(other.is_err());
    fanout(p, 7, None).unwrap();
}

#[test]
fn a_call_after_a_failed_activation_holds_for_the_next_one() {
    let world = World::default();
    let p = world.open("packet:fx0", Some("group = 7\n"));
    p.change(|state| state.refused_by_poller = Some(full));
    assert_eq!(activate(p), ERROR);
    p.change(|state| state.refused_by_poller = None);
    fanout(p, 9, Some("main = steer_rrobin".to_owned())).unwrap();
    assert_eq!(activate(p), 0, "{}", p.error());
    assert_eq!(p.group().unwrap().group, 9);
}

#[test]
fn the_poller_chooses_the_number_of_a_new_group() {
    let world = World::default();
    let p = world.open("packet:fx0", Some("group = 7\n"));
    fanout(p, -1, Some("flow".to_owned())).unwrap();
    assert_eq!(activate(p), 0, "{}", p.error());
    let group = p.group().unwrap().group;
    assert_eq!((group, p.notes().is_alone), (u16::MAX, false));
    fanout(p, group.into(), None).unwrap();
    for other in [7, -1] {
        assert!(fanout(p, other, None).is_err(), "{other}");
    }
}

#[test]
fn a_new_group_keeps_its_number_when_the_poller_is_back() {
    let world = World::default();
    let p = world.open("packet:fx0", Some("gone@fx0 = wait\n"));
    fanout(p, -1, Some("flow".to_owned())).unwrap();
    assert_eq!(activate(p), 0, "{}", p.error());
    let entered = || p.change(|state| state.entered);
    assert_eq!(entered(), Some(Group::New));
    let number = Group::Number(p.group().unwrap().group);
    for round in 0..2 {
        p.change(|state| state.is_gone = true);
        assert!(matches!(come_back(p), Err(NotBack::Left)), "{round}");
        p.change(|state| state.is_gone = false);
        come_back(p).unwrap();
        assert_eq!(entered(), Some(number), "{round}");
    }
}

#[test]
fn each_device_of_a_handle_gets_a_new_group() {
    let world = World::default();
    let p = world.open_several("packet:fx0^fx1", "");
    fanout(p, -1, Some("flow".to_owned())).unwrap();
    assert_eq!(activate(p), 0, "{}", p.error());
    let entered = world.calls().into_iter();
    assert_eq!(entered.filter(|it| it.contains(" enter ")).count(), 2);
}

#[test]
fn a_member_that_asks_for_what_it_has_is_told_so() {
    let world = World::default();
    let p = world.open("packet:fx0", Some(""));
    fanout(p, 7, Some("flow+weight=2".to_owned())).unwrap();
    assert_eq!(activate(p), 0, "{}", p.error());
    let same = ["flow+weight=2", "flow"];
    for has in same {
        fanout(p, 7, Some(has.to_owned())).unwrap();
    }
    fanout(p, 7, None).unwrap();
    for (group, other) in [
        (8, "flow"),
        (7, "main = steer_rrobin"),
        (7, "flow+weight=3"),
    ] {
        assert!(fanout(p, group, Some(other.to_owned())).is_err(), "{other}");
    }
    // A refused call is not recorded.
    fanout(p, 7, Some("flow+weight=2".to_owned())).unwrap();
}

#[test]
fn libpcap_reads_devices_that_no_poller_can_serve() {
    let world = World::default();
    let p = world.open("any", Some("driver@any = packet\n"));
    assert_eq!(activate(p), WARNING, "{}", p.error());
    let text = "packet sockets are read, not the engine packet: a poller serves single devices";
    assert!(p.error().starts_with(text), "{}", p.error());
    assert!(!world.calls().iter().any(|call| call.contains("enter")));
}

#[test]
fn the_reader_runs_the_filter() {
    let world = World::default();
    let p = world.open("packet:fx0", Some(""));
    p.change(|state| state.has_kernel_filter = false);
    assert_eq!(activate(p), 0);
    let mut given = None;
    assert_eq!(set_filter(p, &[], |_| 0, |number| given = Some(number)), 0);
    assert_eq!(given, Some(None));
}

#[test]
fn a_handle_that_waits_goes_on_when_a_poller_is_back() {
    let world = World::default();
    let p = world.open("packet:fx0", Some("gone@fx0 = wait\n"));
    assert_eq!(activate(p), 0, "{}", p.error());
    assert_eq!(world.calls().pop().unwrap(), "0 expect return");
    p.change(|state| state.refused_by_poller = Some(no_poller));
    assert!(matches!(come_back(p), Err(NotBack::NoPoller)));
    p.change(|state| state.refused_by_poller = Some(silent));
    assert!(matches!(come_back(p), Err(NotBack::NoPoller)));
    p.change(|state| state.refused_by_poller = Some(full));
    assert!(matches!(come_back(p), Err(NotBack::Refused(why)) if why.contains("256")));
    p.change(|state| state.refused_by_poller = None);
    world.calls();
    come_back(p).unwrap();
    let calls = [
        "0 let go",
        "0 bind silently",
        "0 enter packet",
        "0 renew",
        "0 truncate",
        "0 publish",
    ];
    assert_eq!(world.calls(), calls);
}
