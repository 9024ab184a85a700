//! The internet checksum of bytes (RFC 1071), and its update after a change (RFC 1624).

/// A one's complement sum, not yet folded to 16 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sum(u64);

impl Sum {
    /// Adds bytes in pairs. A zero is appended to an odd last byte, so only the last of several
    /// pieces may have an odd length.
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(2);
        for word in &mut words {
            self.0 += u64::from(u16::from_be_bytes([word[0], word[1]]));
        }
        if let [last] = words.remainder() {
            self.0 += u64::from(*last) << 8;
        }
        self
    }

    /// Adds a number.
    pub(crate) fn number(mut self, number: usize) -> Self {
        self.0 += number as u64;
        self
    }

    /// The sum folded to 16 bits.
    fn folded(self) -> u16 {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap_or(0)
    }

    pub(crate) fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// The new value of `checksum` after the covered bytes `old` were replaced by `new`, of the same
/// even length.
pub(crate) fn updated(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let mut sum = Sum::default().bytes(new).number(usize::from(!checksum));
    for word in old.chunks_exact(2) {
        sum = sum.number(usize::from(!u16::from_be_bytes([word[0], word[1]])));
    }
    sum.checksum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::default().bytes(&bytes).folded(), 0xddf2);
    }

    #[test]
    fn an_update_is_as_good_as_a_new_sum() {
        let old: Vec<u8> = (0..40).collect();
        let before = Sum::default().bytes(&old).checksum();
        let mut new = old.clone();
        new[4..12].copy_from_slice(&[0xff, 0, 0x80, 1, 0xca, 0xfe, 0, 0]);
        let after = Sum::default().bytes(&new).checksum();
        assert_eq!(updated(before, &old[4..12], &new[4..12]), after);
    }
}
