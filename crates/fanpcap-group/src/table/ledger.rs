//! What an engine that fills rings by slots has counted for the whole group: where each packet that
//! came to the group has gone.

use super::sums::set_all;
use super::{LEDGER_WORDS, Table, at};
use std::sync::atomic::Ordering;

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

impl Ledger {
    /// The figures in their order in the table.
    fn words(&mut self) -> [&mut u64; LEDGER_WORDS] {
        [
            &mut self.at_ns,
            &mut self.offered,
            &mut self.nowhere,
            &mut self.no_member,
            &mut self.produced,
            &mut self.dropped,
            &mut self.unwanted,
        ]
    }
}

impl Table<'_> {
    /// The ledger that a member has published last; `None` where there is none.
    pub(crate) fn ledger(&self) -> Option<Ledger> {
        let mut ledger = Ledger::default();
        set_all(ledger.words(), self.words_at(at::LEDGER));
        (ledger.at_ns > 0).then_some(ledger)
    }

    /// Publishes what `read` finds, where several members may do so at once: the figures of one
    /// reading stay, and that of nobody who has begun before another.
    pub(crate) fn publish_ledger(&self, read: &dyn Fn() -> Ledger) {
        let Some(at_ns) = self.words.get(at::LEDGER) else {
            return;
        };
        for _ in 0..TRIES {
            let seen = at_ns.load(Ordering::Acquire);
            let mut ledger = read();
            let own = ledger.at_ns;
            if at_ns
                .compare_exchange(seen, own, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            self.set_words(at::LEDGER, ledger.words().map(|word| *word));
            if at_ns.load(Ordering::Acquire) == own {
                break;
            }
        }
    }

    /// Whether the published figures are older than a tenth of a second, or of another clock.
    pub(crate) fn has_old_ledger(&self, now_ns: u64) -> bool {
        now_ns.wrapping_sub(self.get(at::LEDGER)) >= OLD_NS
    }
}

/// How often to read the figures anew when another member publishes at the same time.
const TRIES: usize = 4;

const OLD_NS: u64 = 100_000_000;
