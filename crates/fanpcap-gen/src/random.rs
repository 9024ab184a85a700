//! Random numbers that depend only on a seed. They must not change with the version of a crate,
//! because equal descriptions must always make equal frames.

use rand::RngCore;
use rand_pcg::Pcg64Mcg;

/// A source of random numbers. `stream` distinguishes several uses of the same seed.
pub(crate) fn source(seed: u64, stream: u64) -> Pcg64Mcg {
    // The state of this generator is odd, so `new` loses the lowest bit; hence the shift.
    Pcg64Mcg::new((u128::from(scatter(seed)) << 64) | (u128::from(scatter(stream ^ seed)) << 1))
}

/// A number less than `end`. All are equally likely, except for a bias of `end` / 2^64.
pub(crate) fn below(random: &mut Pcg64Mcg, end: u64) -> u64 {
    let product = u128::from(random.next_u64()) * u128::from(end);
    u64::try_from(product >> 64).unwrap_or(0)
}

/// Changes the order of `items` (Fisher and Yates).
pub(crate) fn shuffle<T>(random: &mut Pcg64Mcg, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        let other = usize::try_from(below(random, last as u64 + 1)).unwrap_or(0);
        items.swap(last, other);
    }
}

/// Scatters consecutive numbers over the whole range, without collisions (splitmix64).
pub(crate) fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        let mut random = source(1, 0);
        let first: Vec<u64> = (0..4).map(|_| below(&mut random, 1000)).collect();
        let again = &mut source(1, 0);
        assert_eq!(first, [0; 4].map(|_: u64| below(again, 1000)));
        assert_eq!(scatter(0), 0xe220_a839_7b1d_cdaf);
        assert_ne!(first, [0; 4].map(|_: u64| below(&mut source(2, 0), 1000)));
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut items: Vec<u32> = (0..100).collect();
        shuffle(&mut source(7, 7), &mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
