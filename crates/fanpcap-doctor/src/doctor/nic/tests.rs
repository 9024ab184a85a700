//! Made-up drivers: each problem is found, and nothing where there is no problem.

use super::*;

/// A NIC with four queues on node 0, as reported by ixgbe. It carries the default route, so
/// `fanpcap tune` has no plan for it.
const FACTS: &str = "\
device eth0
driver ixgbe
kernel 6.1
up
default-route
node 0
channels rx=0,tx=0,other=1,combined=4 rx=0,tx=0,other=1,combined=8
rings 512 512 4096 4096
interrupt 24 eth0-TxRx-0 0-3 0
interrupt 25 eth0-TxRx-1 0-3 1
value feature.rx-gro off
value feature.rx-lro off
value feature.rx-gro-hw off
value feature.rx-vlan-hw-parse on
value key 000102030405
value transform none
fixed rx-gro-hw
cpu 0 0 0
cpu 1 1 0
cpu 2 2 1
cpu 3 3 1
allowed 0-3
";

fn nic() -> Nic {
    Nic {
        facts: Facts::parse(FACTS).unwrap(),
        ..Nic::default()
    }
}

/// A NIC for which `fanpcap tune` has a plan.
fn tunable() -> Nic {
    let mut nic = nic();
    nic.facts.has_default_route = false;
    nic
}

fn set(nic: &mut Nic, knob: impl Into<Knob>, value: &str) {
    nic.facts.values.insert(knob.into(), value.to_owned());
}

fn group(mode: &str, cpus: &[usize]) -> Group {
    let member = Member {
        pid: Some(77),
        program: "tcpdump".to_owned(),
        cpus: cpus.to_vec(),
        ..Member::default()
    };
    Group {
        number: 5,
        mode: mode.to_owned(),
        members: vec![member],
        ..Group::default()
    }
}

fn found(nic: &Nic, group: &Group, change: impl FnOnce(&mut Use<'_>)) -> Vec<Finding> {
    found_beside(None, nic, group, change)
}

/// The findings for a veth with this peer.
fn found_beside(
    peer: Option<&Link>,
    nic: &Nic,
    group: &Group,
    change: impl FnOnce(&mut Use<'_>),
) -> Vec<Finding> {
    let link = Link {
        name: "eth0".to_owned(),
        hardware: ARPHRD_ETHER,
        ..Link::default()
    };
    let groups = [group];
    let mut used = Use {
        link: &link,
        peer,
        groups: &groups,
        is_on_xdp: false,
        may_steal: false,
        is_stolen: false,
        captures_sent: false,
        kernel: (6, 1),
        irqbalance: None,
        cpus: &[0, 1, 2, 3],
    };
    change(&mut used);
    nic.findings(&used)
}

fn names(nic: &Nic, group: &Group) -> Vec<(&'static str, String)> {
    let found = found(nic, group, |_| {});
    found.into_iter().map(|it| (it.name, it.fix)).collect()
}

#[test]
fn a_nic_that_fits_has_no_findings() {
    assert!(names(&nic(), &group("flow", &[0])).is_empty());
    assert!(names(&Nic::default(), &group("cpu", &[3])).is_empty());
}

#[test]
fn what_the_host_sends_in_long_packets_is_found_where_xdp_captures_it() {
    let mut nic = nic();
    nic.cut = Some("ip link set br0 gso_max_segs 1".to_owned());
    let group = group("flow", &[0]);
    let found_by = |nic: &Nic, captures_sent: bool| {
        let change = |it: &mut Use<'_>| {
            (it.is_on_xdp, it.captures_sent, it.kernel) = (true, captures_sent, (6, 18));
        };
        let found = found(nic, &group, change).into_iter();
        found.map(|it| (it.name, it.fix)).collect::<Vec<_>>()
    };
    let expected = [("unsegmented", "ip link set br0 gso_max_segs 1".to_owned())];
    assert_eq!(found_by(&nic, true), expected);
    // `steal` and `outgoing = no`: the engine captures no packet that the host sends.
    assert!(found_by(&nic, false).is_empty());
    nic.cut = None;
    assert!(found_by(&nic, true).is_empty());
}

#[test]
fn merged_segments_are_found_where_the_driver_gives_a_choice() {
    let mut nic = nic();
    for name in ["rx-gro", "rx-lro", "rx-gro-hw"] {
        set(&mut nic, feature(name), "on");
    }
    let expected = (
        "merged-frames",
        "ethtool -K eth0 lro off gro off".to_owned(),
    );
    assert_eq!(
        names(&nic, &group("flow", &[])),
        std::slice::from_ref(&expected)
    );
    // The kernel merges segments only after the XDP engine has captured them.
    let on_xdp = found(&nic, &group("flow", &[]), |it| {
        (it.is_on_xdp, it.kernel) = (true, (6, 16));
    });
    assert_eq!(on_xdp[0].fix, "ethtool -K eth0 lro off");
    let mut running = group("flow on xdp", &[]);
    running.members[0].is_on_engine = true;
    assert_eq!(names(&nic, &running)[0].1, "ethtool -K eth0 lro off");
    running.members.push(Member::default());
    assert_eq!(names(&nic, &running)[0].1, expected.1);
    nic.facts.has_default_route = false;
    let tuned = names(&nic, &group("flow", &[])).remove(0).1;
    assert_eq!(
        tuned,
        "fanpcap tune eth0 --apply    # this alone: ethtool -K eth0 lro off gro off"
    );
    nic.facts.has_address = true;
    let tuned = names(&nic, &group("flow", &[])).remove(0).1;
    assert!(
        tuned.starts_with("fanpcap tune eth0 --apply --monitor "),
        "{tuned}"
    );
}

#[test]
fn tags_beside_frames_are_found_before_linux_6_16() {
    let mut nic = nic();
    let ask = |nic: &Nic, kernel, peer: Option<&Link>| {
        found_beside(peer, nic, &group("flow", &[]), |it| {
            (it.is_on_xdp, it.kernel) = (true, kernel);
        })
    };
    let refused = ask(&nic, (6, 15), None);
    assert_eq!(
        (refused[0].name, refused[0].effect),
        ("tags-beside-frames", Effect::Costs)
    );
    assert_eq!(refused[0].fix, "ethtool -K eth0 rxvlan off");
    assert!(ask(&nic, (6, 16), None).is_empty());
    nic.peers = vec![Feature {
        name: "tx-vlan-hw-insert".to_owned(),
        is_on: true,
        is_fixed: false,
    }];
    let peer = Link {
        name: "eth1".to_owned(),
        ..Link::default()
    };
    let lost = ask(&nic, (6, 1), Some(&peer));
    assert_eq!(
        (lost[0].effect, lost[0].fix.as_str()),
        (Effect::Distorts, "ethtool -K eth1 txvlan off")
    );
}

#[test]
fn an_asymmetric_hash_is_found_where_the_queue_decides() {
    let mut nic = nic();
    for mode in ["cpu", "qm+rollover"] {
        let expected = (
            "asymmetric-rss",
            "ethtool -X eth0 hkey 6D:5A:6D:5A:6D:5A".to_owned(),
        );
        assert_eq!(names(&nic, &group(mode, &[])), [expected]);
    }
    assert!(names(&nic, &group("hash", &[])).is_empty());
    let tuned = names(&tunable(), &group("cpu", &[])).remove(0).1;
    assert!(
        tuned.starts_with("fanpcap tune eth0 --apply    # "),
        "{tuned}"
    );
    set(&mut nic, Setting::Transform, "symmetric-xor");
    assert!(names(&nic, &group("cpu", &[])).is_empty());
    set(&mut nic, Setting::Transform, "none");
    set(&mut nic, Setting::Key, &"6d5a".repeat(20));
    assert!(names(&nic, &group("cpu", &[])).is_empty());
    // The check compares words of 16 bits, not digits.
    set(&mut nic, Setting::Key, &"6d".repeat(20));
    assert!(names(&nic, &group("cpu", &[])).is_empty());
    set(&mut nic, Setting::Key, &"6d5a01".repeat(10));
    assert_eq!(names(&nic, &group("cpu", &[])).len(), 1);
    // There is no finding for a driver that does not show its key.
    nic.facts.values.remove(&Setting::Key.into());
    assert!(names(&nic, &group("cpu", &[])).is_empty());
}

#[test]
fn readers_in_the_wrong_place_are_found() {
    let mut nic = nic();
    let expected = ("other-node", "taskset -acp 0-1 77".to_owned());
    assert_eq!(names(&nic, &group("flow", &[2])), [expected]);
    nic.pollers = vec![vec![0], vec![1]];
    let expected = ("polled-on-members-cpu", "taskset -acp 2 77".to_owned());
    assert_eq!(names(&nic, &group("flow", &[1])), [expected]);
    assert!(names(&nic, &group("flow", &[0, 1])).is_empty());
}

#[test]
fn irqbalance_is_found_where_members_are_bound() {
    let with = |cpus: &[usize]| found(&nic(), &group("flow", cpus), |it| it.irqbalance = Some(&[]));
    let bound = with(&[1]);
    assert_eq!(bound[0].name, "irqbalance");
    assert!(
        bound[0].fix.contains("--banirq=24 --banirq=25"),
        "{bound:?}"
    );
    assert!(with(&[0, 1, 2, 3]).is_empty());
    // An interrupt that irqbalance was asked to leave alone is no finding. `fanpcap tune` makes
    // such requests.
    let ask = |nic: &Nic| found(nic, &group("flow", &[1]), |it| it.irqbalance = Some(&[]));
    let mut nic = tunable();
    set(&mut nic, Setting::Irqbalance, "24");
    let asks = ask(&nic);
    assert!(
        asks[0].fix.starts_with("fanpcap tune eth0 --apply "),
        "{asks:?}"
    );
    // The command that writes irqbalance's options names both interrupts.
    assert!(asks[0].fix.contains("--banirq=24 --banirq=25"), "{asks:?}");
    // A device that serves the host keeps its offloads, so the fix has no --monitor.
    nic.facts.has_address = true;
    assert!(!ask(&nic)[0].fix.contains("--monitor"));
    set(&mut nic, Setting::Irqbalance, "24,25");
    assert!(ask(&nic).is_empty());
}

#[test]
fn what_irqbalances_options_ban_is_left_alone_where_it_does_not_tell() {
    let ask = |banned: &'static [u32]| {
        let group = group("flow", &[1]);
        found(&nic(), &group, |it| it.irqbalance = Some(banned))
    };
    assert_eq!(ask(&[24]).len(), 1);
    assert!(ask(&[24, 25]).is_empty());
}

#[test]
fn earlier_options_of_irqbalance_stay() {
    let scratch = fanpcap_testkit::Scratch::new().unwrap();
    let file = scratch.file("options");
    let add = |interrupts: &[u32]| {
        let fix = ban(interrupts).replace("/etc/default/irqbalance", &file.display().to_string());
        let script = format!("systemctl() {{ echo $*; }}\n{fix}");
        let mut shell = std::process::Command::new("sh");
        let done = shell.args(["-c", &script]).output().unwrap();
        assert_eq!(done.stdout, b"restart irqbalance\n");
        let text = std::fs::read_to_string(&file).unwrap();
        text.lines().last().unwrap().to_owned()
    };
    assert_eq!(add(&[24]), "IRQBALANCE_ARGS=\" --banirq=24\"");
    std::fs::write(
        &file,
        "#IRQBALANCE_ARGS=\nIRQBALANCE_ARGS=\"--powerthresh=2\"\n",
    )
    .unwrap();
    add(&[24, 25]);
    let both = "IRQBALANCE_ARGS=\"--powerthresh=2 --banirq=24 --banirq=25 --banirq=41\"";
    assert_eq!(add(&[41]), both);
}

#[test]
fn more_room_is_a_longer_ring_or_one_more_queue() {
    let mut nic = nic();
    let room = |nic: &Nic| nic.more_room("eth0").unwrap_or_default();
    assert_eq!(room(&nic), "ethtool -G eth0 rx 4096");
    let mut drops = tunable();
    drops.facts.missed = 9;
    let tuned = "fanpcap tune eth0 --apply    # this alone: ethtool -G eth0 rx 4096";
    assert_eq!(room(&drops), tuned);
    nic.facts.rings.as_mut().unwrap().rx = 4096;
    assert_eq!(room(&nic), "ethtool -L eth0 combined 5");
    nic.facts.channels.as_mut().unwrap().combined = 8;
    assert_eq!(room(&nic), "");
}

#[test]
fn devices_that_the_engine_on_xdp_can_t_have_are_found() {
    let ask = |change: &dyn Fn(&mut Link), kernel| {
        let mut link = Link {
            hardware: ARPHRD_ETHER,
            ..Link::default()
        };
        change(&mut link);
        let used = Use {
            link: &link,
            peer: None,
            groups: &[],
            is_on_xdp: true,
            may_steal: false,
            is_stolen: false,
            captures_sent: false,
            kernel,
            irqbalance: None,
            cpus: &[],
        };
        no_xdp(&used).map(|it| it.name)
    };
    assert_eq!(ask(&|_| {}, (6, 1)), None);
    assert_eq!(ask(&|_| {}, (0, 0)), None, "the kernel is not known");
    assert_eq!(ask(&|_| {}, (5, 10)), Some("no-xdp"));
    assert_eq!(
        ask(&|it| it.kind = "bridge".to_owned(), (6, 1)),
        Some("no-xdp")
    );
    assert_eq!(ask(&|it| it.flags = IFF_LOOPBACK, (6, 1)), Some("no-xdp"));
    assert_eq!(ask(&|it| it.hardware = 801, (6, 1)), Some("no-xdp"));
}

#[test]
fn a_device_that_is_stolen_from_a_host_that_uses_it_is_found() {
    let found = |host_use, may_steal, is_stolen| {
        let nic = Nic {
            host_use,
            ..Nic::default()
        };
        let link = Link::default();
        let used = Use {
            link: &link,
            peer: None,
            groups: &[],
            is_on_xdp: true,
            may_steal,
            is_stolen,
            captures_sent: false,
            kernel: (6, 16),
            irqbalance: None,
            cpus: &[],
        };
        nic.stolen(&used).map(|it| (it.name, it.effect))
    };
    let used = Some("it has an IP address");
    assert_eq!(
        found(used, true, false),
        Some(("stolen-from-host", Effect::Refuses))
    );
    for may_steal in [false, true] {
        assert_eq!(
            found(used, may_steal, true),
            Some(("stolen-from-host", Effect::Loses))
        );
    }
    assert_eq!(found(None, true, true), None);
    assert_eq!(found(used, false, false), None);
}
