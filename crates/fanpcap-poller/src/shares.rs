//! The CPU time that each user's groups take in a queue's thread. A steering program may be long,
//! and a group may copy each packet to many members. If the thread is too slow then, the groups of
//! users that take more time than others lose packets, and those of other users lose none.

use crate::burst::BURST;

/// The users that have groups in a queue, and their times.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    users: Vec<User>,
    /// How often a burst is halved.
    halvings: u32,
    halved_ns: u64,
}

#[derive(Debug)]
struct User {
    user: u32,
    groups: u32,
    /// The CPU time of the user's groups lately.
    taken_ns: u64,
}

/// After this time, what was taken counts half.
const HALF_LIFE_NS: u64 = 1_000_000_000;

/// How long a burst should take, because the thread looks at its source between two bursts.
const BURST_NS: u64 = 1_000_000;

impl Shares {
    /// A user has one group more.
    pub(crate) fn begin(&mut self, user: u32) {
        match self.users.iter_mut().find(|it| it.user == user) {
            Some(it) => it.groups += 1,
            None => self.users.push(User {
                user,
                groups: 1,
                taken_ns: 0,
            }),
        }
    }

    /// A user has one group less.
    pub(crate) fn end(&mut self, user: u32) {
        if let Some(it) = self.users.iter_mut().find(|it| it.user == user) {
            it.groups -= 1;
        }
        self.users.retain(|it| it.groups > 0);
    }

    /// Whether several users have groups.
    pub(crate) fn are_shared(&self) -> bool {
        self.users.len() > 1
    }

    /// How many packets to take at once, so that a burst takes about [`BURST_NS`].
    pub(crate) fn burst(&self) -> usize {
        BURST >> self.halvings
    }

    /// Whether a user has taken the most time, or nearly as much as the one that has. Users that
    /// take little make no difference, so nobody can make others lose packets by many such users.
    pub(crate) fn takes_most(&self, user: u32) -> bool {
        let own = self.users.iter().find(|it| it.user == user);
        let own = own.map_or(0, |it| it.taken_ns);
        let most = self.users.iter().map(|it| it.taken_ns).max();
        own * 5 > most.unwrap_or_default() * 4
    }

    /// A user's group has taken time.
    pub(crate) fn add(&mut self, user: u32, ns: u64) {
        if let Some(it) = self.users.iter_mut().find(|it| it.user == user) {
            it.taken_ns += ns;
        }
    }

    /// The groups have taken this time together for a burst. The next one has half as many packets
    /// if this one took too long, and else twice as many. So a few slow packets make few bursts
    /// short.
    pub(crate) fn end_burst(&mut self, ns: u64, now_ns: u64) {
        self.halvings = match ns > BURST_NS {
            true => (self.halvings + 1).min(BURST.ilog2()),
            false => self.halvings.saturating_sub(1),
        };
        if now_ns.saturating_sub(self.halved_ns) >= HALF_LIFE_NS {
            self.halved_ns = now_ns;
            self.users.iter_mut().for_each(|it| it.taken_ns /= 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(shares: &Shares) -> [bool; 3] {
        [1, 2, 3].map(|user| shares.takes_most(user))
    }

    #[test]
    fn those_that_take_most_are_told_and_the_past_is_forgotten() {
        let mut shares = Shares::default();
        for user in [1, 2, 2, 3] {
            assert_eq!(shares.are_shared(), user == 3 || shares.users.len() > 1);
            shares.begin(user);
        }
        assert_eq!(most(&shares), [false; 3], "nobody has taken any");
        for user in [1, 2, 3] {
            shares.add(user, 1_000_000);
        }
        assert_eq!(most(&shares), [true; 3], "all have taken the same");
        shares.add(2, 300_000);
        assert_eq!(most(&shares), [false, true, false]);
        shares.add(3, 200_000);
        assert_eq!(most(&shares), [false, true, true], "nearly as much");
        shares.add(3, 9_000_000);
        assert_eq!(most(&shares), [false, false, true]);
        for now_ns in 1..=64 {
            shares.end_burst(0, now_ns * HALF_LIFE_NS);
        }
        shares.add(1, 10);
        assert_eq!(most(&shares), [true, false, false]);
        // Users that take nothing.
        (4..60).for_each(|user| shares.begin(user));
        shares.add(2, 7);
        assert_eq!(most(&shares), [true, false, false]);
    }

    #[test]
    fn a_user_is_gone_after_its_last_group() {
        let mut shares = Shares::default();
        [1, 2, 2].into_iter().for_each(|user| shares.begin(user));
        shares.end(2);
        assert!(shares.are_shared());
        shares.end(2);
        assert!(!shares.are_shared());
        shares.end(1);
        assert!(shares.users.is_empty() && !shares.are_shared());
    }

    #[test]
    fn bursts_are_short_as_long_as_packets_are_slow() {
        let mut shares = Shares::default();
        let mut after = |ns| {
            shares.end_burst(ns, 0);
            shares.burst()
        };
        assert_eq!(after(BURST_NS), BURST);
        let slow = [(); 8].map(|()| after(BURST_NS + 1));
        assert_eq!(slow, [32, 16, 8, 4, 2, 1, 1, 1]);
        let fast = [(); 7].map(|()| after(1000));
        assert_eq!(fast, [2, 4, 8, 16, 32, 64, 64]);
    }
}
