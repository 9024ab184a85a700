//! The shape of pools: how many lanes they have, and how long their blocks are.

use super::layout::{BLOCKS_MAX, words_len};

/// The shape of a pool that BPF programs write. All members of a group have pools of one shape, but
/// of any number of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolShape {
    /// A power of two. A CPU writes into the lane with its number.
    lanes: u32,
    /// Bytes of a block, a power of two.
    block_len: u32,
}

/// The most lanes.
const LANES_MAX: u32 = 256;

/// Bytes of the shortest and the longest block.
const BLOCK_LEN_MIN: u32 = 256 << 10;
const BLOCK_LEN_MAX: u32 = 1 << 20;

/// Bytes of a pool for which nobody has set a size.
pub const POOL_LEN: u32 = 64 << 20;

/// So many blocks for each CPU that is online fit into [`POOL_LEN`], or 256 in all: a CPU that no
/// longer receives packets may keep a block.
const BLOCKS_A_CPU: u32 = 8;

impl PoolShape {
    /// Returns the shape for a machine with `possible` CPUs, of which `online` are online. `None`
    /// for more possible CPUs than a pool has lanes, or if a pool can't have two blocks for each
    /// CPU that is online.
    pub fn for_cpus(possible: u32, online: u32) -> Option<Self> {
        let lanes = possible.max(1).next_power_of_two();
        let most = POOL_LEN / BLOCKS_A_CPU / online.clamp(1, LANES_MAX);
        let block_len = (most + 1).next_power_of_two() / 2;
        // Above 128 lanes, the shortest block has no room for the pool's words.
        let block_len = block_len.clamp(BLOCK_LEN_MIN, BLOCK_LEN_MAX);
        let block_len = block_len.max(words_len(lanes).next_power_of_two());
        Self::new(lanes, block_len).filter(|_| 2 * online <= BLOCKS_MAX)
    }

    /// Returns the shape with these numbers. `None` if no pool has this shape.
    pub fn new(lanes: u32, block_len: u32) -> Option<Self> {
        let fits = lanes.is_power_of_two()
            && lanes <= LANES_MAX
            && block_len.is_power_of_two()
            && block_len >= words_len(lanes)
            && (BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&block_len);
        fits.then_some(Self { lanes, block_len })
    }

    /// The number of lanes.
    pub fn lanes(self) -> u32 {
        self.lanes
    }

    /// Bytes of a block.
    pub fn block_len(self) -> u32 {
        self.block_len
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{SHORT, last_offset};
    use super::*;

    /// All other CPUs keep a block with a record or two.
    #[test]
    fn one_cpu_has_room_for_100_ms_of_a_million_packets_a_second() {
        let record = 24 + 512 + 8;
        for online in 1..=40 {
            let block_len = PoolShape::for_cpus(online, online).unwrap().block_len();
            // The words take one block.
            let blocks = POOL_LEN / block_len - 1 - (online - 1);
            let records = blocks * (last_offset(block_len, SHORT) / record + 1);
            assert!(records >= 100_000, "{online} CPUs: {records}");
        }
    }

    #[test]
    fn the_shape_of_a_machine_is_one_that_pools_have() {
        for (possible, online, lanes, block_len) in [
            (1, 1, 1, 1 << 20),
            (2, 2, 2, 1 << 20),
            (8, 8, 8, 1 << 20),
            (9, 9, 16, 512 << 10),
            (16, 16, 16, 512 << 10),
            (240, 4, 256, 1 << 20),
            (17, 17, 32, 256 << 10),
            (64, 64, 64, 256 << 10),
            (128, 128, 128, 256 << 10),
            (129, 128, 256, 512 << 10),
        ] {
            let shape = PoolShape::for_cpus(possible, online).unwrap();
            assert_eq!((shape.lanes(), shape.block_len()), (lanes, block_len));
            assert_eq!(PoolShape::new(lanes, block_len), Some(shape));
        }
        assert_eq!(PoolShape::for_cpus(257, 2), None);
        assert_eq!(PoolShape::for_cpus(256, 129), None);
        let wrong = [
            (0, 1 << 20),
            (3, 1 << 20),
            (512, 1 << 20),
            (2, 1 << 21),
            (2, 3 << 17),
            (256, 256 << 10),
        ];
        for (lanes, block_len) in wrong {
            assert_eq!(PoolShape::new(lanes, block_len), None);
        }
    }
}
