//! Test runs of a group's BPF program: records, counters, filters, wake-ups.

use super::*;
use crate::capture::{Side, Variant};
use crate::layout::{SENT_FILTERS_MAP, XDP_DROP, XDP_PASS};
use crate::test_group::STEERING;
use crate::test_group::{DeviceRegistry, Group, frame, next, reader};
use crate::{Capture, pool_shape};
use fanpcap_bpf::classic::ancillary::{SKF_AD_OFF, SKF_AD_VLAN_TAG, SKF_AD_VLAN_TAG_PRESENT};
use fanpcap_bpf::classic::opcode::*;
use fanpcap_bpf::{Classic, Instruction};
use fanpcap_buckets::layout::{self, SIZE_WITH_CLASSES};
use fanpcap_linux::bpf::{Map, Table};
use fanpcap_linux::process::cpu;
use fanpcap_ring::pool::layout::{SHORT, last_offset};
use fanpcap_ring::{Layout as _, Remains};
use fanpcap_steer::ebpf::{COUNTERS_MAP, TABLE_MAP};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

fn group(source: &str) -> Group {
    Group::of(source, DeviceRegistry::that_steals().maps())
}

#[test]
#[ignore = "needs root: eBPF"]
fn each_length_is_captured_up_to_each_snapshot_length() {
    let group = group("main = steer_flow");
    for snaplen in [1, 40, 60, 61, 64, 65, 96, 100, 128, 129, 300, 1024, 65_535] {
        let (_maps, mut pool) = group.pool(snaplen);
        for len in (34..=140).chain([256, 257, 600, 1514, 3000]) {
            let frame = frame(len);
            assert_eq!(group.run(&frame, 1), XDP_DROP);
            let (bytes, wire_len, filter) = next(&mut pool).unwrap();
            let kept = frame.len().min(snaplen as usize);
            assert_eq!(bytes, frame[..kept], "{len} {snaplen}");
            assert_eq!((wire_len, filter), (len.into(), 0));
            assert_eq!(next(&mut pool), None);
            pool.release();
        }
    }
    let counts = group.program.group_counts();
    assert_eq!(counts.offered, group.program.slot_counts(0).produced);
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_frame_longer_than_the_kernel_copies_is_cut_and_not_dropped() {
    let group = group("main = steer_flow");
    for snaplen in [262_144, 65_535, 96] {
        let (_maps, mut pool) = group.pool(snaplen);
        let dropped = || group.program.slot_counts(0).dropped;
        let before = dropped();
        for len in [65_534, 65_535, 65_536, 65_549, 70_000] {
            let mut long = frame(1514);
            long.resize(len, 7);
            assert_eq!(group.run(&long, 1), XDP_DROP);
            let (bytes, wire_len, _) = next(&mut pool).unwrap();
            let kept = len.min(65_535).min(snaplen as usize);
            assert_eq!(bytes.len(), kept, "{len} {snaplen}");
            assert!(bytes == long[..kept] && wire_len as usize == len);
            pool.release();
        }
        assert_eq!(dropped(), before, "{snaplen}");
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_ledger_adds_up_whatever_becomes_of_a_packet() {
    let group = group("main = udp >-> steer_flow");
    let (udp, mut other) = (frame(60), frame(60));
    other[23] = 1;
    group.run(&udp, 10);
    let counts = group.program.group_counts();
    assert_eq!((counts.offered, counts.no_member), (10, 10));
    let (maps, mut pool) = group.pool(96);
    // A record has 96 bytes. The ends of blocks stay empty, and another CPU may have a block, if
    // the test has moved there.
    let room = u32::try_from(maps.array.size() / 96).unwrap();
    group.run(&udp, 2 * room);
    group.run(&other, 5);
    let counts = group.program.group_counts();
    assert_eq!(
        (counts.offered, counts.nowhere),
        (u64::from(2 * room) + 15, 5)
    );
    let slot = group.program.slot_counts(0);
    let most_of_room = u64::from(room / 8 * 5)..=room.into();
    assert!(most_of_room.contains(&slot.produced), "{slot:?}");
    assert_eq!(slot.produced + slot.dropped, u64::from(2 * room));
    pool.open();
    let read = std::iter::from_fn(|| pool.next_frame().unwrap().map(drop));
    assert_eq!(read.count() as u64, slot.produced);
    group.program.set_snaplen(0, 0);
    group.run(&udp, 3);
    group.program.take_away(0).unwrap();
    group.run(&udp, 4);
    assert_eq!(group.program.group_counts().no_member, 17);
    assert_eq!(group.program.slot_counts(0), slot);
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_packet_for_several_members_is_offered_once() {
    let group = group("main = udp");
    let table = &group.table;
    let count = table.view::<AtomicU32>(layout::RANK_COUNT, 1).unwrap();
    count[0].store(3, Ordering::Relaxed);
    for (rank, slot) in table.bytes()[layout::RANKS..].iter().zip([0, 7, 9]) {
        rank.store(slot, Ordering::Relaxed);
    }
    let _pools = [0, 7].map(|slot| put(&group, slot));
    group.run(&frame(60), 5);
    let counts = group.program.group_counts();
    assert_eq!((counts.offered, counts.no_member), (5, 5));
    let produced = [0, 7].map(|slot| group.program.slot_counts(slot).produced);
    assert_eq!(produced, [5, 5]);
}

/// Puts a member into a slot.
fn put(group: &Group, slot: u8) -> MemberPool {
    let pool = MemberPool::create(Some(0), group.program.shape).unwrap();
    group.program.put(slot, &pool, 96, 0, false).unwrap();
    pool
}

/// Sends three packets twice. Returns the number of each pool's records of the first three, and the
/// number of those of the other three that no other member has.
fn counted<const N: usize>(group: &Group, pools: [&MemberPool; N]) -> [(usize, usize); N] {
    let count = |mut remains: Remains| {
        let next = || {
            remains
                .head()
                .map(|_| assert!(remains.next_frame().is_ok()))
        };
        std::iter::from_fn(next).count()
    };
    group.run(&frame(60), 3);
    let all = pools.map(|pool| count(Remains::of_pool(reader(pool), 0)));
    group.run(&frame(60), 3);
    let single = |pool| count(Remains::of_pool(reader(pool), 0).without_copies());
    std::array::from_fn(|index| (all[index], single(pools[index])))
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_record_says_whether_another_member_has_the_packet_too() {
    for (source, count) in [("main = udp", 1), ("main = udp", 2), ("main = udp", 200)] {
        let group = group(source);
        let ranks = group.table.view::<AtomicU32>(layout::RANK_COUNT, 1);
        ranks.unwrap()[0].store(count, Ordering::Relaxed);
        let slots = group.table.bytes()[layout::RANKS..layout::RANK_COUNT].iter();
        for (rank, slot) in slots.zip([0].into_iter().chain(std::iter::repeat(7))) {
            rank.store(slot, Ordering::Relaxed);
        }
        let maps = put(&group, 0);
        let single = if count == 1 { 3 } else { 0 };
        assert_eq!(counted(&group, [&maps]), [(3, single)], "{count} ranks");
    }
    let (mut one, mut two) = (0, 0);
    for first in (0..layout::BUCKETS).step_by(64) {
        let group = group("main = double_steer_ip");
        for bucket in &group.table.bytes()[first..layout::BUCKETS] {
            bucket.store(7, Ordering::Relaxed);
        }
        let pools = [0, 7].map(|slot| put(&group, slot));
        match counted(&group, pools.each_ref()) {
            [(3, 3), (0, 0)] | [(0, 0), (3, 3)] => one += 1,
            [(3, 0), (3, 0)] => two += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(one > 0 && two > 0, "{one} {two}");
}

fn keep(bytes: i32) -> LoadedProgram {
    let code = [Instruction::set(0, bytes), Instruction::exit()];
    LoadedProgram::load(ProgramKind::Xdp, "keep", &code).unwrap()
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_filter_of_a_slot_says_how_much_is_kept() {
    let group = group("main = steer_flow");
    let (_maps, mut pool) = group.pool(65_535);
    let mut captured = |set: Option<(i32, u32)>| {
        let filter = set.map(|(bytes, number)| SlotFilter {
            received: keep(bytes),
            sent: None,
            number,
        });
        group.program.set_filter(0, filter.as_ref()).unwrap();
        group.run(&frame(100), 1);
        let found = next(&mut pool).map(|(bytes, _, filter)| (bytes.len(), filter));
        if found.is_some() {
            assert_eq!(next(&mut pool), None);
        }
        pool.release();
        found
    };
    assert_eq!(captured(Some((0x4_0000, 1))), Some((100, 1)));
    assert_eq!(captured(Some((30, 2))), Some((30, 2)));
    assert_eq!(captured(Some((0, 3))), None);
    assert_eq!(captured(None), Some((100, 0)));
    assert_eq!(group.program.slot_counts(0).unwanted, 1);
    // The row says that the slot has a filter, but the array of filters has none, so the tail call
    // fails.
    group
        .program
        .rows
        .of(0)
        .for_each(|row| row.set(row::FILTER, 4));
    group.run(&frame(100), 1);
    assert_eq!(next(&mut pool).unwrap().2, 0);
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_verdict_is_the_devices_or_goes_to_the_root() {
    let registry = DeviceRegistry::that_steals();
    let group = Group::of("main = steer_flow", registry.maps());
    let (_maps, mut pool) = group.pool(96);
    let frame = frame(60);
    assert_eq!(group.run(&frame, 1), XDP_DROP);
    let settings: &[AtomicU32] = registry.settings.view(0, 2).unwrap();
    settings[0].store(XDP_PASS, Ordering::Relaxed);
    assert_eq!(group.run(&frame, 1), XDP_PASS);
    settings[1].store(1, Ordering::Relaxed);
    assert_eq!(group.run(&frame, 1), XDP_PASS, "with a root but no stamp");
    assert_eq!(std::iter::from_fn(|| next(&mut pool)).count(), 3);
}

#[test]
#[ignore = "needs root: eBPF"]
fn another_process_has_it_by_its_descriptors() {
    let group = group("main = steer_flow");
    let own = |fd: &BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let copies = group.program.descriptors().each_ref().map(own);
    let other = GroupProgram::open(copies).unwrap();
    assert_eq!(other.shape, group.program.shape);
    let reason = other.sees_sent().unwrap_err().to_string();
    assert!(
        reason.contains("(the group began without them)"),
        "{reason}"
    );
    let pool = MemberPool::create(None, other.shape).unwrap();
    let copies = || pool.descriptors().iter().map(own).collect::<Vec<_>>();
    let opened = MemberPool::open(copies(), other.shape).unwrap();
    assert_eq!(opened.array.size(), pool.array.size());
    other.put(0, &opened, 96, 0, false).unwrap();
    group.run(&frame(60), 2);
    assert_eq!(other.slot_counts(0).produced, 2);
    assert_eq!(other.group_counts().offered, 2);
    let mut wrong = group.program.descriptors().each_ref().map(own);
    wrong.reverse();
    assert!(GroupProgram::open(wrong).is_err());
    for (possible, online) in [(200, 1), (1, 64)] {
        let shape = PoolShape::for_cpus(possible, online).unwrap();
        assert!(
            MemberPool::open(copies(), shape).is_err(),
            "{possible} {online}"
        );
    }
    let mut wrong = copies();
    wrong.swap(0, 1);
    assert!(MemberPool::open(wrong, other.shape).is_err());
    // Some member has stored another length of a block.
    let lanes = other.shape.lanes();
    for told in [19, 20].map(|shift| PoolShape::new(lanes, 1 << shift).unwrap()) {
        let opened = MemberPool::open(copies(), told).unwrap();
        group.run(&frame(60), 1);
        assert_eq!(next(&mut reader(&opened)).unwrap().1, 60, "{told:?}");
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_next_program_goes_on_with_the_maps() {
    let registry = DeviceRegistry::that_steals();
    let group = Group::of("main = inc 1 >-> steer_flow", registry.maps());
    let (_maps, mut pool) = group.pool(96);
    group.run(&frame(60), 3);
    let tree = fanpcap_steer::tree("main = inc 1 >-> drop", &|_| Err("none".to_owned())).unwrap();
    let compile = |capture: &Capture| {
        fanpcap_steer::ebpf::xdp(&tree, fanpcap_steer::GroupOptions::default(), capture)
    };
    let counters = Map::array("counters", 1, 512).unwrap();
    let given = [
        (TABLE_MAP, group.table.as_fd()),
        (COUNTERS_MAP, counters.as_fd()),
    ];
    let next = group.program.load_next(registry.maps(), &given, &compile);
    let (received, sent) = next.unwrap();
    assert!(sent.is_none(), "the group has no device");
    for _ in 0..2 {
        received.run(&frame(60)).unwrap();
    }
    let counts = group.program.group_counts();
    assert_eq!((counts.offered, counts.nowhere), (5, 2));
    assert_eq!(group.program.slot_counts(0).produced, 3);
    assert_eq!(
        std::iter::from_fn(|| crate::test_group::next(&mut pool)).count(),
        3
    );
    // The BPF program counts in the given map, not in a map of its own.
    assert_eq!(counters.numbers().unwrap()[..3], [0, 2, 0]);
}

#[test]
#[ignore = "needs root: eBPF"]
fn members_have_pools_of_any_number_of_blocks() {
    let group = group("main = steer_flow");
    let lens = [Some(0), None, Some(128 << 20)].map(|bytes| {
        let maps = MemberPool::create(bytes, group.program.shape).unwrap();
        let mut pool = reader(&maps);
        group.program.put(0, &maps, 96, 0, false).unwrap();
        group.run(&frame(60), 3);
        assert_eq!(std::iter::from_fn(|| next(&mut pool)).count(), 3);
        maps.array.size()
    });
    assert!(lens.is_sorted() && lens[2] >= 128 << 20);
    group.program.take_away(0).unwrap();
    group.run(&frame(60), 1);
    assert_eq!(group.program.group_counts().no_member, 1);
}

/// Frames of all lengths, so that blocks end everywhere. Each frame has its number in its bytes.
#[test]
#[ignore = "needs root: eBPF"]
fn each_record_is_whole_wherever_its_block_ends() {
    let group = group("main = steer_flow");
    let (maps, mut pool) = group.pool(65_535);
    let mut bytes = 0;
    let mut number = 0_u32;
    while bytes < 5 * maps.array.size() {
        let len = 60 + (number * 7919) % 3000 + u32::from(number % 50 == 0) * 60_000;
        let mut frame = frame(u16::try_from(len).unwrap());
        frame[50..54].copy_from_slice(&number.to_ne_bytes());
        group.run(&frame, 1);
        let (found, wire_len, _) = next(&mut pool).unwrap();
        assert!(found == frame && wire_len == len, "{number}: {len}");
        assert_eq!(next(&mut pool), None);
        pool.release();
        (bytes, number) = (bytes + frame.len(), number + 1);
    }
    assert_eq!(group.program.slot_counts(0).dropped, 0, "blocks came back");
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_full_pool_goes_on_when_it_was_read() {
    // Another CPU may find no free block while this one's block has room.
    cpu::pin(cpu::current_cpu().unwrap()).unwrap();
    let group = group("main = steer_flow");
    let (maps, mut pool) = group.pool(65_535);
    let long = frame(1514);
    // Header, bytes and spare bytes: a multiple of 8.
    let record = 24 + 1514 + 14;
    let block_len = group.program.shape.block_len();
    let blocks = maps.array.size() as u64 / u64::from(block_len) - 1;
    let in_block = u64::from(last_offset(block_len, SHORT) / record + 1);
    for _ in 0..3 {
        let before = group.program.slot_counts(0);
        while group.program.slot_counts(0).dropped < before.dropped + 100 {
            group.run(&long, 100);
        }
        let after = group.program.slot_counts(0);
        let records = after.produced - before.produced;
        assert_eq!(
            records,
            blocks * in_block,
            "all blocks of the round before came back"
        );
        assert!(pool.is_filled_to(4));
        let read = std::iter::from_fn(|| next(&mut pool)).count();
        pool.release();
        assert_eq!(read as u64, records);
        assert!(!pool.open());
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn each_cpu_has_its_lane_and_the_reader_merges_them() {
    let group = group("main = steer_flow");
    let (maps, mut pool) = group.pool(96);
    let words = maps.array.map_words().unwrap();
    for (lens, cpu) in [(60..70, 0), (70..80, 1), (80..90, 0)] {
        let ran = std::thread::scope(|scope| {
            let run = || {
                let pinned = cpu::pin(cpu);
                pinned.map(|()| lens.for_each(|len| _ = group.run(&frame(len), 1)))
            };
            scope.spawn(run).join().unwrap()
        });
        if ran.is_err() {
            println!("SKIP: there is only one CPU");
            return;
        }
    }
    let used: Vec<usize> = (0..words.lanes())
        .filter(|&lane| words.is_used(lane))
        .collect();
    assert_eq!(used, [0, 1]);
    let lens: Vec<u32> = std::iter::from_fn(|| next(&mut pool))
        .map(|it| it.1)
        .collect();
    assert!(lens.into_iter().eq(60..90));
}

/// Also on kernels whose BPF program for sent packets can't be attached.
#[test]
#[ignore = "needs root: eBPF"]
fn the_verifier_accepts_filters_of_sent_packets() {
    let registry = DeviceRegistry::that_steals();
    let table = Table::create("table", u32::try_from(SIZE_WITH_CLASSES).unwrap()).unwrap();
    let given = [(TABLE_MAP, table.as_fd())];
    let mut accepted = 0;
    for source in STEERING {
        let tree = fanpcap_steer::tree(source, &|_| Err("none".to_owned())).unwrap();
        let compile = |capture: &Capture| {
            fanpcap_steer::ebpf::xdp(&tree, fanpcap_steer::GroupOptions::default(), capture)
        };
        let shape = pool_shape().unwrap();
        let group = GroupProgram::load(shape, registry.maps(), &given, &compile);
        // With two capabilities, some verifiers refuse BPF programs that deliver copies.
        let Ok((group, received)) = group else {
            println!("{source}: refused for received packets, too");
            continue;
        };
        let making = group.making(registry.maps(), &given, &compile);
        // Linux 6.1 runs no filters in BPF programs that deliver copies.
        let object = making.compiled(Side::Received, Variant::Copied).unwrap();
        if Loaded::load_with(&object, "test", &making.given).is_err() {
            println!("{source}: no filters for received packets, either");
            continue;
        }
        accepted += 1;
        let filters = filters().unwrap();
        let given = [&*making.given, &[(SENT_FILTERS_MAP, filters.as_fd())]].concat();
        let object = making.compiled(Side::Sent, Variant::Copied).unwrap();
        let sent = Loaded::load_sharing(&object, "test", &given, &received);
        sent.unwrap_or_else(|error| panic!("{source}: {error:?}"));
    }
    assert!(accepted > 0);
    // Loads of each kind: `vlan 5 and udp port 53 and ether[len - 1] = 0`, about.
    let code = [
        Classic::new(LD_B_ABS, SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT),
        Classic::jump(JMP_JEQ_K, 1, 0, 13),
        Classic::new(LD_H_ABS, SKF_AD_OFF + SKF_AD_VLAN_TAG),
        Classic::new(ALU_AND_K, 0xfff),
        Classic::jump(JMP_JEQ_K, 5, 0, 10),
        Classic::new(LD_H_ABS, 12),
        Classic::jump(JMP_JEQ_K, 0x0800, 0, 8),
        Classic::new(LDX_B_MSH, 14),
        Classic::new(LD_H_IND, 16),
        Classic::jump(JMP_JEQ_K, 53, 0, 5),
        Classic::new(LD_W_LEN, 0),
        Classic::new(ALU_SUB_K, 1),
        Classic::new(MISC_TAX, 0),
        Classic::new(LD_B_IND, 0),
        Classic::new(RET_A, 0),
        Classic::keep(0),
    ];
    let filter = fanpcap_steer::ebpf::sent_filter(&code).unwrap();
    Loaded::load(&filter, "filter").unwrap();
}

/// Runs tests of this file again in a process with only two capabilities, by setpriv(1).
#[test]
#[ignore = "needs root: eBPF"]
fn two_capabilities_suffice() {
    let tests = [
        "program::tests::each_length_is_captured_up_to_each_snapshot_length",
        "program::tests::the_verifier_accepts_filters_of_sent_packets",
    ];
    let output = Command::new("setpriv")
        .args(["--bounding-set", "-all,+bpf,+net_admin"])
        .args(["--inh-caps", "-all,+bpf,+net_admin", "--no-new-privs", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--include-ignored", "--exact"])
        .args(tests)
        .output();
    let Ok(output) = output else {
        println!("SKIP: there is no setpriv");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("2 passed"), "{text}");
}
