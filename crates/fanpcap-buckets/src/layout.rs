//! The layout of the table that all members map: the offsets at which the BPF program finds buckets
//! and ranks.
//!
//! All offsets are in bytes from the start of the table. The table is a map of eight-byte elements,
//! called rows here. Members store each entry in one write. The BPF program loads the row that
//! contains the entry.

/// Number of buckets of a group. A power of two, so that the BPF program can mask the hash.
pub const BUCKETS: usize = 4096;

/// Number of slots that a one-byte entry can name. It is also the maximum number of ranks.
pub const SLOTS: usize = 256;

/// Offset of the owners of the buckets: one slot, a `u8`, for each of [`BUCKETS`].
pub const OWNERS: usize = 0;

/// Offset of the slots in the order of their rank: one slot, a `u8`, for each of [`SLOTS`].
pub const RANKS: usize = OWNERS + BUCKETS;

/// Offset of the number of ranks, a `u32` in the machine's byte order. It is 0 until a member owns
/// a bucket for the first time.
pub const RANK_COUNT: usize = RANKS + SLOTS;

/// Offset of the sticky ids: for each of [`SLOTS`] slots a `u64`, which is 256 times the stamp of
/// the slot's member, plus the member's number. 0 means that the slot has no member whose flows are
/// remembered.
pub const STICKY_IDS: usize = 4608;

/// Offset of the sticky ids' holders: for each of [`SLOTS`] numbers a `u64`, which is 256 times the
/// stamp of the member that has the number, plus that member's slot. 0 means that no member has the
/// number.
pub const HOLDERS: usize = STICKY_IDS + SLOTS * 8;

/// Offset of the members' words. The group's BPF program reads none of them.
pub const OWN: usize = HOLDERS + SLOTS * 8;

/// Offset of the number of packets that the steering program dropped, a `u64`. It is one of the
/// members' words. On packet sockets the members' filters count in it.
pub const NOWHERE: usize = 55_136;

/// Offset of the loads: two `u32` for each of [`BUCKETS`]. The BPF program of a balanced group
/// counts the bucket's packets in the first `u32`, modulo 2^32. Only members use the second `u32`.
pub const LOADS: usize = 65536;

/// Size of the table in bytes.
pub const SIZE: usize = LOADS + BUCKETS * 8;

/// Number of classes of members: 0, the default class, to 63.
pub const CLASSES: usize = 64;

/// Size in bytes of the part of the table that belongs to one class. The part has the class's
/// buckets, ranks and number of ranks, at the offsets [`OWNERS`], [`RANKS`] and [`RANK_COUNT`] from
/// its start. The members of a class divide the class's buckets among themselves. If a class has no
/// members, its number of ranks is 0.
pub const PART: usize = STICKY_IDS;

/// Index of the part for all members except those of class 63: the members that get broadcast
/// packets. Only its ranks are used.
pub const EVERYBODY: usize = CLASSES;

/// Size in bytes of the table of a group with classes.
pub const SIZE_WITH_CLASSES: usize = part(EVERYBODY + 1);

/// Offset of the part of a class. The table begins with the part of the default class.
pub const fn part(class: usize) -> usize {
    match class {
        0 => 0,
        _ => SIZE + (class - 1) * PART,
    }
}

const _: () =
    assert!(BUCKETS.is_power_of_two() && RANK_COUNT == 4352 && RANK_COUNT + 4 <= STICKY_IDS);
const _: () = assert!(PART % 8 == 0 && SIZE_WITH_CLASSES == 393_216);

/// The bucket of a hash: its low bits.
pub const fn bucket(hash: u32) -> usize {
    hash as usize & (BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_goes_by_its_low_bits() {
        assert_eq!([bucket(0), bucket(4095), bucket(4096)], [0, 4095, 0]);
        assert_eq!(bucket(0xffff_f123), 0x123);
    }
}
