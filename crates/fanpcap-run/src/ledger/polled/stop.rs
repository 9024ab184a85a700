//! Takes the packets of copies' members away, before the copies get the signal to end.

use std::collections::BTreeSet;
use std::mem;

use fanpcap_poll::message::Question;

use super::{PolledLedger, is_living};

impl PolledLedger {
    /// Stops the packets of living members of copies that have not been stopped. If the group has
    /// other members, these get the packets.
    pub(super) fn stop_members(&mut self) {
        let all = self.slots().filter(|it| is_living(it)).count();
        let own: BTreeSet<u64> = self.living().map(|(_, slot)| slot.member).collect();
        if mem::take(&mut self.has_other_come) {
            // A newcomer starts a stopped group again, and the poller may have given the packets of
            // members that are gone to drained ones.
            self.stopped.clear();
        }
        let is_done = if own.len() == all {
            self.stop_all(own)
        } else {
            self.drain(own)
        };
        self.has_unstopped |= !is_done;
    }

    /// Stops the group, which has only these members.
    fn stop_all(&mut self, own: BTreeSet<u64>) -> bool {
        if own.is_subset(&self.stopped) {
            return true;
        }
        self.stopped.extend(own);
        self.ask_for(Question::Stop(self.group))
    }

    /// Lets other members get the packets of these.
    fn drain(&mut self, own: BTreeSet<u64>) -> bool {
        let mut is_done = true;
        for member in own {
            if self.drained.insert(member) {
                is_done &= self.ask_for(Question::Weigh { member, weight: 0 });
            }
        }
        is_done
    }
}
