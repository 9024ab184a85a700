//! Takes devices over, in network namespaces.

use super::*;
use crate::pool::MemberPool;
use crate::program::GroupProgram;
use crate::test_group::{Group, frame, next, reader};
use fanpcap_bpf::Instruction;
use fanpcap_linux::netlink::link;
use fanpcap_linux::packet::inject::{self, Injector};
use fanpcap_linux::packet::{self, Address};
use fanpcap_ring::{Layout as _, Pool};
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::netns::on_pair;
use fanpcap_testkit::veth::ip;
use std::process::Command;
use std::time::Duration;

impl Device {
    /// Takes over a device of the calling thread's network namespace.
    pub(crate) fn take_over(ifindex: u32) -> Result<Self, Unavailable> {
        Self::take_over_behind(ifindex, None)
    }

    /// With a `selection` of a cluster's node, the engine is behind it.
    fn take_over_behind(ifindex: u32, selection: Option<Selection>) -> Result<Self, Unavailable> {
        Untaken::find(ifindex, selection)?.take_over()
    }
}

mod tags;
mod behind;
mod sent_filters;

fn program(group: &Group) -> BorrowedFd<'_> {
    group.received.as_fd()
}

/// Whether the group gets packets that the host sends. Prints a line if the kernel is too old.
fn sees_sent(group: &Group) -> bool {
    let has_tcx = has_tcx();
    assert_eq!(group.program.sees_sent().is_ok(), has_tcx);
    has_tcx
}

/// Whether the kernel has tcx. Prints a line if it is too old.
fn has_tcx() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit());
    let mut number = || numbers.next().unwrap().parse::<u32>().unwrap();
    let is_new = (number(), number()) >= (6, 6);
    if !is_new {
        println!("SKIP: the kernel lacks tcx (BPF programs in traffic control, Linux 6.6)");
    }
    is_new
}

fn is_ours(frame: &[u8]) -> bool {
    frame.get(12..15) == Some(&[8, 0, 0x45])
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn groups_come_and_go_and_each_packet_goes_to_all_of_them() {
    on_pair(|index| {
        let device = Device::take_over(index).unwrap();
        let sender = Injector::open("va").unwrap();
        let groups = [
            "main = steer_flow",
            "main = udp >-> steer_flow",
            "main = drop",
        ];
        let groups = groups.map(|source| Group::of(source, device.maps()));
        let mut members = groups.each_ref().map(|group| group.pool(65_535));
        let mut got = |which: &[usize]| {
            let before = groups
                .each_ref()
                .map(|it| it.program.group_counts().offered);
            sender.send(&frame(60)).unwrap();
            for (index, (_, pool)) in members.iter_mut().enumerate() {
                let offered = || groups[index].program.group_counts().offered - before[index];
                if which.contains(&index) {
                    await_so("offered", || offered() > 0);
                    if index < 2 {
                        await_so("record", || {
                            let all = std::iter::from_fn(|| next(pool));
                            let ours = all.filter(|(bytes, ..)| is_ours(bytes));
                            let count = ours.count();
                            pool.release();
                            count == 1
                        });
                    }
                } else {
                    assert_eq!(offered(), 0, "group {index}");
                }
            }
        };
        let group_slot = |index: usize, group_slot: u8| (group_slot, program(&groups[index]));
        got(&[]);
        device.serve(&[group_slot(0, 3)]).unwrap();
        got(&[0]);
        device.serve(&[group_slot(0, 3), group_slot(1, 0)]).unwrap();
        got(&[0, 1]);
        device
            .serve(&[group_slot(0, 3), group_slot(1, 0), group_slot(2, 15)])
            .unwrap();
        got(&[0, 1, 2]);
        // Groups that leave and join again do not change the root.
        let root = || device.link.program_id().unwrap();
        let of_three = root();
        device
            .serve(&[group_slot(1, 0), group_slot(2, 15)])
            .unwrap();
        got(&[1, 2]);
        assert_eq!(root(), of_three);
        device
            .serve(&[group_slot(0, 3), group_slot(1, 0), group_slot(2, 15)])
            .unwrap();
        got(&[0, 1, 2]);
        assert_eq!(root(), of_three);
        device.serve(&[group_slot(1, 0)]).unwrap();
        assert_ne!(root(), of_three);
        got(&[1]);
        device.serve(&[]).unwrap();
        got(&[]);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn the_host_gets_what_a_group_gives_it_or_all_that_is_not_stolen() {
    on_pair(|index| {
        let device = Device::take_over(index).unwrap();
        let sender = Injector::open("va").unwrap();
        let group = Group::of("main = steer_flow", device.maps());
        // With a root, this BPF program acts like a group that gives each packet to the host.
        let code = [Instruction::set(0, 1), Instruction::exit()];
        let gives = LoadedProgram::load(ProgramKind::Xdp, "gives", &code).unwrap();
        let gives = || gives.as_fd();
        let host = packet::open().unwrap();
        let address = Address {
            ifindex: index,
            protocol: 0x0800,
        };
        packet::bind(host.as_fd(), address).unwrap();
        let host_gets = || packet::take_statistics(host.as_fd()).unwrap().packets;
        for (group_slots, steals, expected) in [
            (vec![program(&group)], false, 3),
            (vec![program(&group)], true, 0),
            (vec![program(&group), program(&group)], true, 0),
            (vec![program(&group), gives()], true, 3),
            (vec![program(&group), program(&group)], false, 3),
            (vec![program(&group)], true, 0),
            (vec![], false, 3),
            (vec![], true, 0),
        ] {
            device.set_steals(steals);
            let verdict = device.own.get(settings::VERDICT);
            assert_eq!(verdict == layout::XDP_DROP, steals);
            let group_slots: Vec<(u8, BorrowedFd<'_>)> = (0..).zip(group_slots).collect();
            device.serve(&group_slots).unwrap();
            let before = group.program.group_counts().offered;
            for _ in 0..3 {
                sender.send(&frame(60)).unwrap();
            }
            if !group_slots.is_empty() {
                let offered = || group.program.group_counts().offered - before;
                await_so("offered", || offered() >= 3);
            }
            let mut got = 0;
            if expected > 0 {
                await_so("the host's packets", || {
                    got += host_gets();
                    got >= expected
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(
                got + host_gets(),
                expected,
                "{} {steals}",
                group_slots.len()
            );
        }
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_device_that_cant_be_taken_over_says_why() {
    on_pair(|index| {
        let why = |ifindex| Device::take_over(ifindex).err().unwrap().to_string();
        assert!(why(0).contains("any"));
        assert!(why(interface::index("lo").unwrap()).contains("loopback"));
        for (line, name, reason) in [
            ("link add br type bridge", "br", "bridge"),
            ("link add i0 type ifb", "i0", "driver takes no"),
        ] {
            // Not every kernel supports all kinds of devices.
            let made = Command::new("ip").args(line.split(' ')).status().unwrap();
            let index = interface::index(name).filter(|_| made.success());
            assert!(
                index.is_none_or(|index| why(index).contains(reason)),
                "{line}"
            );
        }
        assert!(why(u32::MAX / 2).contains("can't be read"));
        let first = Device::take_over(index).unwrap();
        let second = why(index);
        // The device runs the root of the first group, if the root can ask for tags.
        let names = ["fanpcap_xdp (id ", "fanpcap_root (id "];
        assert!(names.iter().any(|name| second.contains(name)), "{second}");
        drop(first);
        Device::take_over(index).unwrap();
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn another_process_has_the_device_by_its_descriptors() {
    on_pair(|index| {
        let device = Device::take_over(index).unwrap();
        let own = |fd: &BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let copies = || device.descriptors().iter().map(own).collect::<Vec<_>>();
        let other = Device::of(copies(), index).unwrap();
        let mut wrong = copies();
        wrong.swap(0, 1);
        assert!(Device::of(wrong, index).is_err());
        assert!(Device::of(Vec::new(), index).is_err());
        drop(device);
        let id = || link::get(index).unwrap().xdp.map(|it| it.program);
        assert!(id().is_some());
        let group = Group::of("main = steer_flow", other.maps());
        other.serve(&[(0, program(&group))]).unwrap();
        let own = group.received.id().ok();
        // If the driver has tags, the device runs a root in place of the group's BPF program.
        assert!(id() == own || other.tags().is_some());
        assert_eq!(other.ifindex().unwrap(), index);
        drop(other);
        assert!(id().is_some() && !group.program.is_detached());
        drop(group);
        await_so("the kernel has detached it", || id().is_none());
    });
}

/// Returns the test's own frames from the pool: bytes, length on the wire, and packet type.
fn frames(pool: &mut Pool) -> Vec<(Vec<u8>, u32, u8)> {
    let mut all = Vec::new();
    pool.open();
    while let Some(frame) = pool.next_frame().unwrap() {
        all.push((
            frame.data().to_vec(),
            frame.wire_len(),
            frame.link().pkttype,
        ));
    }
    pool.release();
    all.retain(|(bytes, ..)| bytes.windows(3).any(|part| part == [8, 0, 0x45]));
    all
}

#[test]
#[ignore = "needs root: eBPF, a network namespace, tcx (Linux 6.6)"]
fn packets_that_the_host_sends_are_captured_with_their_tags() {
    on_pair(|index| {
        let device = Device::take_over(index).unwrap();
        let group = Group::of("main = steer_flow", device.maps());
        if !sees_sent(&group) {
            return;
        }
        device.serve(&[(0, program(&group))]).unwrap();
        let quiet = MemberPool::create(None, group.program.shape).unwrap();
        group.program.put(0, &quiet, 300, 0, false).unwrap();
        let sender = Injector::open("vb").unwrap();
        let far = Injector::open("va").unwrap();
        sender.send(&frame(60)).unwrap();
        assert_eq!(
            group.program.slot_counts(0).unwanted,
            0,
            "no member wants sent packets, but one was counted"
        );
        let (_maps, mut pool) = group.pool(300);
        for len in [60, 64, 301, 1514] {
            sender.send(&frame(len)).unwrap();
            far.send(&frame(len)).unwrap();
            let kept = usize::from(len.min(300));
            let mut found = Vec::new();
            await_so("the sent and the received frame", || {
                found.extend(frames(&mut pool));
                found.len() == 2
            });
            for (bytes, wire_len, _) in &found {
                assert_eq!(bytes, &frame(len)[..kept]);
                assert_eq!(*wire_len, u32::from(len));
            }
            let mut types = [found[0].2, found[1].2];
            types.sort_unstable();
            assert_eq!(types, [0, 4]);
        }
        let counts = group.program.group_counts();
        let slot = group.program.slot_counts(0);
        assert_eq!(
            counts.offered,
            slot.produced + counts.no_member + counts.nowhere
        );
        // A second `GroupProgram` has a copy of the link, as in another process.
        let own = |fd: &BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let copies = group.program.descriptors().each_ref().map(own);
        let other = GroupProgram::open(copies).unwrap();
        drop(group);
        other.sees_sent().unwrap();
        sender.send(&frame(60)).unwrap();
        await_so("a frame by the copied link", || {
            !frames(&mut pool).is_empty()
        });
        drop(other);
        std::thread::sleep(Duration::from_millis(50));
        sender.send(&frame(60)).unwrap();
        assert!(frames(&mut pool).is_empty());
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace, tcx (Linux 6.6)"]
fn a_member_does_not_get_what_it_sends_itself() {
    on_pair(|index| {
        let device = Device::take_over(index).unwrap();
        let group = Group::of("main = steer_flow", device.maps());
        if !sees_sent(&group) {
            return;
        }
        let maps = MemberPool::create(None, group.program.shape).unwrap();
        let mut pool = reader(&maps);
        let own = packet::open().unwrap();
        let address = Address {
            ifindex: index,
            protocol: 0,
        };
        packet::bind(own.as_fd(), address).unwrap();
        let cookie = packet::cookie(own.as_fd()).unwrap();
        group.program.put(0, &maps, 96, cookie, true).unwrap();
        let other = Injector::open("vb").unwrap();
        for len in [60, 61, 62] {
            inject::send(own.as_fd(), &frame(len)).unwrap();
            other.send(&frame(len)).unwrap();
        }
        let mut found = Vec::new();
        await_so("the frames of the other socket", || {
            found.extend(frames(&mut pool).into_iter().map(|(_, len, _)| len));
            found.len() >= 3
        });
        assert_eq!(found, [60, 61, 62]);
        assert_eq!(group.program.slot_counts(0).unwanted, 3);
    });
}
