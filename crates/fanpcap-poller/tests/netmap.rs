//! The source `netmap` on memory that is laid out as netmap's kernel module does. No test has the
//! module: a stand-in does what the module's system calls do.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/netmap_module.rs"]
mod module;

use fanpcap_linux::wait::clock;
use fanpcap_poller::netmap::NetmapSource;
use fanpcap_poller::{Burst, Packet, Source, SourceError};
use fanpcap_ring::NetmapRing;
use module::{BUFFER_LEN, Calls, INTERFACE, MORE_FRAGMENTS, Memory, Module, RX, ring_at};
use proptest::prelude::*;
use std::time::Duration;

/// The source of a receive ring, and the module's side.
fn source(slots: u32, ring: u16) -> (NetmapSource<Calls>, Calls) {
    let module = Module::new(slots, ring);
    let rings = NetmapRing::new(module.map(), INTERFACE, ring).unwrap();
    let calls = Calls::on(module);
    (NetmapSource::new(rings, calls.clone(), ring), calls)
}

/// What one burst has.
fn burst<T>(source: &mut dyn Source, each: impl Fn(&Packet<'_>) -> T) -> Vec<T> {
    let mut burst = Burst::new();
    source.burst(&mut burst).unwrap();
    let found = burst.packets().iter().map(each).collect();
    source.release();
    found
}

fn bytes(source: &mut dyn Source) -> Vec<Vec<u8>> {
    burst(source, |packet| packet.frame.bytes.to_vec())
}

/// A frame with this number, of 60 bytes and more.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![7; 60 + number as usize % 100];
    frame[..4].copy_from_slice(&number.to_be_bytes());
    frame
}

#[test]
fn each_packet_comes_once_and_in_order() {
    for ring in 0..2 {
        let (mut source, calls) = source(16, ring);
        let before = calls.module().others();
        let frames: Vec<Vec<u8>> = (0..1000).map(frame).collect();
        frames
            .iter()
            .for_each(|frame| calls.module().receive(&[frame]));
        let mut found = Vec::new();
        while found.len() < frames.len() {
            let some = bytes(&mut source);
            assert!(!some.is_empty(), "only {} packets", found.len());
            found.extend(some);
        }
        assert_eq!(found, frames);
        assert!(bytes(&mut source).is_empty());
        assert_eq!(calls.module().others(), before, "another ring has changed");
        let counts = source.counts();
        assert_eq!((counts.received, counts.dropped), (1000, 0));
        assert_eq!((source.queue(), counts.starved > 0), (ring, true));
    }
}

#[test]
fn a_ring_with_room_has_lost_nothing() {
    let (mut source, calls) = source(16, 0);
    for number in 0..100 {
        calls.module().receive(&[&frame(number)]);
        calls.module().receive(&[&frame(number)]);
        assert_eq!(bytes(&mut source).len(), 2);
    }
    assert_eq!(source.counts().starved, 0);
}

#[test]
fn a_ring_that_poll_finds_full_is_counted_once() {
    let (mut source, calls) = source(256, 0);
    for round in 1..=3 {
        (0..300).for_each(|it| calls.module().receive(&[&frame(it)]));
        // The thread had no packets, and waited by poll(2).
        calls.module().sync().unwrap();
        // Bursts that take nothing find the ring as full as before.
        for _ in 1..round {
            source.burst(&mut Burst::of(0)).unwrap();
            source.release();
        }
        // Of the 255 packets in the ring, one burst has 64. The next one syncs.
        let mut found = 0;
        while found < 300 {
            found += bytes(&mut source).len();
            assert_eq!(source.counts().starved, round, "after {found} packets");
        }
    }
    calls.module().sync().unwrap();
    assert!(bytes(&mut source).is_empty());
    assert_eq!(source.counts().starved, 3);
}

#[test]
fn a_packet_of_several_buffers_is_put_together() {
    let (mut source, calls) = source(16, 1);
    let parts = [vec![1; BUFFER_LEN], vec![2; BUFFER_LEN], vec![3; 10]];
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    // The second one is at the ring's end, and goes on at its beginning.
    for round in 0..5 {
        calls.module().receive(&[&frame(round)]);
        calls.module().receive(&parts);
        calls.module().receive(&parts[1..]);
        calls.module().receive(&[&frame(round + 1)]);
        let (first, second) = (bytes(&mut source), bytes(&mut source));
        assert_eq!(first, [frame(round), parts.concat()]);
        assert_eq!(second, [parts[1..].concat()]);
        assert_eq!(bytes(&mut source), [frame(round + 1)]);
    }
    assert_eq!(source.counts().received, 20);
}

#[test]
fn a_packet_whose_end_has_not_come_waits() {
    let (mut source, calls) = source(16, 0);
    calls.module().receive(&[&frame(1)]);
    calls.module().receive_part(&[4; 100]);
    assert_eq!(bytes(&mut source), [frame(1)]);
    assert!(bytes(&mut source).is_empty());
    assert!(bytes(&mut source).is_empty());
    calls.module().receive(&[&[5; 100]]);
    assert_eq!(bytes(&mut source), [[[4; 100], [5; 100]].concat()]);
}

#[test]
fn a_packet_that_is_too_long_is_counted() {
    let (mut source, calls) = source(64, 0);
    let part = [9; BUFFER_LEN];
    calls.module().receive(&[&part[..]; 33]);
    calls.module().receive(&[&frame(1)]);
    assert_eq!(bytes(&mut source), [frame(1)]);
    let counts = source.counts();
    assert_eq!((counts.received, counts.dropped), (2, 1));
    // The ring is full of one packet that has no end.
    let (mut source, calls) = self::source(16, 0);
    (0..15).for_each(|_| calls.module().receive_part(&[8; 10]));
    assert!(bytes(&mut source).is_empty());
    calls.module().receive(&[&frame(2)]);
    assert_eq!(bytes(&mut source), [frame(2)]);
    assert_eq!(source.counts().dropped, 1);
}

#[test]
fn the_module_gets_slots_while_packets_come() {
    let (mut source, calls) = source(1024, 0);
    (0..1500).for_each(|it| calls.module().receive(&[&frame(it)]));
    // Four bursts of 64 are a quarter of the slots.
    (0..5).for_each(|_| assert_eq!(bytes(&mut source).len(), 64));
    let module = calls.module();
    assert_eq!((module.syncs, module.left()), (2, 1500 - 1023 - 256));
    assert!(source.has_filled(3));
}

#[test]
fn a_packet_has_the_time_of_its_system_call() {
    let (mut source, calls) = source(16, 0);
    let offset_ns = clock::realtime_offset_ns();
    let time = Duration::from_micros(1_234_567) + Duration::from_nanos(offset_ns);
    calls.module().time = time;
    calls.module().receive(&[&frame(1)]);
    let stamps = burst(&mut source, |packet| packet.stamp_ns.unwrap());
    // The two clocks may move against each other, and the ring has microseconds.
    assert!(
        stamps[0].abs_diff(1_234_567_000) < 100_000_000,
        "{stamps:?}"
    );
}

#[test]
fn a_device_that_was_removed_is_gone() {
    let (mut source, calls) = source(16, 0);
    let fails = |source: &mut NetmapSource<Calls>, error| {
        calls.module().error = Some(error);
        source.burst(&mut Burst::new()).unwrap_err()
    };
    assert!(matches!(fails(&mut source, 6), SourceError::Gone));
    assert!(matches!(fails(&mut source, 22), SourceError::Other(_)));
    calls.module().error = None;
    calls.module().receive(&[&frame(3)]);
    assert_eq!(bytes(&mut source), [frame(3)]);
    assert!(source.transmit(&frame(4)).unwrap());
    assert_eq!(calls.module().sent, [frame(4)]);
}

#[test]
fn memory_without_such_a_ring_is_refused() {
    let number = u16::try_from(RX).unwrap();
    let memory = Memory::new(16);
    let is_ring = |memory: &Memory, at, number| NetmapRing::new(memory.map(), at, number).is_some();
    assert!(is_ring(&memory, INTERFACE, number - 1));
    assert!(!is_ring(&memory, INTERFACE, number), "the host's ring");
    assert!(!is_ring(&memory, usize::MAX - 3, 0));
    for (offset, word) in [(8, 0_u32), (8, u32::MAX), (12, 0), (20, 16)] {
        let memory = Memory::new(16);
        memory.put(ring_at(0) + offset, &word.to_ne_bytes());
        assert!(!is_ring(&memory, INTERFACE, 0), "{word} at {offset}");
    }
}

#[test]
fn a_buffer_outside_of_the_memory_is_an_error() {
    let memory = Memory::new(16);
    let len = u32::try_from(BUFFER_LEN).unwrap();
    for (number, len) in [(u32::MAX, len), (16 << 20, len), (u32::MAX, u32::MAX)] {
        memory.put(ring_at(0) + 12, &len.to_ne_bytes());
        memory.put(ring_at(0) + 256, &number.to_ne_bytes());
        memory.put(ring_at(0) + 256 + 4, &60_u16.to_ne_bytes());
        memory.put(ring_at(0) + 28, &1_u32.to_ne_bytes());
        let mut ring = NetmapRing::new(memory.map(), INTERFACE, 0).unwrap();
        assert!(ring.lend(64, |_| panic!("lent")).is_err());
    }
    // The module says that a buffer has more bytes than it has.
    let (mut source, calls) = source(16, 0);
    calls.module().receive(&[&[1; BUFFER_LEN + 1]]);
    calls.module().receive(&[&frame(1)]);
    let error = source.burst(&mut Burst::new()).unwrap_err();
    assert!(matches!(error, SourceError::Corrupt));
    source.release();
    assert_eq!(bytes(&mut source), [frame(1)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the memory has, packets are in it, and nothing else is read.
    #[test]
    fn garbage_does_no_harm(
        words in prop::collection::vec((0_u64..2048, any::<u32>()), 0..12),
        tails in prop::collection::vec((0_u32..20, 0_u16..4000, any::<bool>()), 1..40),
    ) {
        let memory = Memory::new(16);
        for (at, word) in words {
            // The ring, or the device's struct.
            let base = if at < 1024 { ring_at(0) } else { INTERFACE as u64 - 1024 };
            memory.put(base + at % 1024 / 4 * 4 + at / 1024 * 1024, &word.to_ne_bytes());
        }
        let Some(mut ring) = NetmapRing::new(memory.map(), INTERFACE, 0) else {
            return Ok(());
        };
        for (tail, len, has_more) in tails {
            let flags = if has_more { MORE_FRAGMENTS } else { 0 };
            memory.put(ring_at(0) + 28, &tail.to_ne_bytes());
            let slot = ring_at(0) + 256 + u64::from(tail % 16) * 16;
            memory.put(slot + 4, &len.to_ne_bytes());
            memory.put(slot + 6, &flags.to_ne_bytes());
            let mut sum = 0_u64;
            let _ = ring.lend(64, |bytes| {
                sum += bytes.iter().map(|it| u64::from(*it)).sum::<u64>();
            });
            prop_assert!(ring.release() <= ring.count());
        }
    }
}
