//! Remembers which messages of a sender have come: no message is accepted twice (RFC 4303, 3.4.3).

/// A message is refused if its number is this much or more below the greatest received number.
const WIDTH: u64 = 128;

/// Which sequence numbers of one session have been received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Window {
    greatest: u64,
    /// Bit `n` is set if the number `greatest - n` has come.
    come: u128,
}

impl Window {
    /// Takes a sequence number. Returns `true` if it was not received before and is not below the
    /// window.
    pub(crate) fn take(&mut self, sequence: u64) -> bool {
        if sequence > self.greatest {
            let by = sequence - self.greatest;
            self.come = if by < WIDTH { self.come << by } else { 0 };
            self.come |= 1;
            self.greatest = sequence;
            return true;
        }
        let back = self.greatest - sequence;
        if back >= WIDTH || self.come & (1 << back) != 0 {
            return false;
        }
        self.come |= 1 << back;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_counts_once() {
        let mut window = Window::default();
        assert!([5, 3, 4, 200].map(|number| window.take(number)) == [true; 4]);
        assert!([5, 3, 200, 72, 0].map(|number| window.take(number)) == [false; 5]);
        assert!(window.take(73) && !window.take(73) && window.take(u64::MAX) && !window.take(201));
    }
}
