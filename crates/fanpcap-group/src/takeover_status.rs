//! The progress of a dead member's takeover, as the member's page shows it. The page says how many
//! packets the member took itself, and whether its counters are final. Other members may have taken
//! packets before the member's application first read the handle. Such packets do not count as
//! taken by the member itself.
//!
//! The kernel clears a socket's counters when they are read. So the member that takes over adds
//! these counters to the dead member's page. Processes that hold the page read the counters there:
//! `fanpcap run`, for example, keeps a ledger of each member.

use crate::page::{GroupDir, HeldPage};
use crate::record::{NOT_READ_BY_US, WORDS, at};
use fanpcap_linux::file::shared::Word;
use fanpcap_reader::borrowed;
use std::sync::atomic::{Ordering, fence};

/// The takeover of a dead member's ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeoverStatus {
    /// Whether another member has taken the ring over. Since the takeover, the dead member's socket
    /// rejects all packets.
    pub has_begun: bool,
    /// Packets that other members have taken from the ring, before the member's application first
    /// read it or after the member's death.
    pub inherited: u64,
    /// Whether the page's counters are final: no member takes packets from the ring any more.
    pub is_final: bool,
}

impl HeldPage {
    /// The progress of the member's takeover; `None` if the file is not a page.
    pub fn takeover(&self) -> Option<TakeoverStatus> {
        let words = self.words()?;
        let (_, inherited) = taken(|at| words[at]);
        Some(TakeoverStatus {
            has_begun: words[at::OWN_TAKEN] != 0,
            inherited,
            is_final: words[at::IS_FINAL] == 1,
        })
    }
}

/// Whether a steered group of the calling thread's network namespace has a living member, which may
/// take over dead members' rings, or a founder in another process, which settles them.
pub fn may_be_taken_over(ifindex: u32, group: u16) -> bool {
    let pages = GroupDir::of(ifindex, group).map(|group_dir| group_dir.records());
    let mut records = pages.unwrap_or_default().into_iter();
    let own = std::process::id();
    records.any(|record| record.shared.is_some() && !(record.is_founder && record.pid == own))
}

/// Marks the beginning of a takeover on the dead member's page. Packets that are taken later do not
/// count as taken by the dead member itself.
pub(crate) fn begin(words: &[Word; WORDS]) {
    if words[at::OWN_TAKEN].get() == 0 {
        words[at::OWN_TAKEN].set(words[at::TAKEN].get().saturating_add(1));
    }
}

pub(crate) fn end(words: &[Word; WORDS]) {
    // Release: a process that sees IS_FINAL = 1 also sees the final counters.
    fence(Ordering::Release);
    words[at::IS_FINAL].set(1);
}

/// Returns two numbers from the words of a page: how many packets the ring's owner has taken
/// itself, and how many packets other members have taken from the ring, before the owner's first
/// packet or after its last. The first number is `None` if the system's library has read the
/// member.
pub(crate) fn taken(word: impl Fn(usize) -> u64) -> (Option<u64>, u64) {
    let all = word(at::TAKEN);
    if all == NOT_READ_BY_US {
        return (None, 0);
    }
    let until_end = word(at::OWN_TAKEN).checked_sub(1).unwrap_or(all);
    // This number may be one too large for a moment: a reader may not have taken yet the packet
    // that it claimed last.
    let before = borrowed::claimed(word(at::LOOKED_NS)).unwrap_or_else(|| word(at::BORROWED));
    let own = until_end.saturating_sub(before);
    (Some(own), all.saturating_sub(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::file::shared;

    #[test]
    fn who_takes_over_first_notes_what_the_owner_has_taken() {
        let words = shared::own(&[0; WORDS]);
        let now = || taken(|at| words[at].get());
        words[at::TAKEN].set(7);
        assert_eq!(now(), (Some(7), 0));
        begin(&words);
        words[at::TAKEN].set(9);
        assert_eq!(now(), (Some(7), 2));
        begin(&words);
        words[at::TAKEN].set(10);
        assert_eq!(now(), (Some(7), 3), "a second takeover changes nothing");
        words[at::TAKEN].set(NOT_READ_BY_US);
        assert_eq!(now(), (None, 0));
    }

    #[test]
    fn an_owner_that_took_nothing_is_taken_over_too() {
        let words = shared::own(&[0; WORDS]);
        begin(&words);
        words[at::TAKEN].set(3);
        assert_eq!(taken(|at| words[at].get()), (Some(0), 3));
    }

    #[test]
    fn what_others_took_before_the_owner_read_is_not_its_own() {
        let words = shared::own(&[0; WORDS]);
        let now = || taken(|at| words[at].get());
        borrowed::Claims::on(&words[at::LOOKED_NS]).unwrap();
        // Bit 63 stands for a borrowed ring.
        let claim = |frames| words[at::LOOKED_NS].set((1_u64 << 63) | frames);
        claim(3);
        words[at::TAKEN].set(2);
        assert_eq!(now(), (Some(0), 2), "one claimed packet is not taken yet");
        words[at::TAKEN].set(3);
        assert_eq!(now(), (Some(0), 3));
        words[at::BORROWED].set(3);
        assert_eq!(borrowed::take_back(&words[at::LOOKED_NS], 70), Some(3));
        words[at::TAKEN].set(10);
        assert_eq!(now(), (Some(7), 3), "the owner has read 7");
        begin(&words);
        words[at::TAKEN].set(12);
        assert_eq!(now(), (Some(7), 5), "another member has read 2 more");
    }
}
