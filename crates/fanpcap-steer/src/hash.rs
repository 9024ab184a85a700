//! The hash by which packets are steered: the same on every machine, in every back end.
//!
//! An end of a flow (address and port) is mixed by itself, and the two are added, so that both
//! directions come to the same and yet a port that grows with the address does not cancel it out,
//! as it does where all four are combined by XOR (the trap of the RSS key 6D:5A). All numbers are
//! taken in network order and computed modulo 2^64.

/// Odd, with bits all over: 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4).
pub const M1: u64 = 0x9e37_79b9_7f4a_7c15;
/// Another (the finalizer of SplitMix64).
pub const M2: u64 = 0xbf58_476d_1ce4_e5b9;

/// The largest hash: 31 bits, so that no hash is [`u32::MAX`], which means "drop" at XDP.
pub const NUMBER_MAX: u32 = 0x7fff_ffff;

/// What `share` begins with: so packets that are selected by a key are still spread over all
/// members by the same key.
pub const SHARE: u64 = M2;

/// One step: multiplies, and brings the upper half down.
pub const fn mix(value: u64) -> u64 {
    let product = value.wrapping_mul(M1);
    product ^ (product >> 32)
}

/// An end with an IPv4 address; port 0 where ports do not count.
pub const fn end4(address: u32, port: u16) -> u64 {
    end(((address as u64) << 16) | port as u64)
}

/// The upper and the lower 64 bits, as of an IPv6 address.
pub const fn halves(number: u128) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = number.to_be_bytes();
    (
        u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        u64::from_be_bytes([i, j, k, l, m, n, o, p]),
    )
}

/// An end with an IPv6 address. Hosts differ in the lower half first, so it takes the most steps.
pub const fn end6(high: u64, low: u64, port: u16) -> u64 {
    mix(mix(mix(low) ^ high) ^ port as u64)
}

/// An end that is an Ethernet address or another number of up to 64 bits. After one step, the ends
/// of numbers that differ in their upper bits alone still grow in proportion to them, and so do
/// sums of two.
pub const fn end(value: u64) -> u64 {
    mix(mix(value))
}

/// Takes one more value in: those of a [`crate::ir::Key`] in turn, from 0 or [`SHARE`]; and after a
/// flow's two ends what else tells it apart.
pub const fn fold(hash: u64, value: u64) -> u64 {
    mix(hash ^ value)
}

/// Two ends, in either order.
pub const fn both(one: u64, other: u64) -> u64 {
    one.wrapping_add(other)
}

/// The number that a group takes modulo its members, [`NUMBER_MAX`] at most. The shift is not that
/// of [`mix`], which it would undo.
pub const fn finish(hash: u64) -> u32 {
    ((hash ^ (hash >> 29)).wrapping_mul(M2) >> 33) as u32
}
