//! The moments in which a member is in its group and its socket's filter rejects all packets: while
//! it joins (decision 2), and while its filter is replaced. The kernel counts no packet that a
//! filter rejects. So the member's page tells how many packets the device has counted meanwhile:
//! the group has lost at most so many.

use crate::page::HeldPage;
use crate::record::{WORDS, at};
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::netlink::link;

/// In the place of a count: the device's counters can't be read.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// What a member's page tells of these moments. Counts are of packets on the device, in both
/// directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejecting {
    /// Whether the member has begun to join: before that the group gives it nothing.
    pub has_begun: bool,
    /// What the device had counted by then, if known.
    pub joined_at: Option<u64>,
    /// Packets on the device in all such moments that are over; none if unknown.
    pub past: Option<u64>,
    /// One has not ended: what the device had counted when it began, if known.
    pub now: Option<Option<u64>>,
}

impl Rejecting {
    /// The most packets that the group may have lost by the member's rejecting, by what its device
    /// has counted so far.
    pub fn at_most(&self, counted: Option<u64>) -> Option<u64> {
        let now = match self.now {
            None => 0,
            Some(since) => counted?.saturating_sub(since?),
        };
        Some(self.past?.saturating_add(now))
    }

    fn decode(words: &[u64; WORDS]) -> Self {
        let joined = words[at::JOINED_AT];
        Self {
            has_begun: joined != 0,
            joined_at: count(joined),
            past: Some(words[at::REJECTED]).filter(|&past| past != UNKNOWN),
            now: (words[at::REJECTING_SINCE] != 0).then(|| count(words[at::REJECTING_SINCE])),
        }
    }
}

/// A count is on the page with one more, so that 0 is none.
fn count(word: u64) -> Option<u64> {
    word.checked_sub(1).filter(|_| word != UNKNOWN)
}

impl HeldPage {
    /// When the member has rejected what came; none for what is no page.
    pub fn rejecting(&self) -> Option<Rejecting> {
        Some(Rejecting::decode(&self.words()?))
    }
}

/// Notes these moments on a member's page.
#[derive(Clone, Debug)]
pub struct Rejections {
    ifindex: u32,
    joined_at: Word,
    rejected: Word,
    since: Word,
}

impl Rejections {
    pub(crate) fn new(ifindex: u32, words: &[Word; WORDS]) -> Self {
        Self {
            ifindex,
            joined_at: words[at::JOINED_AT].clone(),
            rejected: words[at::REJECTED].clone(),
            since: words[at::REJECTING_SINCE].clone(),
        }
    }

    /// The member is about to join; `rejects` tells whether its filter rejects all until
    /// [`Rejections::end`].
    pub(crate) fn join(&self, rejects: bool) {
        let counted = self.counted();
        // First: who reads the page of one that was killed between the two knows that it rejects.
        self.since.set(if rejects { counted } else { 0 });
        self.joined_at.set(counted);
    }

    /// The member has not joined: the group did not take it.
    pub(crate) fn withdraw(&self) {
        self.joined_at.set(0);
        self.since.set(0);
    }

    /// The member has joined, and nobody has noted when.
    pub(crate) fn are_unknown(&self) {
        self.rejected.set(UNKNOWN);
        self.joined_at.set(UNKNOWN);
    }

    /// A filter that rejects all is about to be attached.
    pub fn begin(&self) {
        self.since.set(self.counted());
    }

    /// That filter is gone.
    pub fn end(&self) {
        let (since, now) = (self.since.get(), self.counted());
        if [since, now, self.rejected.get()].contains(&UNKNOWN) {
            self.rejected.set(UNKNOWN);
        } else {
            self.rejected.add(now.saturating_sub(since));
        }
        self.since.set(0);
    }

    fn counted(&self) -> u64 {
        link::packets(self.ifindex).map_or(UNKNOWN, |packets| packets.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::file::shared;

    fn read(words: &[Word; WORDS]) -> Rejecting {
        Rejecting::decode(&words.each_ref().map(Word::get))
    }

    #[test]
    fn a_page_tells_what_the_device_counted_while_its_member_rejected() {
        let words = shared::own(&[0; WORDS]);
        let lo = fanpcap_linux::interface::index("lo").unwrap();
        let rejections = Rejections::new(lo, &words);
        assert!(!read(&words).has_begun && read(&words).at_most(None) == Some(0));
        rejections.join(true);
        let begun = read(&words);
        let at = begun.joined_at.unwrap();
        assert!(begun.has_begun && begun.now == Some(Some(at)));
        assert_eq!(
            (begun.at_most(Some(at + 7)), begun.at_most(None)),
            (Some(7), None)
        );
        rejections.withdraw();
        assert!(!read(&words).has_begun && read(&words).now.is_none());
        rejections.join(true);
        rejections.end();
        let past = read(&words).past.unwrap();
        assert_eq!(
            (read(&words).now, read(&words).at_most(None)),
            (None, Some(past))
        );
        words[at::REJECTED].set(5);
        words[at::REJECTING_SINCE].set(1 + at);
        assert_eq!(read(&words).at_most(Some(at + 2)), Some(7));
    }

    #[test]
    fn what_no_device_counts_is_unknown_from_then_on() {
        let words = shared::own(&[0; WORDS]);
        let nowhere = Rejections::new(u32::MAX / 2, &words);
        nowhere.join(false);
        assert_eq!(
            (
                read(&words).has_begun,
                read(&words).joined_at,
                read(&words).now
            ),
            (true, None, None)
        );
        nowhere.begin();
        nowhere.end();
        let lo = fanpcap_linux::interface::index("lo").unwrap();
        let known = Rejections::new(lo, &words);
        known.begin();
        known.end();
        assert_eq!(read(&words).at_most(Some(9)), None);
    }
}
