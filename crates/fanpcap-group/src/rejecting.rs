//! Accounts for the periods in which a member is in its group and its filter rejects all packets.
//!
//! A member rejects all packets while it joins (decision 2) and while its filter is replaced. The
//! kernel does not count packets that a filter rejects. So the member's page has the number of
//! packets that the device counted in that time. This number is an upper limit of the group's loss.

use crate::page::HeldPage;
use crate::record::{WORDS, at};
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::netlink::link;

/// The value of a count if the device's counters can't be read.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The periods of rejection on a member's page. Counts are packets on the device, in both
/// directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejecting {
    /// Whether the member has begun to join. Before that, the group gives the member no packets.
    pub has_begun: bool,
    /// The device's count when the member began to join, if known.
    pub joined_at: Option<u64>,
    /// How many packets the device counted in all earlier periods of rejection; `None` if unknown.
    pub past: Option<u64>,
    /// `Some` while the member rejects: the device's count when the period began, if known.
    pub now: Option<Option<u64>>,
}

impl Rejecting {
    /// Returns how many packets the group may have lost at most because the member rejected them;
    /// `None` if unknown. `counted` is the device's count now.
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

/// Decodes a count. The page holds one more than the count, or 0 if there is no count.
fn count(word: u64) -> Option<u64> {
    word.checked_sub(1).filter(|_| word != UNKNOWN)
}

impl HeldPage {
    /// The member's periods of rejection; `None` if the file is not a page.
    pub fn rejecting(&self) -> Option<Rejecting> {
        Some(Rejecting::decode(&self.words()?))
    }
}

/// The device's count right before the group could direct packets to a newcomer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeforeJoining(u64);

/// Records the periods of rejection on a member's page.
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

    /// Notes that the member is about to join. `rejects` says whether the member's filter rejects
    /// all packets until [`Rejections::end`].
    pub(crate) fn join(&self, rejects: bool) {
        let counted = self.counted();
        // Set this word first. If the member is killed before the next line, its page already shows
        // that it rejects.
        self.since.set(if rejects { counted } else { 0 });
        self.joined_at.set(counted);
    }

    /// Returns the device's count now, which the caller later passes to [`Rejections::is_in`].
    pub(crate) fn before_joining(&self) -> BeforeJoining {
        BeforeJoining(self.counted())
    }

    /// Notes that the member is in the group, and rejected nothing as it joined. The caller notes
    /// this only after the join. Before the join, the note would say that the group has a member,
    /// although no member gets the group's packets.
    pub(crate) fn is_in(&self, since: BeforeJoining) {
        self.since.set(0);
        self.joined_at.set(since.0);
    }

    /// Notes that the member did not enter the group.
    pub(crate) fn withdraw(&self) {
        self.joined_at.set(0);
        self.since.set(0);
    }

    /// Notes that the member has joined at an unknown time.
    pub(crate) fn are_unknown(&self) {
        self.rejected.set(UNKNOWN);
        self.joined_at.set(UNKNOWN);
    }

    /// Notes that the member has entered its group but has no share yet: the packets that it
    /// rejects are not lost.
    pub(crate) fn lack_share(&self) {
        self.since.set(0);
    }

    /// Notes that a filter that rejects all packets is about to be attached.
    pub fn begin(&self) {
        self.since.set(self.counted());
    }

    /// Notes that the filter that rejects all packets has been replaced.
    pub fn end(&self) {
        let (since, now) = (self.since.get(), self.counted());
        if since == 0 {
            return;
        }
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
        let before = rejections.before_joining();
        assert!(!read(&words).has_begun, "the member has not entered yet");
        rejections.is_in(before);
        let is_in = read(&words);
        assert!(is_in.has_begun && is_in.now.is_none() && is_in.joined_at >= Some(at));
        rejections.withdraw();
        rejections.join(true);
        rejections.lack_share();
        rejections.end();
        assert_eq!((read(&words).now, read(&words).past), (None, Some(0)));
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
