//! How long a thread sleeps whose source has no descriptor to wait on.

use std::time::Duration;

/// The times between the looks at a source without packets: each is twice as long as the one
/// before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Naps(Duration);

/// The first time. A thread that has just had packets soon looks again.
const SHORTEST: Duration = Duration::from_micros(20);

/// The longest time. A device keeps some thousand packets meanwhile.
const LONGEST: Duration = Duration::from_millis(1);

impl Naps {
    /// The time until the next look.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(LONGEST);
        now
    }
}

impl Default for Naps {
    fn default() -> Self {
        Self(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_become_longer_up_to_a_limit() {
        let mut naps = Naps::default();
        let first = [(); 3].map(|()| naps.next());
        assert_eq!(first, [20, 40, 80].map(Duration::from_micros));
        let later = [(); 9].map(|()| naps.next());
        assert_eq!(later[8], LONGEST);
    }
}
