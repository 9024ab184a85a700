//! Writes pools as a process, and reads them. Records come in time order. Blocks come back to the
//! writer once. Records that a dead reader has left unread come once. (`fanpcap-xdp` tests pools
//! that BPF programs write.)
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "lengths in here are below 4096, and a test may panic"
)]

mod pool;

use fanpcap_ring::{Layout as _, Pool, PoolClocks, Remains, Vlan};
use pool::{
    BLOCK_LEN, CLOCKS, DEVICE, Raw, Written, drain, hostile, long, new_memory, new_pool, room_of,
    time_of, times, written,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TryRecvError};

fn packet() -> impl Strategy<Value = Written> {
    let data = proptest::collection::vec(any::<u8>(), 0..200);
    let numbers = (0..u64::MAX / 2, 0..1000_u32, any::<u32>());
    (data, 0..4_u16, numbers).prop_map(|(data, flags, (stamp, cut, filter))| Written {
        stamp,
        data,
        cut,
        flags,
        filter,
    })
}

fn remains(writer: &Raw, taken: u64) -> Remains {
    Remains::of_pool(Pool::new(writer.copy(), DEVICE.ifindex, CLOCKS), taken)
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(
        rounds in proptest::collection::vec(proptest::collection::vec(packet(), 0..60), 1..20),
    ) {
        let (writer, mut pool) = new_pool(9, 1);
        prop_assert!(!pool.open());
        let mut taken = 0;
        for packets in &rounds {
            let mut begin = writer.position(0).load(Ordering::Acquire);
            if writer.is_full(0) {
                // The block was given back.
                begin = begin.next_multiple_of(BLOCK_LEN as u64);
            }
            for packet in packets {
                prop_assert!(writer.arrive(0, packet), "the pool has room again");
            }
            prop_assert_eq!(pool.is_ready(), !packets.is_empty());
            prop_assert_eq!(pool.open(), !packets.is_empty());
            for packet in packets {
                prop_assert_eq!(pool.peek(), Some(time_of(packet.stamp)));
                let frame = pool.next_frame().unwrap().unwrap();
                prop_assert_eq!(frame.data(), &packet.data);
                prop_assert_eq!(frame.wire_len(), packet.data.len() as u32 + packet.cut);
                prop_assert_eq!(frame.filter(), packet.filter);
                let pkttype = if packet.flags & 1 == 1 { 4 } else { 0 };
                let link = frame.link();
                prop_assert_eq!(
                    (link.ifindex, link.hatype, link.pkttype),
                    (DEVICE.ifindex, DEVICE.hatype, pkttype)
                );
                taken += 1;
            }
            prop_assert!(pool.next_frame().unwrap().is_none());
            prop_assert_eq!(pool.taken(), taken);
            let drained = pool.release();
            prop_assert_eq!(drained.is_some(), !packets.is_empty());
            if let (Some(drained), Some(last)) = (drained, packets.last()) {
                prop_assert_eq!(drained.records, packets.len() as u64);
                let end = writer.position(0).load(Ordering::Acquire);
                prop_assert_eq!(drained.bytes, end - begin);
                prop_assert_eq!(drained.last, time_of(last.stamp));
            }
            prop_assert!(!pool.open());
            let held = u32::from(taken > 0 && !writer.is_full(0));
            prop_assert_eq!(writer.free(), 9 - held, "only the lane's own block is in use");
        }
    }

    #[test]
    fn lanes_are_merged_by_time(
        rounds in proptest::collection::vec(
            proptest::collection::vec((0..4_usize, 0..3_u64), 0..40), 1..10),
    ) {
        let (writer, mut pool) = new_pool(10, 4);
        let mut now = 0;
        for arrivals in rounds {
            let mut expected = Vec::new();
            for (lane, later) in arrivals {
                now += later;
                prop_assert!(writer.arrive(lane, &written(now)));
                expected.push(now);
            }
            prop_assert_eq!(drain(&mut pool), times(&expected));
        }
        prop_assert!(writer.free() >= 6);
    }

    #[test]
    fn what_is_left_comes_once(
        arrivals in proptest::collection::vec((0..3_usize, 0..3_u64), 0..200),
        first in 0..100_usize,
        (read, adopted) in (0..120_usize, 0..60_usize),
    ) {
        let (writer, mut pool) = new_pool(14, 3);
        let mut queue: VecDeque<u64> = VecDeque::new();
        let mut now = 0;
        let mut arrive = |lane: usize, later| {
            now += later;
            assert!(writer.arrive(lane, &written(now)));
            queue.push_back(now);
        };
        let (before, after) = arrivals.split_at(first.min(arrivals.len()));
        before.iter().for_each(|&(lane, later)| arrive(lane, later));
        let mut got = Vec::new();
        pool.open();
        for _ in 0..read {
            match pool.next_frame().unwrap() {
                Some(frame) => got.push(frame.stamp()),
                None => break,
            }
        }
        after.iter().for_each(|&(lane, later)| arrive(lane, later));
        let returned = writer.returned();
        let (twin, memory) = writer.twin();
        let mut adopting = Remains::of_pool(Pool::new(memory, DEVICE.ifindex, CLOCKS), pool.taken());
        for _ in 0..adopted {
            let Some(stamp) = adopting.head() else { break };
            prop_assert_eq!(adopting.next_frame().unwrap().unwrap().stamp(), stamp);
            got.push(stamp);
        }
        // The process that adopted the rest has died, too.
        let mut remains = remains(&twin, adopting.taken());
        while let Some(stamp) = remains.head() {
            prop_assert!(remains.next_frame().unwrap().is_some());
            got.push(stamp);
        }
        prop_assert_eq!(remains.taken(), queue.len() as u64);
        got.sort();
        prop_assert_eq!(got, times(queue.make_contiguous()));
        prop_assert_eq!(twin.returned(), returned, "nothing is given back");
    }

    #[test]
    fn whatever_others_write_what_is_read_lies_within_and_ends(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        hostile::run(&bytes);
    }
}

#[test]
fn whatever_another_thread_writes_meanwhile_each_read_ends() {
    hostile::scribbled(200_000, 1000);
}

#[test]
fn the_same_blocks_are_used_again_while_the_reader_keeps_up() {
    let (writer, mut pool) = new_pool(8, 1);
    for stamp in 1..1000 {
        assert!(writer.arrive(0, &long(stamp)));
        assert_eq!(drain(&mut pool), times(&[stamp]));
        let number = writer.position(0).load(Ordering::Acquire) / BLOCK_LEN as u64;
        let index = writer.table(0, number).load(Ordering::Acquire) & 255;
        assert!(index < 2, "block {index}");
    }
}

#[test]
fn a_pool_that_is_not_read_fills_and_then_goes_on() {
    let (writer, mut pool) = new_pool(70, 2);
    let mut stamps: Vec<u64> = (1..)
        .take_while(|&it| writer.arrive((it % 2) as usize, &long(it)))
        .collect();
    // The other lane's block may have room.
    stamps.extend((1000..).take_while(|&it| writer.arrive(0, &long(it))));
    stamps.extend((2000..).take_while(|&it| writer.arrive(1, &long(it))));
    assert_eq!(stamps.len(), 2 * 70, "two in each block of both words");
    assert!(pool.is_filled_to(4) && writer.free() == 0);
    assert_eq!(drain(&mut pool), times(&stamps));
    assert_eq!(writer.free(), 68, "the lanes' last packets may be in use");
    assert!(writer.arrive(0, &long(3000)) && !pool.is_filled_to(4));
    assert_eq!(drain(&mut pool), times(&[3000]));
}

#[test]
fn a_packet_stays_until_the_next_is_read() {
    let (writer, mut pool) = new_pool(2, 1);
    for stamp in 1..=4 {
        assert!(writer.arrive(0, &long(stamp)));
    }
    assert!(!writer.arrive(0, &long(5)));
    assert!(pool.open());
    for _ in 0..2 {
        assert!(pool.next_frame().unwrap().is_some());
    }
    assert_eq!(
        writer.free(),
        0,
        "the second packet of the block may be in use"
    );
    assert!(pool.next_frame().unwrap().is_some());
    assert_eq!(writer.free(), 1);
}

/// If each of the pool's blocks is full and read, no lane has room, and each needs another block.
#[test]
fn lanes_whose_blocks_are_full_and_read_keep_none() {
    let (writer, mut pool) = new_pool(3, 4);
    for lane in 0..3 {
        assert!(writer.arrive(lane, &long(1)) && writer.arrive(lane, &long(2)));
    }
    assert!(!writer.arrive(3, &long(3)));
    assert_eq!(drain(&mut pool), times(&[1, 1, 1, 2, 2, 2]));
    assert!(!pool.open(), "the last packets are no longer in use");
    assert_eq!(writer.free(), 3);
    // All blocks are used again, by other lanes too.
    for stamp in 10..40 {
        let lane = (stamp % 4) as usize;
        assert!(writer.arrive(lane, &long(stamp)) && writer.arrive(lane, &long(stamp)));
        assert_eq!(drain(&mut pool), times(&[stamp, stamp]));
        assert!(!pool.open());
        assert_eq!(writer.free(), 3, "{stamp}");
    }
}

static NOW: AtomicU64 = AtomicU64::new(0);

/// A flow's packets may move from one CPU to another. The reader looks at the first CPU's lane
/// before the move, and at the second CPU's lane after it.
#[test]
fn records_that_came_after_the_snapshots_time_wait() {
    let (writer, memory) = new_memory(BLOCK_LEN, 4, 2);
    let clocks = PoolClocks {
        now: || NOW.load(Ordering::Relaxed),
        ..CLOCKS
    };
    let mut pool = Pool::new(memory, DEVICE.ifindex, clocks);
    writer.arrive(0, &written(5));
    writer.arrive(1, &written(11));
    writer.arrive(1, &written(12));
    NOW.store(10, Ordering::Relaxed);
    assert_eq!(drain(&mut pool), times(&[5]));
    assert!(pool.is_ready(), "two records wait");
    writer.arrive(0, &written(13));
    NOW.store(20, Ordering::Relaxed);
    assert_eq!(drain(&mut pool), times(&[11, 12, 13]));
    // A record was there when the snapshot was taken, so its stamp can't be later than the next
    // snapshot, whatever it says.
    writer.arrive(1, &written(1 << 60));
    assert_eq!(drain(&mut pool), []);
    writer.arrive(0, &written(29));
    NOW.store(30, Ordering::Relaxed);
    assert_eq!(drain(&mut pool), times(&[29, 30]));
    assert!(!pool.is_ready());
}

#[test]
fn copies_that_a_dead_reader_has_left_are_passed_and_stay_unread() {
    let (writer, _pool) = new_pool(4, 2);
    for stamp in 1..=8 {
        let flags = if stamp % 4 == 0 { 0 } else { 4 };
        let packet = Written {
            flags,
            ..written(stamp)
        };
        assert!(writer.arrive(stamp as usize % 2, &packet));
    }
    let read = |without_copies: bool| {
        let mut remains = remains(&writer, 3);
        if without_copies {
            remains = remains.without_copies();
        }
        let mut stamps = Vec::new();
        while let Some(stamp) = remains.head() {
            stamps.push(stamp);
            assert_eq!(remains.next_frame().unwrap().unwrap().stamp(), stamp);
        }
        (stamps, remains.taken())
    };
    let all: Vec<u64> = (1..=8).collect();
    assert_eq!(read(false), (times(&all), 11));
    assert_eq!(read(true), (times(&[4, 8]), 5));
}

#[test]
fn what_another_process_has_read_is_read_and_its_blocks_come_back() {
    let (writer, mut pool) = new_pool(4, 1);
    for stamp in 1..=5 {
        assert!(writer.arrive(0, &long(stamp)));
    }
    // A borrower, which gives nothing back, has read three packets.
    let third = 2 * BLOCK_LEN as u64 + room_of(&long(3));
    writer.read(0).store(third, Ordering::Release);
    assert_eq!(writer.free(), 1);
    assert_eq!(drain(&mut pool), times(&[4, 5]));
    assert_eq!(writer.free(), 3);
    // Positions behind this reader, and impossible ones.
    assert!(writer.arrive(0, &long(6)));
    let end = writer.position(0).load(Ordering::Acquire);
    for read in [0, third, !7, end + 8] {
        writer.read(0).store(read, Ordering::Release);
        assert_eq!(pool.unread(), room_of(&long(6)), "{read}");
    }
    assert_eq!(drain(&mut pool), times(&[6]));
}

#[test]
fn a_record_that_makes_no_sense_ends_its_block() {
    let (writer, mut pool) = new_pool(4, 1);
    for stamp in 1..=5 {
        assert!(writer.arrive(0, &long(stamp)));
    }
    // The captured length of the first record, in the first block.
    writer.put(8, &u32::to_ne_bytes(4000));
    assert!(pool.open());
    let corrupt = pool.next_frame().unwrap_err();
    assert_eq!(corrupt.captured, 4000);
    let mut stamps = Vec::new();
    while let Some(frame) = pool.next_frame().unwrap() {
        stamps.push(frame.stamp());
    }
    assert_eq!(stamps, times(&[3, 4, 5]));
    pool.release();
    assert_eq!(writer.free(), 3);
}

#[test]
fn the_first_tag_of_a_frame_is_found() {
    let (writer, mut pool) = new_pool(2, 1);
    let mut frame_with = |flags: u16, protocols: &[u16]| {
        let mut data = vec![0; 12];
        data.extend(protocols.iter().flat_map(|word| word.to_be_bytes()));
        let packet = Written {
            data,
            flags,
            ..written(1)
        };
        writer.arrive(0, &packet);
        pool.open();
        let frame = pool.next_frame().unwrap().unwrap();
        let found = (frame.tag_inside(), frame.link().protocol);
        assert_eq!(frame.vlan(), None, "no tag beside the frame");
        pool.release();
        found
    };
    let tag = |tpid| Some(Vlan { tpid, tci: 7 });
    let tagged = [0x8100, 7, 0x86dd];
    assert_eq!(frame_with(3, &tagged), (tag(0x8100), 0x86dd), "sent");
    let untouched = "sent with a tag that the kernel has not taken out";
    assert_eq!(frame_with(1, &tagged), (None, 0x8100), "{untouched}");
    let mut frame_of = |protocols: &[u16]| frame_with(0, protocols);
    assert_eq!(frame_of(&[0x0800, 7]), (None, 0x0800));
    assert_eq!(frame_of(&[0x8100, 7, 0x86dd]), (tag(0x8100), 0x86dd));
    assert_eq!(frame_of(&[0x8100]), (None, 0x8100), "cut");
    assert_eq!(frame_of(&[46]), (None, 4), "a length");
    assert_eq!(frame_of(&[]), (None, 0));
}

#[test]
fn frames_show_the_hardware_type_of_the_device() {
    const LOOPBACK: u16 = 772;
    let (writer, memory) = new_memory(BLOCK_LEN, 4, 1);
    let mut pool = Pool::on_device(memory, DEVICE.ifindex, LOOPBACK, CLOCKS);
    assert!(writer.arrive(0, &written(1)) && pool.open());
    let link = pool.next_frame().unwrap().unwrap().link();
    assert_eq!((link.hatype, link.ifindex), (LOOPBACK, DEVICE.ifindex));
}

/// The writer of each lane and the reader run in one thread each. The reader gets complete records,
/// in the order in which each writer wrote them.
#[test]
fn records_go_between_threads() {
    const ROUNDS: u64 = 50_000;
    let (writer, mut pool) = new_pool(4, 2);
    std::thread::scope(|scope| {
        // Dropped when the reader ends, also by a panic: from then on nothing frees blocks.
        let mut reading = Vec::new();
        for lane in 0..2 {
            let (alive, ended) = mpsc::channel::<()>();
            reading.push(alive);
            let writer = writer.clone();
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let mut packet = written(round);
                    packet.filter = lane as u32;
                    packet.data = vec![round as u8; (round % 97) as usize];
                    while !writer.arrive(lane, &packet)
                        && ended.try_recv() == Err(TryRecvError::Empty)
                    {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = [1; 2];
        while next != [ROUNDS + 1; 2] {
            if !pool.open() {
                std::thread::yield_now();
                continue;
            }
            while let Some(frame) = pool.next_frame().unwrap() {
                let next = &mut next[frame.filter() as usize];
                assert_eq!(frame.stamp(), time_of(*next));
                assert_eq!(frame.data().len() as u64, *next % 97);
                assert!(frame.data().iter().all(|&byte| byte == *next as u8));
                *next += 1;
            }
            pool.release();
        }
        drop(reading);
    });
    assert_eq!(pool.taken(), 2 * ROUNDS);
    assert!(!pool.open());
    let full = (0..2).filter(|&lane| writer.is_full(lane)).count();
    assert_eq!(writer.free(), 2 + full as u32);
}
