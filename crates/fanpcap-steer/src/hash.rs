//! The hash that selects a member. It is the same on every machine and in every back end.
//!
//! A flow has two ends: each is an address and a port. The hash mixes each end into a number (which
//! the code calls an end, too) and adds the two numbers. So both directions have the same hash. XOR
//! of both addresses and both ports would be symmetric, too. But if a host's port grows with its
//! address, the port cancels the address out, as with the symmetric RSS key 6D:5A. All numbers are
//! read in network order and computed modulo 2^64.

/// An odd number with bits spread over all positions: 2^64 divided by the golden ratio (Knuth,
/// TAOCP 3, 6.4).
pub const M1: u64 = 0x9e37_79b9_7f4a_7c15;
/// Another odd number with bits spread over all positions (from the finalizer of SplitMix64).
pub const M2: u64 = 0xbf58_476d_1ce4_e5b9;

/// The largest hash: 31 bits, so that no hash is [`u32::MAX`], which means "drop" at XDP.
pub const NUMBER_MAX: u32 = 0x7fff_ffff;

/// Start value for the hash of `share`. Steering starts from another value. So packets that `share`
/// has selected by a key still spread over all members if they are steered by the same key.
pub const SHARE: u64 = M2;

/// One step: multiplies, then folds the upper half into the lower.
pub const fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(M1);
    product ^ (product >> 32)
}

/// The number for an end with an IPv4 address. The port is 0 if flows are not distinguished by
/// ports.
pub const fn end4(address: u32, port: u16) -> u64 {
    end(((address as u64) << 16) | port as u64)
}

/// The upper and the lower 64 bits of a number, for example of an IPv6 address.
pub const fn halves(number: u128) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = number.to_be_bytes();
    (
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u64::from_be_bytes([i, j, k, l, m, n, o, p]),
    )
}

/// The number for an end with an IPv6 address. Hosts differ mostly in the lower half, so that half
/// gets the most steps.
pub const fn end6(high: u64, low: u64, port: u16) -> u64 {
    mix(mix(mix(low) ^ high) ^ port as u64)
}

/// The number for an end that is an Ethernet address or another number of up to 64 bits. The
/// function has two steps. After only one step, the results for numbers that differ in their upper
/// bits would grow in proportion to these numbers, and so would sums of two results. Then different
/// pairs of numbers would often have the same sum.
pub const fn end(value: u64) -> u64 {
    mix(mix(value))
}

/// Folds one more value into a hash. The hash of a [`crate::ir::Key`] starts from 0 or [`SHARE`],
/// and then folds in one field after the other. The hash of a flow starts from the sum of its two
/// ends ([`both`]), and then folds in the flow's other properties.
pub const fn fold(hash: u64, value: u64) -> u64 {
    mix(hash ^ value)
}

/// The sum of two ends. The order of the ends makes no difference.
pub const fn both(one: u64, other: u64) -> u64 {
    one.wrapping_add(other)
}

/// The final hash, at most [`NUMBER_MAX`], which selects a bucket of the group. The shift differs
/// from that of [`mix`], because the same shift would undo the shift of `mix`.
pub const fn finish(hash: u64) -> u32 {
    ((hash ^ (hash >> 29)).wrapping_mul(M2) >> 33) as u32
}
