//! BOB, the hash that RFC 5475 names for PSAMP (appendix A.2): Bob Jenkins' hash of 1997.

/// An arbitrary number, with which two of the three sums begin.
pub const START: u32 = 0x9e37_79b9;

/// The steps of [`mix`]: by how many bits one of the sums is shifted, to the right if positive.
pub const SHIFTS: [i32; 9] = [13, -8, 13, 12, -16, 5, 3, -10, 15];

/// The hash of a key of any length. `initial` is the secret with which the hash begins.
pub fn hash(key: &[u8], initial: u32) -> u32 {
    let mut sums = [START, START, initial];
    let mut blocks = key.chunks_exact(12);
    for block in &mut blocks {
        for (sum, word) in sums.iter_mut().zip(block.chunks_exact(4)) {
            *sum = sum.wrapping_add(little(word));
        }
        mix(&mut sums);
    }
    let rest = blocks.remainder();
    // This sum's low byte holds the length, so the key's bytes go into its other three bytes.
    sums[2] = sums[2].wrapping_add(u32::try_from(key.len()).unwrap_or(u32::MAX));
    for (sum, word) in sums.iter_mut().zip(rest.chunks(4)).take(2) {
        *sum = sum.wrapping_add(little(word));
    }
    if let Some(last) = rest.get(8..) {
        sums[2] = sums[2].wrapping_add(little(last) << 8);
    }
    mix(&mut sums);
    sums[2]
}

fn mix(sums: &mut [u32; 3]) {
    for (step, shift) in SHIFTS.into_iter().enumerate() {
        let (this, next, last) = (step % 3, (step + 1) % 3, (step + 2) % 3);
        let by = shift.unsigned_abs();
        let other = if shift > 0 {
            sums[last] >> by
        } else {
            sums[last] << by
        };
        sums[this] = sums[this].wrapping_sub(sums[next]).wrapping_sub(sums[last]) ^ other;
    }
}

/// A number from up to four bytes, the lowest byte first.
fn little(bytes: &[u8]) -> u32 {
    let bytes = bytes.iter().rev();
    bytes.fold(0, |word, byte| (word << 8) | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from other implementations of the same hash, for each length of the key's last block.
    #[test]
    fn hashes_are_those_of_others() {
        let letters = b"ABCDEFGHIJKLMN";
        let known: [u32; 14] = [
            0xbd49_d10d,
            0xa161_4b4d,
            0xb0a9_479a,
            0x3e36_495d,
            0x1c31_fd95,
            0xfd48_70c0,
            0xe019_dd73,
            0x2bb0_0418,
            0x77fc_8c38,
            0x9295_2498,
            0xebf3_00c1,
            0x98ab_491f,
            0xea9c_4f7a,
            0xc9a8_ad4d,
        ];
        for (len, known) in known.into_iter().enumerate() {
            assert_eq!(hash(&letters[..len], 0), known, "{len}");
        }
        assert_eq!(hash(letters, 0), 0xbde3_8428);
        let score = b"Four score and seven years ago";
        assert_eq!(hash(score, 0), 0x50f2_424b);
        assert_eq!(hash(score, 1), 0x89de_ae7e);
        assert_eq!(hash(b"foobar", 0), 0x9d3f_fa02);
    }
}
