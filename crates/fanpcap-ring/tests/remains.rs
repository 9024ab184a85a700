//! Wherever a reader dies, its successors get each packet that it has left unread, and get it once.
//! Garbage does no harm.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "lengths in here are below 4096, and a test may panic"
)]

mod kernel;

use fanpcap_linux::packet::ring::Mapping;
use fanpcap_ring::{Blocks, Frames, Layout as _, Mark, Position, Remains};
use kernel::{BLOCK, FRAME, Memory, Packet};
use proptest::prelude::*;

const COUNT: usize = 4;
const FRAMES: usize = 16;

/// The packet that arrives as number `number`.
fn packet(number: u32) -> Packet {
    Packet {
        data: vec![0; 60],
        cut: 0,
        seconds: 7,
        nanoseconds: number,
        vlan: None,
        pkttype: 0,
        ifindex: 2,
        reserve: 32,
    }
}

/// Reads up to `most` of the remaining packets. Returns the position after them.
fn adopt(remains: &mut Remains, most: usize, got: &mut Vec<u32>) -> Position {
    for _ in 0..most {
        let Some(stamp) = remains.head() else {
            break;
        };
        let frame = remains.next_frame().unwrap().unwrap();
        assert_eq!(frame.stamp(), stamp);
        got.push(stamp.nanoseconds);
    }
    Position {
        taken: remains.taken(),
        mark: remains.mark().unwrap_or_default(),
    }
}

/// A ring of blocks, with both sides.
struct Ring {
    memory: Memory,
    blocks: Blocks,
    arrived: u32,
    opened: u64,
    got: Vec<u32>,
    mark: Mark,
}

impl Ring {
    fn new() -> Self {
        let mapping = Mapping::anonymous(COUNT * BLOCK).unwrap();
        let memory = Memory::of(&mapping);
        let blocks = Blocks::new(mapping, BLOCK, COUNT).unwrap();
        let mark = blocks.mark().unwrap();
        Self {
            memory,
            blocks,
            arrived: 0,
            opened: 0,
            got: Vec::new(),
            mark,
        }
    }

    /// The kernel opens the next block, if the block is the kernel's, and writes `packets` packets
    /// to it.
    fn arrive(&mut self, packets: u32, is_closed: bool) {
        let index = self.opened as usize % COUNT;
        if self.memory.u32(index * BLOCK + 8) != 0 {
            return;
        }
        self.opened += 1;
        let numbers = self.arrived..self.arrived + packets;
        let packets: Vec<Packet> = numbers.map(packet).collect();
        self.memory.put_open_block(index, self.opened, &packets);
        self.arrived += packets.len() as u32;
        if is_closed {
            self.memory.put_u32(index * BLOCK + 8, 1);
        }
    }

    /// The reader reads up to `most` packets. After it has released a block, the reader publishes
    /// its mark, unless the reader dies in between.
    fn read(&mut self, most: usize, dies_between: bool) {
        for _ in 0..most {
            if self.blocks.is_spent() {
                self.blocks.release();
                if dies_between {
                    return;
                }
                self.mark = self.blocks.mark().unwrap();
            }
            if !self.blocks.open() {
                return;
            }
            if let Some(frame) = self.blocks.next_frame().unwrap() {
                self.got.push(frame.stamp().nanoseconds);
            }
        }
    }

    fn position(&self) -> Position {
        let (taken, mark) = (self.blocks.taken(), self.mark);
        Position { taken, mark }
    }
}

fn remains_of(mapping: Mapping, position: Position) -> Remains {
    let blocks = Blocks::new(mapping, BLOCK, COUNT).unwrap();
    Remains::of(fanpcap_ring::Ring::V3(blocks), position)
}

proptest! {
    #[test]
    fn each_packet_in_blocks_comes_once(
        rounds in proptest::collection::vec((0..10_u32, 0..25_usize), 0..20),
        last in (0..10_u32, any::<bool>(), 0..25_usize, any::<bool>()),
        adopted in 0..40_usize,
    ) {
        let mut ring = Ring::new();
        for (packets, read) in rounds {
            ring.arrive(packets, true);
            ring.read(read, false);
        }
        let (packets, is_closed, read, dies_between) = last;
        ring.arrive(packets, is_closed);
        ring.read(read, dies_between);
        let (position, mut got) = (ring.position(), ring.got);
        let mapping = ring.memory.copy();
        let second = ring.memory.copy();
        let between = adopt(&mut remains_of(mapping, position), adopted, &mut got);
        let end = adopt(&mut remains_of(second, between), usize::MAX, &mut got);
        prop_assert_eq!(got, (0..ring.arrived).collect::<Vec<_>>());
        prop_assert_eq!(end.taken, u64::from(ring.arrived));
        let third = remains_of(ring.memory.copy(), end).head();
        prop_assert_eq!(third, None, "no packet is left");
    }

    #[test]
    fn each_packet_in_frames_comes_once(
        rounds in proptest::collection::vec((0..20_usize, 0..20_usize), 1..10),
        is_held in any::<bool>(),
        adopted in 0..20_usize,
    ) {
        let mapping = Mapping::anonymous(2 * BLOCK).unwrap();
        let memory = Memory::of(&mapping);
        let mut frames = Frames::new(mapping, BLOCK, FRAME, FRAMES).unwrap();
        let (mut arrived, mut got) = (0, Vec::new());
        let arrive = |most: usize, arrived: &mut u32| {
            for _ in 0..most {
                let at = *arrived as usize % FRAMES * FRAME;
                if memory.u32(at) == 0 {
                    memory.put_v2(at, &packet(*arrived));
                    *arrived += 1;
                }
            }
        };
        for (most, read) in rounds {
            arrive(most, &mut arrived);
            for _ in 0..read {
                frames.release();
                if let Some(frame) = frames.next_frame().unwrap() {
                    got.push(frame.stamp().nanoseconds);
                }
            }
        }
        if !is_held {
            frames.release();
        }
        arrive(FRAMES, &mut arrived);
        let position = Position { taken: frames.taken(), mark: Mark::default() };
        let first = memory.copy();
        let left_by_first = Memory::of(&first);
        let of = |mapping, position| {
            let frames = Frames::new(mapping, BLOCK, FRAME, FRAMES).unwrap();
            Remains::of(fanpcap_ring::Ring::V2(frames), position)
        };
        let mut first = of(first, position);
        let between = adopt(&mut first, adopted, &mut got);
        let mut second = of(left_by_first.copy(), between);
        adopt(&mut second, usize::MAX, &mut got);
        prop_assert_eq!(got, (0..arrived).collect::<Vec<_>>());
    }

    #[test]
    fn garbage_has_an_end_and_harms_nothing(
        garbage in proptest::collection::vec(any::<u8>(), COUNT * BLOCK),
        numbers in proptest::collection::vec((0..6_u64, 0..128_u32, any::<u32>()), COUNT),
        (taken, mark) in (any::<u64>(), prop_oneof![0..6_u64, any::<u64>()]),
    ) {
        let mapping = Mapping::anonymous(COUNT * BLOCK).unwrap();
        let memory = Memory::of(&mapping);
        memory.put(0, &garbage);
        for (index, (sequence, first, packets)) in numbers.into_iter().enumerate() {
            memory.put(index * BLOCK + 24, &sequence.to_ne_bytes());
            memory.put_u32(index * BLOCK + 16, first);
            memory.put_u32(index * BLOCK + 12, packets);
        }
        let mark = Mark::from_word(mark << 32);
        let position = Position { taken, mark };
        let blocks = remains_of(memory.copy(), position);
        let frames = Frames::new(mapping, BLOCK, FRAME, 2 * FRAMES).unwrap();
        let frames = Remains::of(fanpcap_ring::Ring::V2(frames), position);
        for mut remains in [blocks, frames] {
            let mut sum = 0_usize;
            let mut count = 0;
            while remains.head().is_some() {
                if let Ok(Some(mut frame)) = remains.next_frame() {
                    let _ = frame.reinsert_tag(12);
                    sum += frame.data().iter().map(|&byte| usize::from(byte)).sum::<usize>();
                }
                count += 1;
            }
            prop_assert!(count <= COUNT * BLOCK / 68 && sum < usize::MAX);
        }
    }
}

/// During a takeover, the retire timer may close the open block and open the next.
#[test]
fn the_timer_does_no_harm() {
    let mut ring = Ring::new();
    for packets in [3, 2, 4, 1] {
        ring.arrive(packets, true);
        ring.read(10, false);
    }
    ring.read(1, false);
    ring.arrive(5, false);
    let mapping = ring.memory.copy();
    let memory = Memory::of(&mapping);
    let mut remains = remains_of(mapping, ring.position());
    let mut got = ring.got;
    adopt(&mut remains, 2, &mut got);
    memory.put_u32(8, 1 | (1 << 5));
    // The next block has its new number, but still the `num_pkts` of its old packets.
    memory.put(BLOCK + 24, &6_u64.to_ne_bytes());
    adopt(&mut remains, usize::MAX, &mut got);
    assert_eq!(got, (0..15).collect::<Vec<_>>());
}
