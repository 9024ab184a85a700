//! The CPU time that each user's connections take in the server's thread. A large pool takes long
//! to make, and the kernel calls all that watch a member's end of a connection when the server
//! takes a message, refuses the connection, or closes it. So users that have taken less time come
//! first, and each part of a turn is short: messages, new connections, and connections to be
//! closed.

use crate::accounts::Account;
use std::collections::BTreeMap;

/// The users' times lately, and that of the present part of a turn.
#[derive(Debug, Default)]
pub(super) struct Times {
    taken_ns: BTreeMap<Account, u64>,
    part_ns: u64,
    halved_ns: u64,
}

/// A connection with something to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    /// The user for whom it counts.
    pub(super) account: Account,
    /// Connections that the server has not served for longer have smaller numbers.
    pub(super) served: u64,
    /// The connection's number.
    pub(super) number: u64,
}

/// After this time, what was taken counts half.
const HALF_LIFE_NS: u64 = 1_000_000_000;

/// How long a part of a turn may take before its last message or connection.
const PART_NS: u64 = 5_000_000;

impl Times {
    /// Begins a turn.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.begin_part();
        if now_ns.saturating_sub(self.halved_ns) >= HALF_LIFE_NS {
            self.halved_ns = now_ns;
            self.taken_ns.values_mut().for_each(|it| *it /= 2);
            self.taken_ns.retain(|_, it| *it > 0);
        }
    }

    /// Begins a part of a turn, which may take as long as the others: otherwise one part could take
    /// the time of another.
    pub(super) fn begin_part(&mut self) {
        self.part_ns = 0;
    }

    /// Puts connections into the order in which they come: no connection comes before another one
    /// of its user that waits for longer.
    pub(super) fn sort(&self, connections: &mut [Ready]) {
        let taken_ns = |account| self.taken_ns.get(&account).copied().unwrap_or_default();
        connections.sort_by_key(|it| (taken_ns(it.account), it.served));
    }

    /// A user's connections have taken time. Returns whether this part of the turn may go on.
    pub(super) fn add(&mut self, account: Account, ns: u64) -> bool {
        *self.taken_ns.entry(account).or_default() += ns;
        self.part_ns += ns;
        self.part_ns < PART_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_that_have_taken_less_come_first_and_the_past_is_forgotten() {
        let mut times = Times::default();
        let order = |times: &Times| {
            let all = [(1, 4, 10), (2, 2, 20), (1, 3, 11), (3, 1, 30)];
            let mut all = all.map(|(user, served, number)| Ready {
                account: Account(user),
                served,
                number,
            });
            times.sort(&mut all);
            all.map(|it| it.number)
        };
        assert_eq!(order(&times), [30, 20, 11, 10]);
        times.add(Account(1), 500);
        times.add(Account(3), 300);
        assert_eq!(order(&times), [20, 30, 11, 10]);
        times.add(Account(2), 800);
        assert_eq!(order(&times), [30, 11, 10, 20]);
        for second in 1..12 {
            times.begin(second * HALF_LIFE_NS);
        }
        assert!(times.taken_ns.is_empty());
    }

    #[test]
    fn a_part_of_a_turn_ends_when_it_has_taken_long() {
        let mut times = Times::default();
        for turn in 0..4 {
            match turn % 2 {
                0 => times.begin(turn),
                _ => times.begin_part(),
            }
            assert!(times.add(Account(1), PART_NS / 2));
            assert!(!times.add(Account(2), PART_NS / 2));
        }
    }
}
