//! What to say where a socket has no room for a filter.

use fanpcap_linux::packet::optmem;
use std::fmt;

/// A filter does not fit in what a socket may have of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// `net.core.optmem_max`, where that can be read.
    limit: Option<u64>,
    /// What it has to be.
    needs: u64,
}

impl NoRoom {
    /// For a filter of so many bytes, which did not fit.
    pub(super) fn new(bytes: u64) -> Self {
        Self::within(bytes, optmem::limit().ok())
    }

    /// For a filter of so many bytes, if it is longer than a socket's memory.
    pub(super) fn of(bytes: u64) -> Option<Self> {
        let limit = optmem::limit().ok();
        (bytes > limit.unwrap_or(USUAL)).then(|| Self::within(bytes, limit))
    }

    fn within(bytes: u64, limit: Option<u64>) -> Self {
        let least = bytes.max(limit.unwrap_or(0)) + 1;
        let needs = least.next_multiple_of(STEP).max(USUAL);
        Self { limit, needs }
    }
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its filter has no room in the socket: net.core.optmem_max is ")?;
        match self.limit {
            Some(limit) => write!(f, "{limit}")?,
            None => f.write_str("too small")?,
        }
        let needs = self.needs;
        write!(
            f,
            ", set it to {needs} or more (sysctl -w net.core.optmem_max={needs}), or write a shorter program"
        )
    }
}

/// What the limit is since Linux 6.8; it was 20480 before.
const USUAL: u64 = 131_072;

/// What needs more is told a rounded number.
const STEP: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_without_room_says_which_setting_bounds_it() {
        assert_eq!(
            NoRoom::within(16_000, Some(20_480)).to_string(),
            "its filter has no room in the socket: net.core.optmem_max is 20480, set it to 131072 or more \
             (sysctl -w net.core.optmem_max=131072), or write a shorter program"
        );
        let unread = NoRoom::within(16_000, None).to_string();
        assert!(
            unread.contains("net.core.optmem_max is too small, set it to 131072"),
            "{unread}"
        );
    }

    #[test]
    fn what_is_asked_for_is_more_than_there_was() {
        let needs = |bytes, limit| NoRoom::within(bytes, limit).needs;
        assert_eq!(needs(131_072, Some(20_480)), 196_608);
        assert_eq!(needs(240_000, None), 262_144);
        assert_eq!(needs(0, Some(131_072)), 196_608);
    }
}
