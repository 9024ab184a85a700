//! Draws test data from a tape of bytes.

/// The bytes of a tape that are not used yet. After the tape's end each choice is the first one, so
/// that each drawing of nested data ends.
#[derive(Clone, Debug)]
pub struct Draw<'t> {
    tape: &'t [u8],
}

impl<'t> Draw<'t> {
    /// Starts at the tape's beginning.
    pub fn new(tape: &'t [u8]) -> Self {
        Self { tape }
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.tape.split_first() else {
            return 0;
        };
        self.tape = rest;
        *first
    }

    /// `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    /// 16 bits.
    pub fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// 32 bits.
    pub fn u32(&mut self) -> u32 {
        (u32::from(self.u16()) << 16) | u32::from(self.u16())
    }

    /// 64 bits.
    pub fn u64(&mut self) -> u64 {
        (u64::from(self.u32()) << 32) | u64::from(self.u32())
    }

    /// A number below `count`, which is 1 to 65536.
    pub fn below(&mut self, count: usize) -> usize {
        let drawn = if count <= 256 {
            usize::from(self.byte())
        } else {
            usize::from(self.u16())
        };
        drawn % count.max(1)
    }

    /// True once in `count` times on average. `count` is at most 256.
    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    /// Draws one of the elements.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Draws an index with a probability in proportion to its weight. The sum of the weights is at
    /// most 256.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut drawn = self.below(weights.iter().sum());
        for (place, weight) in weights.iter().enumerate() {
            if drawn < *weight {
                return place;
            }
            drawn -= weight;
        }
        0
    }
}

/// Makes a tape of `len` bytes. Equal seeds make equal tapes (SplitMix64, Steele, Lea, Flood 2014).
pub fn tape(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut words = std::iter::repeat_with(|| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    });
    let mut tape = Vec::with_capacity(len + 8);
    while tape.len() < len {
        tape.extend_from_slice(&words.next().unwrap_or_default().to_le_bytes());
    }
    tape.truncate(len);
    tape
}
