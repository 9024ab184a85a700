//! Whether an application reads a member's ring. A handle that nobody reads still receives its
//! share of the group's packets.

use super::{Record, WORDS, at};
use fanpcap_reader::borrowed;
use std::time::Duration;

/// Value of [`at::LOOKED_NS`]: the reader waits for packets now.
const WAITS: u64 = u64::MAX;

/// When the application last looked for packets in the member's ring.
///
/// The reader notes each wait for packets, and about every 64th frame that it takes. For a slow
/// application it notes every frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastLook {
    /// Unknown: the system's library reads the ring, or an older fanpcap wrote the page.
    #[default]
    Unknown,
    /// The application has never read the handle.
    Never,
    /// The application is in a read that waits for packets.
    Waits,
    /// The application last looked at this time, nanoseconds of `CLOCK_MONOTONIC`.
    At(u64),
}

impl LastLook {
    pub(super) fn encode(self) -> u64 {
        match self {
            Self::Unknown | Self::Never => 0,
            Self::Waits => WAITS,
            Self::At(ns) => ns,
        }
    }

    /// Decodes the word of a page. `is_ours` says whether our reader reads the member.
    pub(super) fn decode(words: &[u64; WORDS], is_ours: bool) -> Self {
        match words[at::LOOKED_NS] {
            _ if !is_ours || words[at::JOINED_NS] == 0 => Self::Unknown,
            0 => Self::Never,
            ns if borrowed::claimed(ns).is_some() => Self::Never,
            WAITS => Self::Waits,
            ns => Self::At(ns),
        }
    }
}

impl Record {
    /// Returns the time since the application last looked for packets, or since the member joined
    /// if the application has never looked. `now_ns` is the time of `CLOCK_MONOTONIC`. `None`: the
    /// application waits for packets now, or the time is unknown.
    ///
    /// An application that waits by select(2) or poll(2) looks only when packets come. So a long
    /// time is normal in a group without packets. A long time means unread packets only if other
    /// members of the group have received packets in that time.
    pub fn unread_for(&self, now_ns: u64) -> Option<Duration> {
        let since_ns = match self.last_look {
            LastLook::Unknown | LastLook::Waits => return None,
            LastLook::Never => self.joined_ns,
            LastLook::At(ns) => ns,
        };
        Some(Duration::from_nanos(now_ns.saturating_sub(since_ns)))
    }

    /// Whether the application has never read the handle since the member joined.
    pub fn is_never_read(&self) -> bool {
        self.last_look == LastLook::Never
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;
    use crate::record::MemberCounters;

    const SECOND: u64 = 1_000_000_000;

    /// The page of a member that joined at 5 s, as another process reads the page.
    fn told(taken: Option<u64>, last_look: LastLook) -> Record {
        let joined_ns = 5 * SECOND;
        let record = Record {
            taken,
            last_look,
            joined_ns,
            ..record()
        };
        Record::decode(&record.encode(MemberCounters::default())).unwrap()
    }

    #[test]
    fn a_handle_that_was_never_read_is_unread_since_it_joined() {
        let page = told(Some(0), LastLook::Never);
        assert_eq!(page.unread_for(8 * SECOND), Some(Duration::from_secs(3)));
        assert!(page.is_never_read());
        assert_eq!(
            page.unread_for(4 * SECOND),
            Some(Duration::ZERO),
            "clocks differ"
        );
    }

    #[test]
    fn a_handle_is_unread_since_the_last_look_unless_the_reader_waits() {
        let page = told(Some(7), LastLook::At(6 * SECOND));
        assert_eq!(page.unread_for(8 * SECOND), Some(Duration::from_secs(2)));
        assert!(!page.is_never_read());
        assert_eq!(told(Some(7), LastLook::Waits).unread_for(8 * SECOND), None);
    }

    #[test]
    fn nothing_is_said_of_a_handle_that_the_systems_library_reads() {
        for last_look in [LastLook::Unknown, LastLook::Never, LastLook::At(6 * SECOND)] {
            let page = told(None, last_look);
            assert_eq!(
                (page.last_look, page.unread_for(8 * SECOND)),
                (LastLook::Unknown, None)
            );
        }
    }

    #[test]
    fn nothing_is_said_by_a_page_of_an_older_library() {
        let mut words = told(Some(7), LastLook::Never).encode(MemberCounters::default());
        words[at::JOINED_NS] = 0;
        let page = Record::decode(&words).unwrap();
        assert_eq!(
            (page.unread_for(8 * SECOND), page.is_never_read()),
            (None, false)
        );
    }
}
