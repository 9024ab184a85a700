//! Members' filters on packets that the host sends.

use super::*;
use crate::program::SlotFilter;
use crate::test_group::STEERING;
use fanpcap_buckets::layout;
use fanpcap_steer::GroupOptions;
use fanpcap_steer::ebpf::{self, TABLE_MAP};

use std::sync::atomic::{AtomicU32, Ordering};

/// A filter that keeps this many bytes of each packet that the host sends, and all received ones.
fn keep(sent: Option<i32>, number: u32) -> SlotFilter {
    let load = |kind, bytes| {
        let code = [Instruction::set(0, bytes), Instruction::exit()];
        LoadedProgram::load(kind, "keep", &code).unwrap()
    };
    SlotFilter {
        received: load(ProgramKind::Xdp, i32::MAX),
        sent: sent.map(|bytes| load(ProgramKind::SchedCls, bytes)),
        number,
    }
}

/// A group in which slot 0 is the only member, also of each class.
fn group_of_one(source: &str, device: DeviceMaps<'_>) -> Group {
    let group = Group::of(source, device);
    for class in 0..=layout::EVERYBODY {
        let count = layout::part(class) + layout::RANK_COUNT;
        let count: &[AtomicU32] = group.table.view(count, 1).unwrap();
        count[0].store(1, Ordering::Relaxed);
    }
    group
}

/// Returns the records of the test's frames of this length: captured bytes, and the number of the
/// filter that has run.
fn found(pool: &mut Pool, len: u16) -> Vec<(usize, u32)> {
    let all = std::iter::from_fn(|| next(pool));
    let ours = all.filter(|(_, wire_len, _)| *wire_len == u32::from(len));
    let ours = ours.map(|(bytes, _, filter)| (bytes.len(), filter));
    let ours = ours.collect();
    pool.release();
    ours
}

/// A packet that the host sends is in the ring when the call that sends it returns.
fn sent(pool: &mut Pool, sender: &Injector, len: u16) -> Vec<(usize, u32)> {
    sender.send(&frame(len)).unwrap();
    found(pool, len)
}

#[test]
#[ignore = "needs root: eBPF, a network namespace, tcx (Linux 6.6)"]
fn the_kernel_filters_what_the_host_sends() {
    on_pair(|index| {
        let device = Device::take_over(index).unwrap();
        let group = Group::of("main = steer_flow", device.maps());
        if !sees_sent(&group) {
            return;
        }
        device.serve(&[(0, program(&group))]).unwrap();
        let (_maps, mut pool) = group.pool(65_535);
        let [sender, far] = ["vb", "va"].map(|device| Injector::open(device).unwrap());
        let mut set = |program: &GroupProgram, filter: Option<SlotFilter>| {
            program.set_filter(0, filter.as_ref()).unwrap();
            sent(&mut pool, &sender, 100)
        };
        let program = &group.program;
        assert_eq!(set(program, None), [(100, 0)]);
        assert_eq!(set(program, Some(keep(Some(i32::MAX), 1))), [(100, 1)]);
        assert_eq!(set(program, Some(keep(Some(30), 2))), [(30, 2)]);
        assert_eq!(set(program, Some(keep(Some(0), 3))), []);
        assert_eq!(program.slot_counts(0).unwanted, 1);
        assert_eq!(
            set(program, Some(keep(None, 4))),
            [(100, 0)],
            "received packets only"
        );
        let own = |fd: &BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let other = program.descriptors().each_ref().map(own);
        let other = GroupProgram::open(other).unwrap();
        assert_eq!(
            set(&other, Some(keep(Some(0), 5))),
            [],
            "by another process"
        );
        far.send(&frame(100)).unwrap();
        await_so("the received frame", || found(&mut pool, 100) == [(100, 5)]);
        other.take_away(0).unwrap();
        let (_maps, mut pool) = group.pool(96);
        assert_eq!(
            sent(&mut pool, &sender, 100),
            [(96, 0)],
            "the slot's next member"
        );
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace, tcx (Linux 6.6)"]
fn every_steering_program_has_filters_for_what_the_host_sends() {
    for source in STEERING {
        on_pair(|index| {
            let device = Device::take_over(index).unwrap();
            let group = group_of_one(source, device.maps());
            if !sees_sent(&group) {
                return;
            }
            let (_maps, mut pool) = group.pool(65_535);
            let filter = keep(Some(30), 7);
            group.program.set_filter(0, Some(&filter)).unwrap();
            let sender = Injector::open("vb").unwrap();
            assert_eq!(sent(&mut pool, &sender, 100), [(30, 7)], "{source}");
        });
    }
}

#[test]
#[ignore = "needs root: eBPF, a network namespace, tcx (Linux 6.6)"]
fn the_next_program_runs_the_same_filters() {
    on_pair(|index| {
        let device = Device::take_over(index).unwrap();
        let group = group_of_one("main = steer_flow", device.maps());
        if !sees_sent(&group) {
            return;
        }
        let (_maps, mut pool) = group.pool(65_535);
        let filter = keep(Some(30), 7);
        group.program.set_filter(0, Some(&filter)).unwrap();
        let tree = fanpcap_steer::tree("main = udp", &|_| Err("none".to_owned())).unwrap();
        let compile = |capture: &crate::Capture| ebpf::xdp(&tree, GroupOptions::default(), capture);
        let given = [(TABLE_MAP, group.table.as_fd())];
        let (_, next) = group
            .program
            .load_next(device.maps(), &given, &compile)
            .unwrap();
        let next = next.unwrap().as_fd().try_clone_to_owned().unwrap();
        group.program.replace_sent(next).unwrap();
        let sender = Injector::open("vb").unwrap();
        assert_eq!(sent(&mut pool, &sender, 100), [(30, 7)]);
        let filter = keep(Some(0), 8);
        group.program.set_filter(0, Some(&filter)).unwrap();
        assert_eq!(sent(&mut pool, &sender, 100), []);
    });
}
