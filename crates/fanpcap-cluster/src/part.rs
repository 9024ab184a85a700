//! Which buckets are an analyzer's: of `n` analyzers, number `b` modulo `n` has bucket `b`.

use std::net::SocketAddr;

use fanpcap_buckets::layout::BUCKETS;

/// The buckets of one of several analyzers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The analyzer's place among all, below `count`.
    place: u16,
    /// The number of analyzers.
    count: u16,
}

impl Part {
    /// All buckets.
    pub const WHOLE: Self = Self { place: 0, count: 1 };

    /// The part of analyzer number `place` of `count`. `None`: there is no such number.
    pub fn new(place: u16, count: u16) -> Option<Self> {
        (place < count).then_some(Self { place, count })
    }

    /// The parts of `count` analyzers, in their order.
    pub fn each(count: usize) -> impl Iterator<Item = Self> {
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        (0..count).map(move |place| Self { place, count })
    }

    /// The part of the analyzer that listens on `listen`. `None`: `analyzers` lacks this address.
    pub fn of(listen: SocketAddr, analyzers: &[SocketAddr]) -> Option<Self> {
        if analyzers.len() < 2 {
            return Some(Self::WHOLE);
        }
        let place = analyzers.iter().position(|analyzer| *analyzer == listen)?;
        Self::each(analyzers.len()).nth(place)
    }

    /// The analyzer's place among all, and the number of analyzers.
    pub fn numbers(self) -> [u16; 2] {
        [self.place, self.count]
    }

    /// The analyzer's buckets.
    pub fn buckets(self) -> impl Iterator<Item = usize> {
        (usize::from(self.place)..BUCKETS).step_by(self.count.into())
    }
}
