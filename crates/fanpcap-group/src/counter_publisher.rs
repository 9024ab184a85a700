//! Publishes the counters of a group whose rings an engine fills. The group has one BPF program,
//! but observers add up the counters of all member pages. So only the member in the lowest live
//! slot writes the steering program's counters to its page. While that member gets no packets, it
//! publishes nothing. So every member publishes the group's ledger in the table when the ledger
//! there is old.

use crate::shared::Shared;
use crate::steered::Whole;
use crate::table::{State, at};
use fanpcap_engine::Counts;
use std::sync::Arc;

pub(crate) struct CounterPublisher {
    shared: Arc<Shared>,
    /// The cookie of the member's socket.
    cookie: u64,
}

impl CounterPublisher {
    pub(crate) fn new(shared: Arc<Shared>, cookie: u64) -> Self {
        Self { shared, cookie }
    }

    fn is_first(&self) -> bool {
        let mut rows = self.shared.table().rows();
        let first = rows.find(|(_, row)| row.state == State::Live);
        first.is_some_and(|(_, row)| row.cookie == self.cookie)
    }
}

impl Whole for CounterPublisher {
    fn counted(&self) -> Option<(Counts, u64)> {
        let on_device = self.shared.on_device.as_ref();
        on_device.filter(|_| self.is_first())?.counters().ok()
    }

    fn changes(&self) -> bool {
        self.shared.table().get(at::COUNTS) != 0
    }

    fn tell(&self) {
        match self.is_first() {
            true => self.shared.publish_ledger(),
            false => self.shared.renew_ledger(),
        }
    }
}
