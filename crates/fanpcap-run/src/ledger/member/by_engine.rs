//! A member on XDP. The engine fills the member's rings, and counts the member's packets in BPF
//! maps of the group.

use std::sync::Arc;

use fanpcap_group::group_counters::GroupCounters;

use super::Member;
use crate::ledger::Account;

impl Member {
    /// Whether the member is on XDP and this process does not hold its engine's counters yet.
    pub(in crate::ledger) fn lacks_counters(&self) -> bool {
        self.record.is_on_engine() && self.counters.is_none()
    }

    /// Holds `counters` if they belong to the member's group, and returns whether they do. A later
    /// group with the same number has other counters.
    pub(in crate::ledger) fn hold_counters(&mut self, counters: &Arc<GroupCounters>) -> bool {
        let is_its = counters.counted(self.id).is_some();
        if is_its {
            self.counters = Some(Arc::clone(counters));
        }
        is_its
    }

    /// The account of a member on XDP that no other member takes over. Uses the engine's counters
    /// if this process holds them. Otherwise uses the counters of the page, which may be older than
    /// the page's number of taken packets.
    pub(super) fn settled_by_engine(&mut self, uncounted_at_most: Option<u64>) -> Account {
        let counted = self.counters.as_ref().and_then(|it| it.counted(self.id));
        self.is_counted = counted.is_some();
        let on_page = self.record.counters;
        let [received, dropped] = counted.unwrap_or([on_page.received, on_page.dropped]);
        let [taken, inherited] = self.taken();
        let read = self.record.taken.map(|all| all.saturating_add(dropped));
        let received = received.max(read.unwrap_or(0));
        Account {
            received: Some(received),
            dropped: Some(dropped),
            taken,
            inherited,
            unread: read.map(|read| received - read),
            refused: Some(0),
            uncounted_at_most,
        }
    }
}
