//! What the heirs of a dead member of a steered group write on its page: how many packets the
//! member had taken itself, and that its counters are final. What others took while its application
//! had never read is not its own either.
//!
//! The kernel clears a socket's counters when they are read. So the heir adds them to the page of
//! the dead, where others find them that hold the page: `fanpcap run` has a ledger of each member.

use crate::page::{GroupDir, HeldPage};
use crate::record::{NOT_READ_BY_US, WORDS, at};
use fanpcap_linux::file::shared::Word;
use fanpcap_reader::borrowed;
use std::sync::atomic::{Ordering, fence};

/// What became of a dead member's ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epitaph {
    /// Whether the ring has been inherited: the socket rejects all packets since.
    pub has_heir: bool,
    /// Packets that others have taken from the ring: before the member was read, or as its heirs.
    pub inherited: u64,
    /// Whether the page's counters are the last: nobody takes packets from the ring any more.
    pub is_final: bool,
}

impl HeldPage {
    /// What the member's heirs have written; `None` if the file is not a page.
    pub fn epitaph(&self) -> Option<Epitaph> {
        let words = self.words()?;
        let (_, inherited) = taken(|at| words[at]);
        Some(Epitaph {
            has_heir: words[at::OWN_TAKEN] != 0,
            inherited,
            is_final: words[at::IS_FINAL] == 1,
        })
    }
}

/// Whether a steered group of the calling thread's network namespace has a living member, which may
/// become the heir of dead ones.
pub fn has_heirs(ifindex: u32, group: u16) -> bool {
    let pages = GroupDir::of(ifindex, group).map(|group_dir| group_dir.records());
    let mut records = pages.unwrap_or_default().into_iter();
    records.any(|record| record.shared.is_some())
}

/// An heir begins to read the ring: what was taken until now its owner has taken.
pub(crate) fn begin(words: &[Word; WORDS]) {
    if words[at::OWN_TAKEN].get() == 0 {
        words[at::OWN_TAKEN].set(words[at::TAKEN].get().saturating_add(1));
    }
}

/// The counters on the page are final.
pub(crate) fn end(words: &[Word; WORDS]) {
    // Who finds this word set must find the counters too.
    fence(Ordering::Release);
    words[at::IS_FINAL].set(1);
}

/// Packets that the owner of a ring has taken, and others before and after it, by the words of its
/// page. `None` where the system's library has read the member.
pub(crate) fn taken(word: impl Fn(usize) -> u64) -> (Option<u64>, u64) {
    let all = word(at::TAKEN);
    if all == NOT_READ_BY_US {
        return (None, 0);
    }
    let until_end = word(at::OWN_TAKEN).checked_sub(1).unwrap_or(all);
    // The one that was claimed last may not have been taken yet.
    let before = borrowed::claimed(word(at::LOOKED_NS)).unwrap_or_else(|| word(at::BORROWED));
    let own = until_end.saturating_sub(before);
    (Some(own), all.saturating_sub(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::file::shared;

    #[test]
    fn the_first_heir_notes_what_the_owner_has_taken() {
        let words = shared::own(&[0; WORDS]);
        let now = || taken(|at| words[at].get());
        words[at::TAKEN].set(7);
        assert_eq!(now(), (Some(7), 0));
        begin(&words);
        words[at::TAKEN].set(9);
        assert_eq!(now(), (Some(7), 2));
        begin(&words);
        words[at::TAKEN].set(10);
        assert_eq!(now(), (Some(7), 3), "a second heir");
        words[at::TAKEN].set(NOT_READ_BY_US);
        assert_eq!(now(), (None, 0));
    }

    #[test]
    fn an_owner_that_took_nothing_has_heirs_too() {
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
        assert_eq!(now(), (Some(0), 2), "one is in hand");
        words[at::TAKEN].set(3);
        assert_eq!(now(), (Some(0), 3));
        words[at::BORROWED].set(3);
        assert_eq!(borrowed::take_back(&words[at::LOOKED_NS], 70), Some(3));
        words[at::TAKEN].set(10);
        assert_eq!(now(), (Some(7), 3), "its owner reads");
        begin(&words);
        words[at::TAKEN].set(12);
        assert_eq!(now(), (Some(7), 5), "its heir reads");
    }
}
