//! Reads BPF ring buffers that are written as the kernel and a BPF program write them. Records come
//! in time order. Garbage does no harm.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "lengths in here are below 4096, and a test may panic"
)]

mod program;

use fanpcap_ring::{Records, Stamp, Vlan};
use program::{DEVICE, DISCARDED, LEN, OFFSET, Program, Written, device, written};
use proptest::prelude::*;
use std::sync::mpsc::{self, TryRecvError};

fn packet() -> impl Strategy<Value = Written> {
    let data = proptest::collection::vec(any::<u8>(), 0..200);
    let numbers = (0..u64::MAX / 2, 0..1000_u32, any::<u32>(), 0..40_u32);
    (data, 0..4_u16, numbers).prop_map(|(data, flags, (stamp, cut, filter, spare))| Written {
        stamp,
        data,
        cut,
        flags,
        filter,
        spare,
    })
}

fn time_of(stamp: u64) -> Stamp {
    let time = stamp + OFFSET;
    Stamp {
        seconds: (time / 1_000_000_000) as u32,
        nanoseconds: (time % 1_000_000_000) as u32,
    }
}

/// Reads a snapshot to its end. Returns the stamps of its records.
fn drain(records: &mut Records) -> Vec<Stamp> {
    let mut stamps = Vec::new();
    if records.open() {
        while let Some(frame) = records.next_frame().unwrap() {
            stamps.push(frame.stamp());
        }
        assert!(records.is_spent());
        records.release();
    }
    stamps
}

fn times(stamps: &[u64]) -> Vec<Stamp> {
    stamps.iter().copied().map(time_of).collect()
}

proptest! {
    #[test]
    fn records_are_read_as_they_were_written(
        rounds in proptest::collection::vec(proptest::collection::vec(packet(), 0..60), 1..20),
    ) {
        let (programs, mut records) = device(1);
        let mut taken = 0;
        for packets in &rounds {
            for packet in packets {
                prop_assert!(programs[0].arrive(packet), "the ring has room again");
            }
            prop_assert_eq!(records.is_ready(), !packets.is_empty());
            prop_assert_eq!(records.open(), !packets.is_empty());
            for packet in packets {
                let frame = records.next_frame().unwrap().unwrap();
                prop_assert_eq!(frame.data(), &packet.data);
                prop_assert_eq!(frame.wire_len(), packet.data.len() as u32 + packet.cut);
                prop_assert_eq!(frame.stamp(), time_of(packet.stamp));
                prop_assert_eq!(frame.filter(), packet.filter);
                let link = frame.link();
                let pkttype = if packet.flags & 1 == 1 { 4 } else { 0 };
                prop_assert_eq!(
                    (link.ifindex, link.hatype, link.pkttype),
                    (DEVICE.ifindex, DEVICE.hatype, pkttype)
                );
                taken += 1;
            }
            prop_assert!(records.next_frame().unwrap().is_none());
            prop_assert_eq!(records.taken(), taken);
            records.release();
            prop_assert_eq!(programs[0].consumer(), programs[0].producer());
        }
    }

    #[test]
    fn lanes_are_merged_by_time(
        rounds in proptest::collection::vec(
            proptest::collection::vec((0..4_usize, 0..3_u64, 0..10_u8), 0..40), 1..10),
    ) {
        let (programs, mut records) = device(4);
        let mut now = 0;
        for arrivals in rounds {
            let mut expected = Vec::new();
            for (lane, later, what) in arrivals {
                now += later;
                let position = programs[lane].reserve(84).unwrap();
                programs[lane].fill(position, &written(now));
                let is_discarded = what == 0;
                programs[lane].commit(position, if is_discarded { DISCARDED } else { 0 });
                expected.extend((!is_discarded).then_some(now));
            }
            prop_assert_eq!(drain(&mut records), times(&expected));
        }
        for program in programs {
            prop_assert_eq!(program.consumer(), program.producer());
        }
    }

    #[test]
    fn garbage_harms_nothing(
        garbage in proptest::collection::vec(any::<u8>(), 512),
        words in proptest::collection::vec((0..60_u64, prop_oneof![0..200_u32, any::<u32>()]), 0..20),
        producer in prop_oneof![0..1024_u64, any::<u64>()],
        read in prop_oneof![0..1024_u64, any::<u64>()],
        lanes in 1..3_usize,
    ) {
        let (programs, mut records) = device(lanes);
        for program in &programs {
            program.put(0, &garbage);
            for &(at, word) in &words {
                program.put(at * 8, &word.to_ne_bytes());
            }
            program.set_producer(producer);
            program.set_read(read);
        }
        let rings = programs.iter().map(Program::copy).collect();
        let mut others = Records::new(rings, &DEVICE, || OFFSET).unwrap();
        let mut sum = 0_usize;
        for records in [&mut records, &mut others] {
            for _ in 0..4 {
                records.is_ready();
                records.open();
                let mut count = 0;
                while records.is_open() && !records.is_spent() && count <= 4 * LEN / 8 {
                    if let Ok(Some(frame)) = records.next_frame() {
                        sum += frame.data().iter().map(|&byte| usize::from(byte)).sum::<usize>();
                        let _ = (frame.link(), frame.tag_inside(), frame.filter());
                    }
                    count += 1;
                }
                prop_assert!(count <= 4 * LEN / 8);
                records.release();
            }
        }
        prop_assert!(sum < usize::MAX);
    }
}

#[test]
fn what_another_process_has_read_is_read() {
    let (programs, mut records) = device(1);
    for stamp in 1..=5 {
        assert!(programs[0].arrive(&written(stamp)));
    }
    let end = programs[0].producer();
    programs[0].set_read(end / 5 * 3);
    assert!(records.is_ready());
    assert_eq!(drain(&mut records), times(&[4, 5]));
    assert_eq!(programs[0].consumer(), end);
    // The other process has read less than this one, or its position is impossible.
    assert!(programs[0].arrive(&written(6)));
    for read in [0, end - 8, !7, programs[0].producer() + 8] {
        programs[0].set_read(read);
        assert!(records.is_ready(), "{read}");
    }
    assert_eq!(drain(&mut records), times(&[6]));
}

#[test]
fn room_that_another_process_has_given_back_stays_given() {
    let (programs, mut records) = device(1);
    assert!(programs[0].arrive(&written(1)));
    assert!(records.open() && records.next_frame().unwrap().is_some());
    for stamp in 2..=5 {
        assert!(programs[0].arrive(&written(stamp)));
    }
    let end = programs[0].producer();
    programs[0].set_consumer(end);
    records.release();
    assert_eq!(programs[0].consumer(), end);
    assert_eq!(
        drain(&mut records),
        times(&[2, 3, 4, 5]),
        "no process has read them"
    );
    assert_eq!(programs[0].consumer(), end);
}

#[test]
fn room_that_somebody_has_taken_away_is_given_again() {
    let (programs, mut records) = device(1);
    assert!(programs[0].arrive(&written(1)));
    assert_eq!(drain(&mut records), times(&[1]));
    let given = programs[0].consumer();
    // Two positions: one after all records, at which the kernel finds no room, and one far before
    // them.
    for (stamp, wrong) in [(2, 0x1000_0000), (3, given.wrapping_sub(1 << 40))] {
        let given = programs[0].consumer();
        programs[0].set_consumer(wrong);
        assert!(!records.open());
        assert_eq!(programs[0].consumer(), given);
        assert!(programs[0].arrive(&written(stamp)));
        assert_eq!(drain(&mut records), times(&[stamp]));
    }
}

#[test]
fn a_record_that_is_not_committed_ends_the_snapshot_of_its_lane() {
    let (programs, mut records) = device(2);
    let [first, second] = &programs[..] else {
        panic!()
    };
    first.arrive(&written(1));
    let busy = first.reserve(84).unwrap();
    first.arrive(&written(3));
    second.arrive(&written(4));
    assert_eq!(drain(&mut records), times(&[1, 4]));
    assert!(!records.is_ready() && !records.open());
    first.fill(busy, &written(2));
    first.commit(busy, 0);
    assert!(records.is_ready());
    assert_eq!(drain(&mut records), times(&[2, 3]));
}

#[test]
fn room_goes_back_while_a_long_snapshot_is_read() {
    let (programs, mut records) = device(1);
    let mut packet = written(1);
    packet.data = vec![0; 1000];
    while programs[0].arrive(&packet) {}
    assert!(records.open());
    assert!(records.next_frame().unwrap().is_some());
    assert_eq!(programs[0].consumer(), 0);
    assert_eq!(programs[0].read(), 1040, "the reader's stored position");
    while records.next_frame().unwrap().is_some() {}
    assert!(!programs[0].arrive(&packet), "less than 64 KiB were read");
    records.release();
    assert!(programs[0].arrive(&packet));
}

#[test]
fn the_first_tag_of_a_frame_is_found() {
    let (programs, mut records) = device(1);
    let mut frame_with = |flags: u16, protocols: &[u16]| {
        let mut data = vec![0; 12];
        data.extend(protocols.iter().flat_map(|word| word.to_be_bytes()));
        let packet = Written {
            data,
            flags,
            ..written(1)
        };
        programs[0].arrive(&packet);
        records.open();
        let frame = records.next_frame().unwrap().unwrap();
        let found = (frame.tag_inside(), frame.link().protocol);
        assert_eq!(frame.vlan(), None, "no tag beside the frame");
        records.release();
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
    assert_eq!(
        frame_of(&[0x88a8, 7, 0x8100, 9, 0x0800]),
        (tag(0x88a8), 0x8100)
    );
    assert_eq!(frame_of(&[0x8100]), (None, 0x8100), "cut");
    assert_eq!(frame_of(&[46]), (None, 4), "a length");
    assert_eq!(frame_of(&[]), (None, 0));
}

/// The BPF program and the reader run in one thread each. The reader gets complete records, in the
/// order in which the BPF program wrote them.
#[test]
fn records_go_between_threads() {
    const ROUNDS: u64 = 50_000;
    let (programs, mut records) = device(1);
    std::thread::scope(|scope| {
        // Dropped when the reader ends, also by a panic: from then on nothing makes room in the
        // ring.
        let (_reading, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            let program = &programs[0];
            for round in 1..=ROUNDS {
                let mut packet = written(round);
                packet.data = vec![round as u8; (round % 97) as usize];
                while !program.arrive(&packet) && ended.try_recv() == Err(TryRecvError::Empty) {
                    std::thread::yield_now();
                }
            }
        });
        let mut next = 1;
        while next <= ROUNDS {
            if !records.open() {
                std::thread::yield_now();
                continue;
            }
            while let Some(frame) = records.next_frame().unwrap() {
                assert_eq!(frame.stamp(), time_of(next));
                assert_eq!(frame.data().len() as u64, next % 97);
                assert!(frame.data().iter().all(|&byte| byte == next as u8));
                next += 1;
            }
            records.release();
        }
    });
    assert_eq!(records.taken(), ROUNDS);
}
