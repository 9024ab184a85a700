//! Devices made up, and one of a made-up sysfs.

use super::*;
use fanpcap_linux::netlink::link::XdpProgram;
use fanpcap_testkit::Scratch;

fn healthy() -> Device {
    Device {
        link: Link {
            index: 7,
            name: "eth0".to_owned(),
            flags: IFF_UP | IFF_LOWER_UP,
            ..Link::default()
        },
        queues: vec![false, false],
        cpus: 4,
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
    // The kernel tells names to root alone.
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
    let nowhere = Scratch::new().unwrap();
    let device = Device::read(&nowhere.file(""), &now, &before, &[]);
    assert_eq!(device.missed, 7);
    assert_eq!(only(&device).name, "device-drops");
    let device = Device::read(&nowhere.file(""), &now, &now, &[]);
    assert!(device.findings().is_empty());
}

#[test]
fn one_queue_without_rps_is_found_where_members_share() {
    let scratch = Scratch::new().unwrap();
    let write = |path: &str, text: &str| {
        let path = scratch.file(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/devices/system/cpu/online", "0-3\n");
    write("sys/class/net/eth0/ifindex", "7\n");
    write("sys/class/net/eth0/queues/rx-0/rps_cpus", "0,00000000\n");
    let link = healthy().link;
    let mut device = Device::read(&scratch.file(""), &link, &link, &[]);
    assert!(device.findings().is_empty(), "one member needs one CPU");
    device.is_shared = true;
    let found = only(&device);
    assert_eq!(found.name, "one-receiving-cpu");
    assert_eq!(
        found.fix,
        "echo f > /sys/class/net/eth0/queues/rx-0/rps_cpus"
    );
    write("sys/class/net/eth0/queues/rx-0/rps_cpus", "0,0000000a\n");
    device = Device::read(&scratch.file(""), &link, &link, &[]);
    device.is_shared = true;
    assert!(device.findings().is_empty());
    // A sysfs of another network namespace has another device of this name.
    write("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n");
    write("sys/class/net/eth0/ifindex", "2\n");
    device = Device::read(&scratch.file(""), &link, &link, &[]);
    device.is_shared = true;
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
    let nowhere = Scratch::new().unwrap();
    let read =
        |link: &Link| Device::read(&nowhere.file(""), link, link, std::slice::from_ref(&peer)).peer;
    assert!(read(&link).is_some());
    link.peer_namespace = Some(0);
    assert!(read(&link).is_none());
}
