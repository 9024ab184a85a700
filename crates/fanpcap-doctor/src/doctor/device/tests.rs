//! Made-up devices, one of them with a made-up sysfs.

use super::*;
use fanpcap_linux::netlink::link::XdpProgram;
use fanpcap_nic::facts::Facts;

fn healthy() -> Device {
    Device {
        link: Link {
            index: 7,
            name: "eth0".to_owned(),
            flags: IFF_UP | IFF_LOWER_UP,
            ..Link::default()
        },
        is_shared: true,
        ..Device::default()
    }
}

fn only(device: &Device) -> Finding {
    let mut findings = device.findings();
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

#[test]
fn a_healthy_device_has_no_findings() {
    assert!(healthy().findings().is_empty());
}

#[test]
fn a_device_without_packets_is_found() {
    let mut device = healthy();
    device.link.flags = 0;
    device.link.name = "a;b".to_owned();
    let down = only(&device);
    assert_eq!((down.name, down.effect), ("down", Effect::Loses));
    assert_eq!(down.fix, "ip link set dev 'a;b' up");
    device.link.flags = IFF_UP;
    assert!(only(&device).fix.starts_with("ethtool "));
    device.peer = Some(Link {
        name: "eth1".to_owned(),
        ..Link::default()
    });
    assert_eq!(only(&device).fix, "ip link set dev eth1 up");
    device.link.flags = IFF_UP | IFF_LOOPBACK;
    assert!(device.findings().is_empty());
}

#[test]
fn only_foreign_xdp_programs_are_found() {
    let mut device = healthy();
    device.link.xdp = Some(XdpProgram {
        program: 12,
        mode: xdp_mode::GENERIC,
    });
    // The kernel shows the names of BPF programs only to root. Without a name there is no
    // finding.
    assert!(device.findings().is_empty());
    device.xdp_name = Some("fanpcap_xdp".to_owned());
    assert!(device.findings().is_empty());
    device.xdp_name = Some("cil_xdp_entry".to_owned());
    let found = only(&device);
    assert_eq!((found.name, found.effect), ("foreign-xdp", Effect::Loses));
    assert!(found.what.contains("cil_xdp_entry (id 12)"), "{found:?}");
    assert!(found.fix.starts_with("ip link set dev eth0 xdpgeneric off"));
}

#[test]
fn counters_that_grow_are_found() {
    let before = healthy().link;
    let mut now = before.clone();
    now.counters.rx_missed = 5;
    now.counters.rx_fifo = 2;
    let device = Device::read(&now, &before, &[]);
    assert_eq!(device.missed, 7);
    assert_eq!(only(&device).name, "device-drops");
    let device = Device::read(&now, &now, &[]);
    assert!(device.findings().is_empty());
}

#[test]
fn one_queue_without_rps_is_found_where_members_share() {
    let facts = |text: &str| {
        let cpus = "cpu 0 0 0\ncpu 1 1 0\ncpu 2 2 0\ncpu 3 3 0\nallowed 0-3\nup\n";
        Facts::parse(&(cpus.to_owned() + text)).unwrap()
    };
    let mut device = healthy();
    device.nic.facts = facts("value rps.0\n");
    device.is_shared = false;
    assert!(device.findings().is_empty(), "one member needs one CPU");
    assert!(device.with_a_group().is_some());
    device.is_shared = true;
    let found = only(&device);
    assert_eq!(found.name, "one-receiving-cpu");
    assert_eq!(
        found.fix,
        "fanpcap tune eth0 --apply    # gives this work a CPU without members; or gives it several \
         CPUs: echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus"
    );
    for fits in ["value rps.0 1,3\n", "value rps.0\nvalue rps.1\n", ""] {
        device.nic.facts = facts(fits);
        assert!(device.findings().is_empty(), "{fits}");
    }
    // If the NIC can have more queues, the fix is to add queues.
    let nic = "driver ixgbe\nvalue rps.0\n\
               channels rx=0,tx=0,other=1,combined=1 rx=0,tx=0,other=1,combined=8\n";
    device.nic.facts = facts(nic);
    assert_eq!(only(&device).fix, "fanpcap tune eth0 --apply --queues 2");
    device.nic.facts.has_default_route = true;
    assert!(only(&device).fix.starts_with("echo f > "));
}

#[test]
fn rps_is_no_remedy_on_the_xdp_engine() {
    let facts = |text: &str| {
        let cpus = "cpu 0 0 0\ncpu 1 1 0\nallowed 0-1\nup\n";
        Facts::parse(&(cpus.to_owned() + text)).unwrap()
    };
    let mut device = healthy();
    device.is_on_engine = true;
    device.nic.facts = facts("driver veth\nvalue rps.0 1\nvalue threaded off\n");
    let found = only(&device);
    assert_eq!(found.name, "one-receiving-cpu");
    assert!(found.why.contains("RPS has no effect"), "{found:?}");
    assert!(!found.why.contains("million"), "{found:?}");
    let fix = "fanpcap tune eth0 --apply --threads    # ";
    assert!(found.fix.starts_with(fix), "{found:?}");
    device.nic.facts.has_default_route = true;
    assert_eq!(only(&device).fix, "echo 1 > /sys/class/net/eth0/threaded");
    device.nic.facts = facts("value rps.0\nvalue threaded on\n");
    assert!(device.findings().is_empty());
    device.nic.facts = facts("value rps.0\nvalue rps.1\nvalue threaded off\n");
    assert!(device.findings().is_empty());
}

#[test]
fn masks_are_in_words() {
    for (cpus, expected) in [
        (2, "3"),
        (32, "ffffffff"),
        (33, "1,ffffffff"),
        (64, "ffffffff,ffffffff"),
    ] {
        assert_eq!(mask(cpus), expected);
    }
}

#[test]
fn a_peer_is_one_of_this_namespace() {
    let mut link = Link {
        kind: "veth".to_owned(),
        peer: Some(9),
        ..healthy().link
    };
    let peer = Link {
        index: 9,
        ..Link::default()
    };
    let read = |link: &Link| Device::read(link, link, std::slice::from_ref(&peer)).peer;
    assert!(read(&link).is_some());
    link.peer_namespace = Some(0);
    assert!(read(&link).is_none());
}

#[test]
fn members_that_wait_for_a_device_are_found() {
    let found = gone("eth0", 2);
    assert_eq!((found.name, found.place.as_str()), ("device-gone", "eth0"));
    assert!(found.what.starts_with("2 members wait until "), "{found:?}");
    assert!(
        found.fix.starts_with("ip link set dev eth0 up "),
        "{found:?}"
    );
    assert!(gone("eth0", 1).what.starts_with("1 member waits until "));
}
