//! A ceiling for the bound of uncounted packets. The ceiling is the number of packets that the
//! devices received, minus the packets that the copies' accounts contain.

use fanpcap_linux::netlink::link;

use super::{Absent, Account, Ledger};

impl Ledger {
    /// At most this many packets are in no copy's account. `accounts` must be the accounts of all
    /// copies. `None` if no limit is known, for one of these reasons:
    /// - A member that the ledger never saw may have joined first.
    /// - A number of an account, or a device's packet counter, is unknown.
    /// - A steering program gives each packet to several members, so that the accounts contain more
    ///   packets than the devices received.
    pub(crate) fn ceiling(&self, accounts: &[Account]) -> Option<u64> {
        let since = |(ifindex, begun): (&u32, &u64)| {
            Some(link::packets(*ifindex).ok()?.saturating_sub(*begun))
        };
        let counted = self.begun.iter().map(since).sum::<Option<u64>>();
        let total = Account::sum(accounts.iter().copied());
        let counted = counted.filter(|_| !self.has_unseen)?;
        ceiling(counted, &total, (self.absent(), self.nowhere()))
    }
}

/// If the number `nowhere` of packets that the steering program dropped is unknown, the ceiling is
/// higher by this number.
fn ceiling(counted: u64, total: &Account, (absent, nowhere): (Absent, Option<u64>)) -> Option<u64> {
    let known = total.received?.checked_add(total.refused?)?;
    let known = known.checked_add(nowhere.unwrap_or(0))?;
    counted.checked_sub(known.checked_add(absent.packets?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_in_no_figure_than_came_and_is_in_none() {
        let total = Account {
            received: Some(70),
            refused: Some(5),
            uncounted_at_most: Some(90),
            ..Account::ZERO
        };
        let absent = Absent {
            times: 1,
            seconds: 0.1,
            packets: Some(15),
        };
        assert_eq!(ceiling(100, &total, (absent, None)), Some(10));
        assert_eq!(ceiling(100, &total, (absent, Some(4))), Some(6));
        assert_eq!(
            ceiling(80, &total, (absent, None)),
            None,
            "copies of packets"
        );
        let unknown = Absent {
            packets: None,
            ..absent
        };
        assert_eq!(ceiling(100, &total, (unknown, None)), None);
        assert_eq!(ceiling(100, &Account::default(), (absent, None)), None);
        let bound = |ceiling| total.below(ceiling).uncounted_at_most;
        assert_eq!((bound(Some(10)), bound(None)), (Some(10), Some(90)));
        assert_eq!(Account::default().below(Some(10)).uncounted_at_most, None);
    }
}
