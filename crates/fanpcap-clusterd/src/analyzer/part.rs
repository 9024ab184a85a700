//! Which buckets are this analyzer's: of `n`, number `b` modulo `n` has bucket `b`.

use std::net::SocketAddr;

/// The buckets of one of several analyzers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// Its place among the analyzers.
    place: usize,
    /// How many analyzers there are, at least 1.
    count: usize,
}

impl Part {
    /// All buckets.
    pub(super) const WHOLE: Self = Self { place: 0, count: 1 };

    /// The buckets of who listens on `listen`. `None`: the address is none of the analyzers'.
    pub(super) fn of(listen: SocketAddr, analyzers: &[SocketAddr]) -> Option<Self> {
        if analyzers.len() < 2 {
            return Some(Self::WHOLE);
        }
        let place = analyzers.iter().position(|analyzer| *analyzer == listen)?;
        Some(Self {
            place,
            count: analyzers.len(),
        })
    }

    pub(super) fn has(self, bucket: usize) -> bool {
        bucket % self.count == self.place
    }
}
