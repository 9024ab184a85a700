//! Which member publishes the counters of a group on XDP. The group has one BPF program, and all
//! members' pages are summed up. So only the member in the lowest live slot publishes the steering
//! program's counters on its page. It may get no packets, and then publishes nothing. So any member
//! publishes the group's ledger in the table, if the figures there are old.

use crate::shared::Shared;
use crate::steered::Whole;
use crate::table::{State, at};
use fanpcap_config::steering::Counts;
use std::sync::Arc;

/// A member that publishes the counters while it is in the lowest live slot.
pub(crate) struct Teller {
    shared: Arc<Shared>,
    /// The member's socket.
    cookie: u64,
}

impl Teller {
    pub(crate) fn new(shared: Arc<Shared>, cookie: u64) -> Self {
        Self { shared, cookie }
    }

    fn is_to_tell(&self) -> bool {
        let mut rows = self.shared.table().rows();
        let first = rows.find(|(_, row)| row.state == State::Live);
        first.is_some_and(|(_, row)| row.cookie == self.cookie)
    }
}

impl Whole for Teller {
    fn counted(&self) -> Option<(Counts, u64)> {
        let on_xdp = self.shared.on_xdp.as_ref().filter(|_| self.is_to_tell())?;
        on_xdp.counts().ok()
    }

    fn changes(&self) -> bool {
        self.shared.table().get(at::COUNTS) != 0
    }

    fn tell(&self) {
        match self.is_to_tell() {
            true => self.shared.publish_ledger(),
            false => self.shared.renew_ledger(),
        }
    }
}
