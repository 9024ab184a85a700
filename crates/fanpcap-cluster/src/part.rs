//! Which buckets an analyzer gets: of `n` analyzers, number `b` modulo `n` gets bucket `b`.

use std::net::SocketAddr;

use fanpcap_buckets::layout::BUCKETS;

/// The buckets that one of several analyzers gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The analyzer's index, below `count`.
    index: u16,
    count: u16,
}

impl Part {
    /// All buckets.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    /// The buckets for the analyzer with this index; `None` if the index is not below `count`.
    pub fn new(index: u16, count: u16) -> Option<Self> {
        (index < count).then_some(Self { index, count })
    }

    /// The buckets for each of `count` analyzers, in the order of their indexes.
    pub fn each(count: usize) -> impl Iterator<Item = Self> {
        let count = u16::try_from(count).unwrap_or(u16::MAX);
        (0..count).map(move |index| Self { index, count })
    }

    /// The buckets for the analyzer at the address `listen`; `None` if `analyzers` lacks the
    /// address.
    pub fn of(listen: SocketAddr, analyzers: &[SocketAddr]) -> Option<Self> {
        if analyzers.len() < 2 {
            return Some(Self::WHOLE);
        }
        let index = analyzers.iter().position(|analyzer| *analyzer == listen)?;
        Self::each(analyzers.len()).nth(index)
    }

    /// The analyzer's index, and the number of analyzers.
    pub fn numbers(self) -> [u16; 2] {
        [self.index, self.count]
    }

    /// The analyzer's buckets.
    pub fn buckets(self) -> impl Iterator<Item = usize> {
        (usize::from(self.index)..BUCKETS).step_by(self.count.into())
    }
}
