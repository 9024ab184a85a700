//! What a process that writes a pool guarantees, whatever the pool's member does.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "lengths in here are below 4096, and a test may panic"
)]

mod pool;

use fanpcap_linux::packet::ring::Mapping;
use fanpcap_ring::pool::layout::{READER_ENTRY, WRITER_ENTRY, reader};
use fanpcap_ring::pool::{LaneWriter, NEVER, NewRecord};
use fanpcap_ring::{Layout as _, Pool, Vlan};
use pool::{
    BLOCK_LEN, CLOCKS, DEVICE, long, new_memory, new_pool, new_pool_of_two, room_of, written,
};
use proptest::prelude::*;
use std::sync::atomic::Ordering;

/// What a record shows of a packet: its bytes, its length on the wire, and whether it was sent.
type Shown = (Vec<u8>, u32, bool);

fn shown(pool: &mut Pool) -> Vec<Shown> {
    let mut all = Vec::new();
    if pool.open() {
        while let Some(frame) = pool.next_frame().unwrap() {
            let is_sent = frame.link().pkttype == 4;
            all.push((frame.data().to_vec(), frame.wire_len(), is_sent));
        }
        pool.release();
    }
    all
}

/// The frame as it was on the wire, cut to `snaplen` bytes.
fn on_the_wire(bytes: &[u8], tag: Option<[u8; 4]>, snaplen: u32) -> Vec<u8> {
    let mut whole = bytes.to_vec();
    if let Some(tag) = tag.filter(|_| bytes.len() >= 12) {
        whole.splice(12..12, tag);
    }
    whole.truncate(snaplen as usize);
    whole
}

proptest! {
    /// Records of all lengths, with tags beside them and cut, between blocks of several lanes.
    #[test]
    fn each_record_shows_the_frame_as_it_was_on_the_wire(
        packets in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..2100), any::<Option<[u8; 4]>>(),
             (0..2100_u32, any::<bool>(), 0..2_usize)), 1..40),
    ) {
        let (writer, memory) = new_memory(1 << 13, 30, 2);
        let mut pool = Pool::new(memory, DEVICE.ifindex, CLOCKS);
        let mut expected = Vec::new();
        for (now, (bytes, tag, (snaplen, is_sent, lane))) in (1..).zip(&packets) {
            let vlan = tag.map(|[a, b, c, d]| Vlan {
                tpid: u16::from_be_bytes([a, b]),
                tci: u16::from_be_bytes([c, d]),
            });
            let record = NewRecord {
                bytes,
                tag: vlan,
                wire_len: bytes.len() as u32 + 5,
                stamp_ns: now,
                is_sent: *is_sent,
                ..NewRecord::default()
            };
            prop_assert!(writer.lane(*lane).put(&record, *snaplen));
            let inserted = if tag.is_some() && bytes.len() >= 12 { 4 } else { 0 };
            let wire_len = bytes.len() as u32 + 5 + inserted;
            expected.push((on_the_wire(bytes, *tag, *snaplen), wire_len, *is_sent));
        }
        prop_assert!(!pool.is_ready(), "nothing is published");
        (0..2).for_each(|lane| _ = writer.lane(lane).publish());
        prop_assert_eq!(shown(&mut pool), expected);
    }

    /// A lane's block is never free while the lane fills it, and no more blocks become free than
    /// there are, whatever the member gives back.
    #[test]
    fn a_member_that_returns_blocks_which_it_has_not_read_gets_no_more_of_them(
        returns in proptest::collection::vec(any::<u64>(), 1..60),
    ) {
        let (writer, _pool) = new_pool(5, 3);
        for (turn, bits) in returns.into_iter().enumerate() {
            writer.readers(0, reader::RETURNED).store(bits, Ordering::Release);
            writer.arrive(turn % 3, &long(1));
            let filling: Vec<u32> = (0..3)
                .filter(|&lane| writer.position(lane).load(Ordering::Acquire) >= BLOCK_LEN as u64)
                .filter(|&lane| !writer.is_full(lane))
                .map(|lane| {
                    let sequence = writer.position(lane).load(Ordering::Acquire) / BLOCK_LEN as u64;
                    writer.table(lane, sequence).load(Ordering::Acquire) & 255
                })
                .collect();
            let mut different = filling.clone();
            different.sort_unstable();
            different.dedup();
            prop_assert_eq!(different.len(), filling.len(), "two lanes fill one block");
            prop_assert!(writer.free() as usize + filling.len() <= 5);
        }
    }
}

#[test]
fn memory_that_makes_no_pool_is_refused() {
    let begin = |rows: usize, reader_rows: usize, blocks: usize, block_len: usize| {
        let lens = [
            rows * WRITER_ENTRY as usize,
            reader_rows * READER_ENTRY as usize,
            blocks,
        ];
        let [rows, reader_rows, blocks] = lens.map(|len| Mapping::anonymous(len).unwrap());
        LaneWriter::begin(rows, reader_rows, blocks, block_len).map(|it| it.len())
    };
    assert_eq!(begin(3, 3, 5 * 4096, 4096), Some(2));
    assert_eq!(begin(1, 1, 5 * 4096, 4096), None, "no lane");
    assert_eq!(begin(3, 2, 5 * 4096, 4096), None);
    assert_eq!(begin(3, 3, 4096 + 8, 4096), None, "no whole blocks");
    assert_eq!(begin(3, 3, 3 * 4000, 4000), None, "no power of two");
    assert_eq!(begin(3, 3, 257 * 4096, 4096), None, "more than 256 blocks");
    assert_eq!(begin(3, 3, 4096, 1 << 13), None, "no block");
    assert_eq!(begin(259, 259, 5 * 4096, 4096), None, "more than 256 lanes");
}

#[test]
fn a_long_packet_is_cut_to_half_a_block_and_leaves_a_block_without_room() {
    let (writer, memory) = new_memory(2 * BLOCK_LEN, 2, 1);
    let mut pool = Pool::new(memory, DEVICE.ifindex, CLOCKS);
    let bytes = [7; 5000];
    let record = NewRecord {
        bytes: &bytes,
        wire_len: 5000,
        ..NewRecord::default()
    };
    let mut lane = writer.lane(0);
    assert!(lane.put(&record, u32::MAX) && lane.put(&record, u32::MAX));
    assert!(!lane.put(&record, u32::MAX), "each block has room for one");
    let short = NewRecord {
        bytes: &bytes[..60],
        ..record
    };
    assert!(lane.put(&short, u32::MAX), "and for a short one");
    lane.publish();
    let lens: Vec<usize> = shown(&mut pool)
        .iter()
        .map(|(bytes, ..)| bytes.len())
        .collect();
    assert_eq!(lens, [BLOCK_LEN, BLOCK_LEN, 60]);
    let counts = lane.counts();
    assert_eq!((counts.produced, counts.dropped), (3, 1));
}

#[test]
fn a_reader_is_woken_once_when_it_waits_or_a_packet_has_no_room() {
    let (writer, _pools, shared) = new_pool_of_two(2, 1);
    let words = |at: i16| writer.readers(1, at);
    let mut lane = writer.lane(0);
    let packet = |bytes| NewRecord {
        bytes,
        ..NewRecord::default()
    };
    let data = vec![7; 1900];
    assert!(!lane.publish(), "nothing is new");
    assert!(
        lane.put(&packet(&data[..60]), 60) && lane.publish(),
        "the first record"
    );
    assert!(
        lane.put(&packet(&data[..60]), 60) && !lane.publish(),
        "nobody waits"
    );
    let at = BLOCK_LEN as u64 + 4 * room_of(&written(1));
    words(reader::WAKE_AT).store(at, Ordering::Release);
    assert!(lane.put(&packet(&data[..60]), 60) && !lane.publish());
    assert!(
        lane.put(&packet(&data[..60]), 60) && lane.publish(),
        "the position has come"
    );
    assert_eq!(words(reader::WAKE_AT).load(Ordering::Acquire), NEVER);
    while lane.put(&packet(&data), u32::MAX) {
        lane.publish();
    }
    assert!(!lane.publish(), "nobody waits for packets without room");
    words(reader::WAKE_AT).store(u64::MAX - 1, Ordering::Release);
    assert!(!lane.put(&packet(&data), u32::MAX) && lane.publish());
    assert!(!lane.publish(), "woken once");
    // A member that always wants to be woken is woken once for each call.
    words(reader::WAKE_AT).store(0, Ordering::Release);
    assert!(!lane.put(&packet(&data), u32::MAX) && lane.publish() && !lane.publish());
    assert!(lane.counts().dropped > 2);
    assert_eq!(shared.counts(0), lane.counts());
}
