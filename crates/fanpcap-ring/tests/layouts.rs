//! Reads rings that are written as the kernel writes them. Rings full of garbage do no harm.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lengths in here are below 4096"
)]

mod kernel;

use fanpcap_linux::packet::ring::Mapping;
use fanpcap_ring::{Blocks, Frames, Layout as _, Vlan};
use kernel::{BLOCK, DESCRIPTOR, FRAME, HEAD_V3, Memory, Packet};
use proptest::prelude::*;

fn packet() -> impl Strategy<Value = Packet> {
    (
        proptest::collection::vec(any::<u8>(), 0..200),
        0..1000_u32,
        any::<u32>(),
        0..1_000_000_000_u32,
        proptest::option::of((any::<u16>(), any::<u16>())),
        0..7_u8,
        any::<u32>(),
        4..40_usize,
    )
        .prop_map(
            |(data, cut, seconds, nanoseconds, vlan, pkttype, ifindex, reserve)| Packet {
                data,
                cut,
                seconds,
                nanoseconds,
                vlan,
                pkttype,
                ifindex,
                reserve,
            },
        )
}

fn check(frame: &fanpcap_ring::Frame<'_>, packet: &Packet) {
    assert_eq!(frame.data(), packet.data);
    assert_eq!(frame.wire_len(), packet.data.len() as u32 + packet.cut);
    let stamp = frame.stamp();
    assert_eq!(
        (stamp.seconds, stamp.nanoseconds),
        (packet.seconds, packet.nanoseconds)
    );
    let vlan = packet.vlan.map(|(tpid, tci)| Vlan { tpid, tci });
    assert_eq!(frame.vlan(), vlan);
    let link = frame.link();
    assert_eq!(
        (link.protocol, link.hatype, link.pkttype, link.ifindex),
        (0x0800, 1, packet.pkttype, packet.ifindex)
    );
}

/// The packet as it was on the wire, with its tag.
fn with_tag(packet: &Packet, at: usize) -> Vec<u8> {
    match packet.vlan {
        Some((tpid, tci)) if packet.data.len() >= at => {
            let tag = [tpid.to_be_bytes(), tci.to_be_bytes()].concat();
            [&packet.data[..at], &tag, &packet.data[at..]].concat()
        }
        _ => packet.data.clone(),
    }
}

proptest! {
    /// A reader whose device is gone reads blocks that the kernel has not closed. If the device
    /// comes back, the kernel adds packets to the same block.
    #[test]
    fn packets_are_read_once_before_and_after_their_block_is_closed(
        rounds in proptest::collection::vec(
            (proptest::collection::vec(packet(), 0..12), 0..12_usize, 0..12_usize),
            1..8,
        ),
    ) {
        let mapping = Mapping::anonymous(3 * BLOCK).unwrap();
        let memory = Memory::of(&mapping);
        let mut blocks = Blocks::new(mapping, BLOCK, 3).unwrap();
        let mut taken = 0;
        for (round, (packets, first, second)) in rounds.iter().enumerate() {
            let sequence = round as u64 + 1;
            let most = memory.put_open_block(round % 3, sequence, packets);
            let mut read = 0;
            for come in [*first.min(second), *first.max(second)] {
                let come = memory.put_open_block(round % 3, sequence, &packets[..come.min(most)]);
                prop_assert_eq!(blocks.open_last(), come > read);
                for packet in &packets[read..come] {
                    check(&blocks.next_frame().unwrap().unwrap(), packet);
                }
                prop_assert_eq!(blocks.taken(), taken + come as u64);
                prop_assert!(blocks.release().is_none() && !blocks.open_last());
                read = come;
            }
            memory.put_numbered_block(round % 3, sequence, packets);
            prop_assert!(blocks.open_last() && blocks.open());
            for packet in &packets[read..most] {
                check(&blocks.next_frame().unwrap().unwrap(), packet);
            }
            taken += most as u64;
            prop_assert!(blocks.is_spent() && blocks.taken() == taken);
            prop_assert!(blocks.release().is_some());
            // The next block still has the number that it had a lap ago.
            prop_assert!(!blocks.open_last());
        }
    }

    #[test]
    fn blocks_are_read_as_they_were_written(
        rounds in proptest::collection::vec(proptest::collection::vec(packet(), 0..20), 1..8),
    ) {
        let mapping = Mapping::anonymous(3 * BLOCK).unwrap();
        let memory = Memory::of(&mapping);
        let mut blocks = Blocks::new(mapping, BLOCK, 3).unwrap();
        for (round, packets) in rounds.iter().enumerate() {
            prop_assert!(!blocks.open());
            let count = memory.put_block(round % 3, packets);
            prop_assert!(blocks.open());
            for packet in &packets[..count] {
                let mut frame = blocks.next_frame().unwrap().unwrap();
                check(&frame, packet);
                frame.reinsert_tag(12).unwrap();
                prop_assert_eq!(frame.data(), with_tag(packet, 12));
            }
            prop_assert!(blocks.is_spent() && blocks.next_frame().unwrap().is_none());
            prop_assert!(blocks.release().is_some());
            prop_assert_eq!(memory.u32(round % 3 * BLOCK + 8), 0, "the block is the kernel's");
        }
    }

    #[test]
    fn lent_packets_are_those_of_the_block_and_stay_readable(
        packets in proptest::collection::vec(packet(), 0..20),
        most in 1..9_usize,
    ) {
        let mapping = Mapping::anonymous(2 * BLOCK).unwrap();
        let memory = Memory::of(&mapping);
        let mut blocks = Blocks::new(mapping, BLOCK, 2).unwrap();
        let count = memory.put_block(0, &packets);
        prop_assert!(blocks.open());
        for packets in packets[..count].chunks(most) {
            let mut lent = Vec::new();
            blocks.lend(most, |frame| lent.push(frame)).unwrap();
            prop_assert_eq!(lent.len(), packets.len());
            for (frame, packet) in lent.iter().zip(packets) {
                prop_assert_eq!(frame.bytes, &packet.data);
                prop_assert_eq!(frame.wire_len, packet.data.len() as u32 + packet.cut);
                prop_assert_eq!(frame.stamp.nanoseconds, packet.nanoseconds);
                let vlan = packet.vlan.map(|(tpid, tci)| Vlan { tpid, tci });
                prop_assert_eq!((frame.vlan, frame.pkttype), (vlan, packet.pkttype));
            }
        }
        prop_assert!(blocks.is_spent() && blocks.taken() == count as u64);
        let mut more = 0;
        blocks.lend(most, |_| more += 1).unwrap();
        prop_assert_eq!(more, 0);
    }

    #[test]
    fn frames_are_read_as_they_were_written(packets in proptest::collection::vec(packet(), 1..40)) {
        let mapping = Mapping::anonymous(2 * BLOCK).unwrap();
        let memory = Memory::of(&mapping);
        let mut frames = Frames::new(mapping, BLOCK, FRAME, 16).unwrap();
        for (number, packet) in packets.iter().enumerate() {
            prop_assert!(!frames.is_ready() && frames.next_frame().unwrap().is_none());
            memory.put_v2(number % 16 * FRAME, packet);
            let mut frame = frames.next_frame().unwrap().unwrap();
            check(&frame, packet);
            frame.reinsert_tag(12).unwrap();
            prop_assert_eq!(frame.data(), with_tag(packet, 12));
            prop_assert!(frames.is_held());
            frames.release();
            prop_assert_eq!(memory.u32(number % 16 * FRAME), 0, "the frame is the kernel's");
        }
    }

    #[test]
    fn a_block_of_garbage_harms_nothing(
        garbage in proptest::collection::vec(any::<u8>(), BLOCK),
        first in prop_oneof![0..128_u32, any::<u32>()],
        packets in prop_oneof![0..64_u32, any::<u32>()],
    ) {
        let mapping = Mapping::anonymous(2 * BLOCK).unwrap();
        let memory = Memory::of(&mapping);
        let mut blocks = Blocks::new(mapping, BLOCK, 2).unwrap();
        memory.put(BLOCK - garbage.len(), &garbage);
        memory.put_u32(8, 1);
        memory.put_u32(12, packets);
        memory.put_u32(16, first);
        blocks.open();
        let mut sum = 0_usize;
        for _ in 0..10_000 {
            match blocks.next_frame() {
                Ok(None) => break,
                Ok(Some(mut frame)) => {
                    let _ = frame.reinsert_tag(12);
                    sum += frame.data().iter().map(|&byte| usize::from(byte)).sum::<usize>();
                }
                Err(_) => {}
            }
        }
        prop_assert!(sum < usize::MAX);
        blocks.release();
    }

    #[test]
    fn a_frame_of_garbage_harms_nothing(garbage in proptest::collection::vec(any::<u8>(), FRAME)) {
        let mapping = Mapping::anonymous(BLOCK).unwrap();
        let memory = Memory::of(&mapping);
        let mut frames = Frames::new(mapping, BLOCK, FRAME, 8).unwrap();
        memory.put(0, &garbage);
        memory.put_u32(0, 1);
        if let Ok(Some(mut frame)) = frames.next_frame() {
            let _ = frame.reinsert_tag(12);
            prop_assert!(frame.data().len() <= FRAME);
        }
        frames.release();
    }
}

#[test]
fn a_ring_that_does_not_fit_its_memory_is_none() {
    let mapping = || Mapping::anonymous(2 * BLOCK).unwrap();
    assert!(Blocks::new(mapping(), BLOCK, 3).is_none());
    assert!(Blocks::new(mapping(), BLOCK, 0).is_none());
    assert!(Blocks::new(mapping(), usize::MAX, 2).is_none());
    assert!(Frames::new(mapping(), BLOCK, FRAME, 17).is_none());
    assert!(Frames::new(mapping(), BLOCK, 0, 8).is_none());
    assert!(Frames::new(mapping(), BLOCK, FRAME, 0).is_none());
    assert!(Frames::new(mapping(), 64, FRAME, 8).is_none());
}

/// A new filter must run on all packets that the former filter let in: `pending` must never count
/// too few blocks.
#[test]
fn what_may_hold_old_packets_is_what_is_ready_and_what_the_kernel_fills() {
    let mapping = Mapping::anonymous(4 * BLOCK).unwrap();
    let memory = Memory::of(&mapping);
    let mut blocks = Blocks::new(mapping, BLOCK, 4).unwrap();
    assert_eq!(blocks.pending(), 2);
    memory.put_block(0, &[]);
    assert_eq!(blocks.pending(), 3);
    blocks.open();
    assert_eq!(blocks.pending(), 3, "with the block that is being read");
    memory.put_block(1, &[]);
    memory.put_block(2, &[]);
    memory.put_block(3, &[]);
    assert_eq!(blocks.pending(), 4);
    blocks.release();
    assert_eq!(blocks.pending(), 4);
}

/// The reader and the kernel run in one thread each. Each side finds complete what the other hands
/// over.
#[test]
fn blocks_go_to_and_fro_between_threads() {
    use std::sync::atomic::Ordering;

    const ROUNDS: u32 = 20_000;
    let mapping = Mapping::anonymous(3 * BLOCK).unwrap();
    let memory = Memory::of(&mapping);
    let mut blocks = Blocks::new(mapping, BLOCK, 3).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 0..ROUNDS {
                let begin = round as usize % 3 * BLOCK;
                let status = memory.status(begin + 8);
                while status.load(Ordering::Acquire) != 0 {
                    std::hint::spin_loop();
                }
                let at = begin + DESCRIPTOR;
                memory.put_u32(at, 0);
                memory.put_u32(at + 12, 4);
                memory.put_u32(at + 16, 4);
                memory.put(at + 24, &(HEAD_V3 as u16).to_ne_bytes());
                memory.put_u32(at + HEAD_V3, round);
                memory.put_u32(begin + 12, 1);
                memory.put_u32(begin + 16, DESCRIPTOR as u32);
                status.store(1, Ordering::Release);
            }
        });
        for round in 0..ROUNDS {
            while !blocks.open() {
                std::hint::spin_loop();
            }
            let frame = blocks.next_frame().unwrap().unwrap();
            assert_eq!(frame.data(), round.to_ne_bytes());
            blocks.release();
        }
    });
}
