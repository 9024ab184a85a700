//! The ledger of a group on an engine that puts each slot's packets into the rings of the slot's
//! member. The group's members publish the ledger.

use super::sums::set_all;
use super::{LEDGER_WORDS, Table, at};
use fanpcap_engine::Ledger;
use std::sync::atomic::Ordering;

/// The ledger's numbers in their order in the table.
fn words(ledger: &mut Ledger) -> [&mut u64; LEDGER_WORDS] {
    [
        &mut ledger.at_ns,
        &mut ledger.offered,
        &mut ledger.nowhere,
        &mut ledger.no_member,
        &mut ledger.produced,
        &mut ledger.dropped,
        &mut ledger.unwanted,
    ]
}

impl Table<'_> {
    /// The ledger that a member last published; `None` if no member has published a ledger.
    pub(crate) fn ledger(&self) -> Option<Ledger> {
        let mut ledger = Ledger::default();
        set_all(words(&mut ledger), self.words_at(at::LEDGER));
        (ledger.at_ns > 0).then_some(ledger)
    }

    /// Packets that the steering program has dropped. On an engine, the count of the ledger.
    pub(crate) fn nowhere(&self) -> u64 {
        self.get(at::NOWHERE)
    }

    /// Publishes the ledger that `read` returns. If several members publish at once, the ledger of
    /// one of them stays. An earlier reading never replaces a later one.
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
            self.set_words(at::LEDGER, words(&mut ledger).map(|word| *word));
            if at_ns.load(Ordering::Acquire) == own {
                break;
            }
        }
    }

    /// Whether the published ledger is older than a tenth of a second, or its time is from another
    /// clock.
    pub(crate) fn has_old_ledger(&self, now_ns: u64) -> bool {
        now_ns.wrapping_sub(self.get(at::LEDGER)) >= OLD_NS
    }
}

/// How often to read the ledger again when another member publishes at the same time.
const TRIES: usize = 4;

const OLD_NS: u64 = 100_000_000;
