//! Random numbers from a seed: SplitMix64.

/// A source of random numbers that depend only on the seed.
#[derive(Debug)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `from..to`.
    pub(crate) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.roll() % (to - from)
    }

    /// An index below `len`.
    pub(crate) fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.roll() % len as u64).expect("less than a usize")
    }

    /// True with a chance of one in `times`.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.roll() % times == 0
    }
}
