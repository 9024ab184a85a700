//! The activation of a handle on the XDP engine.

use super::fake::{World, tcpdump};
use fanpcap::activate::activate;
use fanpcap::fanout::fanout;
use fanpcap::filter::set_filter;
use fanpcap::handle::{ERROR, Life, Member, PERM_DENIED, System, WARNING};
use fanpcap::several;
use fanpcap_engine::Refusal;
use fanpcap_group::join::{EngineError, JoinError};
use fanpcap_linux::packet::ETH_P_ALL;

fn no_memory() -> JoinError {
    let refusal = Refusal::new("the rings: out of memory", "xdp-memory");
    EngineError::from(refusal).into()
}

#[test]
fn packet_sockets_stand_in_for_the_engine_and_the_application_is_told_why() {
    let world = World::default();
    let p = world.open("xdp:lo", Some("caplen = 1500\n"));
    p.change(|state| state.refused_by_engine = Some(no_memory));
    assert_eq!(activate(p), WARNING);
    let text =
        "packet sockets are read, not the engine xdp: the rings: out of memory (set by xdp:lo)";
    assert_eq!(p.change(|state| state.error.clone()), text);
    let calls = [
        "0 leave xdp",
        "0 snaplen 1500",
        "0 buffer 8388608",
        "0 activate",
        "0 take over",
        "0 truncate",
    ];
    assert_eq!(world.calls(), calls);
}

#[test]
fn what_is_no_network_interface_is_told_to_be_libpcaps() {
    let world = World::default();
    let p = world.open("xdp:nflog", Some(""));
    p.change(|state| {
        state.refused_by_engine = Some(no_memory);
        state.is_stranger = true;
    });
    assert_eq!(activate(p), WARNING);
    let text = "nflog is no network interface: libpcap reads it, not the engine xdp (set by \
                xdp:nflog)";
    assert_eq!(p.error(), text);
}

#[test]
fn a_member_on_packet_sockets_has_its_mode() {
    let config = "driver@fx0 = xdp\ngroup = 7\nfanout = lb\n";
    let world = World::default();
    let p = world.open("fx0", Some(config));
    p.change(|state| state.refused_by_engine = Some(no_memory));
    assert_eq!(activate(p), WARNING);
    p.change(|state| {
        assert_eq!(state.joined_as.as_deref(), Some("lb"));
        assert!(
            state
                .error
                .ends_with("out of memory (set by /etc/pcap.conf:1)")
        );
    });
}

#[test]
fn a_handle_that_packet_sockets_can_not_serve_either_fails() {
    let world = World::default();
    let p = world.open("xdp:fx0", Some(""));
    p.change(|state| {
        state.refused_by_engine = Some(no_memory);
        state.activate = (ERROR, "said by the library");
    });
    assert_eq!(activate(p), ERROR);
    assert_eq!(p.change(|state| state.error.clone()), "said by the library");
}

const ON_XDP: [&str; 6] = [
    "0 buffer 2097152",
    "0 protocol 6",
    "0 activate",
    "0 join",
    "0 take over on xdp",
    "0 publish",
];

#[test]
fn a_handle_on_the_engine_has_a_silent_socket_and_a_group_of_its_own() {
    let world = World::default();
    let p = world.open("xdp:fx0", Some(""));
    p.note(|notes| notes.buffer_size = Some(1 << 27));
    assert_eq!(activate(p), 0);
    assert_eq!(world.calls(), ON_XDP);
    let joined = p.change(|state| state.joined_as.clone());
    let expected = "the steering program 'main = steer_to 0'";
    assert_eq!(joined.as_deref(), Some(expected));
    assert!(p.notes().on_engine.unwrap().outgoing);
}

#[test]
fn the_silent_socket_receives_where_the_engine_fails_late() {
    let config = "driver@fx0 = xdp\ngroup = 7\nfanout = lb\n";
    for (config, last) in [(config, "join"), ("driver@fx0 = xdp", "bind")] {
        let world = World::default();
        let p = world.open("fx0", Some(config));
        p.change(|state| {
            state.takes = Some(|choice| match choice.is_on_engine() {
                true => Err(no_memory()),
                false => Ok(()),
            });
        });
        assert_eq!(activate(p), WARNING);
        let text = "packet sockets are read, not the engine xdp: the rings: out of memory (set by ";
        assert!(p.error().starts_with(text), "{}", p.error());
        let calls = world.calls().join(", ");
        let expected = format!("0 take over, 0 {last}, 0 truncate, 0 publish");
        assert!(calls.ends_with(&expected), "{calls}");
        assert_eq!(p.notes().on_engine, None);
    }
}

#[test]
fn what_hinders_packet_sockets_too_is_an_error_and_the_application_may_try_again() {
    let world = World::default();
    let p = world.open("fx0", Some("driver@fx0 = xdp\ngroup = 7\n"));
    p.change(|state| state.refused = Some(|| JoinError::Full(7)));
    assert_eq!(activate(p), ERROR);
    assert!(
        p.error().starts_with("fan-out group 7 is full"),
        "{}",
        p.error()
    );
    p.change(|state| state.refused = None);
    world.calls();
    assert_eq!(activate(p), 0);
    assert_eq!(world.calls(), ON_XDP[3..]);
}

#[test]
fn the_hosts_own_device_is_not_stolen() {
    for (steal, status) in [("yes", ERROR), ("force", 0), ("no", 0)] {
        let world = World::default();
        let config = format!("driver@fx0 = xdp\nsteal@fx0 = {steal}\n");
        let p = world.open("fx0", Some(&config));
        p.change(|state| state.host_use = Some("it has an IP address"));
        assert_eq!(activate(p), status, "{steal}");
    }
}

#[test]
fn each_filter_of_the_engine_has_its_number() {
    let world = World::default();
    let p = world.open("xdp:fx0", Some(""));
    assert_eq!(activate(p), 0);
    for (in_kernel, number) in [(true, Some(1)), (false, None), (true, Some(3))] {
        p.change(|state| state.has_kernel_filter = in_kernel);
        let mut taken = None;
        assert_eq!(set_filter(p, &[], |_| 0, |number| taken = number), 0);
        assert_eq!(taken, number);
    }
}

const DEVICES: &str = "driver@fx0 = xdp\ndriver@fx1 = xdp\n";

#[test]
fn a_handle_on_several_devices_joins_before_its_one_reader_is_made() {
    for (group, join) in [
        (
            "group = 7\nfanout = flow\n",
            ["0 join 0 of 2", "1 join 1 of 2"],
        ),
        ("", ["0 join", "1 join"]),
    ] {
        let world = World::default();
        let p = world.open_several("fx0^fx1", &format!("{DEVICES}{group}"));
        assert_eq!(activate(p), 0);
        let calls = world.calls();
        let at = calls.iter().position(|call| call.contains("join")).unwrap();
        assert_eq!(calls[at..at + 2], join);
        assert_eq!(
            calls[at + 2..],
            [
                "0 take over several",
                "0 truncate",
                "1 truncate",
                "0 publish"
            ]
        );
    }
}

#[test]
fn all_devices_of_a_handle_are_on_the_engine_or_none() {
    let config = "driver@fx0 = xdp\n";
    let world = World::default();
    let p = world.open_several("fx0^fx1", config);
    assert_eq!(activate(p), WARNING);
    assert!(
        p.error().contains("not all devices of the handle"),
        "{}",
        p.error()
    );
    assert!(world.calls().contains(&"1 bind".to_owned()));
    let world = World::default();
    let p = world.open_several("fx0^fx1", DEVICES);
    p.after(1)
        .change(|state| state.refused_by_engine = Some(no_memory));
    assert_eq!(activate(p), WARNING);
    assert!(
        p.error().contains("xdp: fx1: the rings: out of memory"),
        "{}",
        p.error()
    );
    assert_eq!(p.notes().on_engine, None);
    assert!(world.calls().contains(&"0 bind".to_owned()));
}

#[test]
fn a_handle_that_has_its_own_group_joins_no_other() {
    let world = World::default();
    let p = world.open("xdp:fx0", Some(""));
    assert_eq!(activate(p), 0);
    assert!(p.notes().is_alone);
    let refused = fanout(p, 7, Some("flow".to_owned())).unwrap_err();
    assert!(
        refused.contains("call pcap_fanout() before that, or open another handle"),
        "{refused}"
    );
}

#[test]
fn an_application_that_wants_one_protocol_gets_packet_sockets() {
    for (protocol, status) in [(0x0800, WARNING), (ETH_P_ALL, 0)] {
        let world = World::default();
        let p = world.open("xdp:fx0", Some(""));
        p.note(|notes| notes.protocol = Some(protocol));
        assert_eq!(activate(p), status);
    }
}

#[test]
fn a_socket_that_could_not_stand_in_does_so_at_the_next_call() {
    let world = World::default();
    let p = world.open("fx0", Some("driver@fx0 = xdp"));
    p.change(|state| {
        state.takes = Some(|_| Err(no_memory()));
        state.cannot_bind = true;
    });
    assert_eq!(activate(p), ERROR);
    p.change(|state| state.cannot_bind = false);
    world.calls();
    assert!(activate(p) >= 0);
    let calls = world.calls();
    assert!(calls.contains(&"0 bind".to_owned()), "{calls:?}");
    assert_eq!(p.notes().on_engine, None);
}

#[test]
fn a_stranger_in_the_group_of_any_device_is_told() {
    let groups = "group_fx0 = 7\ngroup_fx1 = 8\n";
    for config in [groups.to_owned(), format!("{DEVICES}{groups}")] {
        let world = World::default();
        let p = world.open_several("fx0^fx1", &config);
        let stranger = Some(tcpdump(None));
        p.after(1).change(|state| state.stranger = stranger);
        assert_eq!(activate(p), WARNING);
        let text = "fx1: fan-out group 8 is shared with another program, tcpdump (process 42)";
        assert!(p.error().starts_with(text), "{}", p.error());
    }
}

#[test]
fn a_ring_that_is_smaller_than_was_asked_for_is_told() {
    for (asked, made, told) in [
        ("ring@fx0 = 256M\n", Some(64 << 20), true),
        ("ring@fx0 = 63M\n", Some(64 << 20), false),
        ("", Some(64 << 20), false),
        ("ring@fx0 = 256M\n", None, false),
    ] {
        let world = World::default();
        let p = world.open("fx0", Some(&format!("driver@fx0 = xdp\n{asked}")));
        p.change(|state| state.ring_bytes = made);
        assert_eq!(
            activate(p),
            if told { WARNING } else { 0 },
            "{asked}{made:?}"
        );
        let text = "the ring has 64 MiB, not 256 MiB: the engine xdp makes no larger ring";
        assert_eq!(p.error().starts_with(text), told, "{}", p.error());
    }
}

#[test]
fn new_groups_on_several_devices_are_no_groups_of_the_handles_own() {
    for (asks, is_alone) in [(true, false), (false, true)] {
        let world = World::default();
        let p = world.open_several("fx0^fx1", DEVICES);
        if asks {
            assert_eq!(fanout(p, -1, Some("flow".to_owned())), Ok(()));
        }
        assert_eq!(activate(p), 0);
        let noted = several::all(p).into_iter();
        let noted = noted.map(|part| part.notes().is_alone);
        assert!(noted.eq([is_alone; 2]), "{asks}");
    }
}

#[test]
fn a_handle_that_has_not_joined_yet_may_be_given_a_group() {
    for devices in ["fx0", "fx0^fx1"] {
        let world = World::default();
        let p = match devices {
            "fx0" => world.open(devices, Some(DEVICES)),
            _ => world.open_several(devices, DEVICES),
        };
        p.change(|state| state.refused = Some(|| JoinError::Full(0)));
        assert_eq!(activate(p), ERROR);
        assert!(!p.notes().is_alone);
        p.change(|state| state.refused = None);
        assert_eq!(fanout(p, 5, Some("flow".to_owned())), Ok(()));
        assert_eq!(activate(p), 0);
        let groups = several::all(p).into_iter();
        let mut groups = groups.map(|part| (part.group().unwrap().group, part.notes().is_alone));
        assert!(groups.all(|it| it == (5, false)), "{devices}");
    }
}

#[test]
fn a_plan_that_packet_sockets_can_not_have_leaves_no_engine() {
    let world = World::default();
    let config = "driver@fx0 = xdp\ngroup = 7\nfanout@7 = main = classify 2 >-> steer_flow\n";
    let p = world.open("fx0", Some(config));
    p.change(|state| state.refused = Some(no_memory));
    for _ in 0..2 {
        assert_eq!(activate(p), ERROR);
        assert!(p.error().contains("classes of members"), "{}", p.error());
        assert_eq!(p.notes().on_engine, None);
    }
}

#[test]
fn that_packet_sockets_stand_in_is_told_before_all_else() {
    let config = format!("{DEVICES}group_fx0 = 7\ngroup_fx1 = 8\n");
    for devices in [1, 2] {
        let world = World::default();
        let p = match devices {
            1 => world.open("fx0", Some(&config)),
            _ => world.open_several("fx0^fx1", &config),
        };
        p.change(|state| {
            state.refused_by_engine = Some(no_memory);
            state.stranger = Some(tcpdump(None));
        });
        assert_eq!(activate(p), WARNING);
        let text = "packet sockets are read, not the engine xdp: ";
        assert!(p.error().starts_with(text), "{}", p.error());
    }
}

#[test]
fn who_may_not_capture_is_told_of_the_group_on_any_engine_and_device() {
    let groups = "group_fx0 = 7\ngroup_fx1 = 8\n";
    let on_engine = format!("{groups}{DEVICES}");
    for config in [groups, &on_engine] {
        let world = World::default();
        let one = world.open("fx1", Some(config));
        let several = world.open_several("fx0^fx1", config);
        for (p, last, begins) in [(one, one, ""), (several, several.after(1), "fx1: ")] {
            last.change(|state| state.activate = (PERM_DENIED, "socket: not permitted"));
            assert_eq!(activate(p), PERM_DENIED);
            let text = "socket: not permitted: joining a fan-out group needs CAP_NET_RAW";
            let error = p.error();
            assert!(error.starts_with(&format!("{begins}{text}")), "{error}");
            assert!(error.ends_with("(set by /etc/pcap.conf:2)"), "{error}");
        }
    }
}

#[test]
fn a_handle_whose_reader_was_refused_gets_it_at_the_next_call() {
    let world = World::default();
    let p = world.open_several("fx0^fx1", DEVICES);
    world.is_not_ethernet.set(true);
    assert_eq!((activate(p), p.error().as_str()), (ERROR, "not Ethernet"));
    world.is_not_ethernet.set(false);
    world.calls();
    assert_eq!(activate(p), 0);
    assert_eq!(world.calls()[0], "0 take over several");
    // From now on the system's library says that the handle is activated.
    p.change(|state| state.activate = (-4, "already"));
    world.calls();
    assert_eq!((activate(p), world.calls().len()), (-4, 1));
}
