//! What an engine that fills rings by slots has counted for the whole group: where each packet that
//! came to the group has gone.

use super::{LEDGER_WORDS, Table, at};

/// What has become of the packets that came to a group, since it began. Where each packet goes to
/// one member at most, `offered` is the sum of all others but `at_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// When this was read, nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Packets that came to the group.
    pub offered: u64,
    /// Packets that the steering program dropped.
    pub nowhere: u64,
    /// Packets for which there was no member.
    pub no_member: u64,
    /// Packets put into members' rings.
    pub produced: u64,
    /// Packets for which a member's ring had no room.
    pub dropped: u64,
    /// Packets that a member's filter rejected.
    pub unwanted: u64,
}

impl Table<'_> {
    /// The ledger that a member has published last; `None` where there is none.
    pub(crate) fn ledger(&self) -> Option<Ledger> {
        let words: [u64; LEDGER_WORDS] = self.words_at(at::LEDGER);
        let [
            at_ns,
            offered,
            nowhere,
            no_member,
            produced,
            dropped,
            unwanted,
        ] = words;
        (at_ns > 0).then_some(Ledger {
            at_ns,
            offered,
            nowhere,
            no_member,
            produced,
            dropped,
            unwanted,
        })
    }

    pub(crate) fn set_ledger(&self, ledger: &Ledger) {
        let words = [
            ledger.at_ns,
            ledger.offered,
            ledger.nowhere,
            ledger.no_member,
            ledger.produced,
            ledger.dropped,
            ledger.unwanted,
        ];
        self.set_words(at::LEDGER, words);
    }
}
