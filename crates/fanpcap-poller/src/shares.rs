//! The CPU time that each user's groups take in a queue's thread. A steering program may be long,
//! and a group may copy each packet to many members. If the thread is too slow then, the groups of
//! users that take more time than others lose packets, and those of other users lose none.
//!
//! All users are compared over the same packets. If a user's groups change, their time for the next
//! packets stands for the time that they would have taken for all of them. Otherwise a user with
//! new groups would count as one that takes little, and others would lose packets in its place.

use crate::burst::BURST;

/// The users that have groups in a queue, and their times.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    users: Vec<User>,
    /// The packets for which the users have taken their times, which count as the times do.
    packets: u64,
    /// How often a burst is halved.
    halvings: u32,
    halved_ns: u64,
}

#[derive(Debug)]
struct User {
    user: u32,
    /// 0 for a user whose last group has ended, and whose time is not forgotten yet.
    groups: u32,
    /// The CPU time of the user's groups lately.
    taken_ns: u64,
    /// The first packets since the user's groups have changed.
    sample: Option<Sample>,
}

/// The packets that came since a change, and the CPU time for them.
#[derive(Debug, Default)]
struct Sample {
    ns: u64,
    packets: u64,
}

/// After this time, what was taken counts half.
const HALF_LIFE_NS: u64 = 1_000_000_000;

/// The most that a thread can have taken lately.
const TAKEN_MAX_NS: u64 = 2 * HALF_LIFE_NS;

/// How many packets a sample has. One packet alone may take far longer than others.
const SAMPLE: u64 = BURST as u64;

/// How many users are remembered that have no group.
const GONE_MAX: usize = 64;

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
                sample: None,
            }),
        }
        self.change(user);
    }

    /// A user's group may take more time from now on than before.
    pub(crate) fn change(&mut self, user: u32) {
        let packets = self.packets;
        if let Some(it) = self.users.iter_mut().find(|it| it.user == user) {
            it.taken_ns = it.estimate_ns(packets);
            it.sample = Some(Sample::default());
        }
    }

    /// A user has one group less. Its time counts if it begins a group again.
    pub(crate) fn end(&mut self, user: u32) {
        if let Some(it) = self.users.iter_mut().find(|it| it.user == user) {
            it.groups -= 1;
        }
        let gone = self.users.iter().filter(|it| it.groups == 0);
        if gone.clone().count() > GONE_MAX {
            let least = gone.min_by_key(|it| it.estimate_ns(self.packets));
            let least = least.map(|it| it.user);
            self.users.retain(|it| Some(it.user) != least);
        }
    }

    /// Whether several users have groups.
    pub(crate) fn are_shared(&self) -> bool {
        self.present().nth(1).is_some()
    }

    fn present(&self) -> impl Iterator<Item = &User> {
        self.users.iter().filter(|it| it.groups > 0)
    }

    /// How many packets to take at once, so that a burst takes about [`BURST_NS`].
    pub(crate) fn burst(&self) -> usize {
        BURST >> self.halvings
    }

    /// Whether a user has taken the most time, or nearly as much as the one that has. Users that
    /// take little make no difference, so nobody can make others lose packets by many such users.
    pub(crate) fn takes_most(&self, user: u32) -> bool {
        let taken_ns = |it: &User| it.estimate_ns(self.packets);
        let own = self.present().find(|it| it.user == user);
        let most = self.present().map(taken_ns).max();
        own.map_or(0, taken_ns) * 5 > most.unwrap_or_default() * 4
    }

    /// A burst begins, at a time in nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) fn begin_burst(&mut self, now_ns: u64) {
        let half_lives = now_ns.saturating_sub(self.halved_ns) / HALF_LIFE_NS;
        if half_lives > 0 {
            self.halved_ns = now_ns;
            let half_lives = u32::try_from(half_lives).unwrap_or(u32::MAX);
            let left = |all: u64| all.checked_shr(half_lives).unwrap_or_default();
            self.packets = left(self.packets);
            self.users
                .iter_mut()
                .for_each(|it| it.taken_ns = left(it.taken_ns));
            self.users.retain(|it| it.groups > 0 || it.taken_ns > 0);
        }
    }

    /// A user's group has taken time.
    pub(crate) fn add(&mut self, user: u32, ns: u64) {
        if let Some(it) = self.users.iter_mut().find(|it| it.user == user) {
            it.taken_ns += ns;
            if let Some(sample) = &mut it.sample {
                sample.ns += ns;
            }
        }
    }

    /// The groups have taken this time together for a burst of so many packets. The next one has
    /// half as many packets if this one took too long, and else twice as many. So a few slow
    /// packets make few bursts short.
    pub(crate) fn end_burst(&mut self, ns: u64, packets: usize) {
        self.halvings = match ns > BURST_NS {
            true => (self.halvings + 1).min(BURST.ilog2()),
            false => self.halvings.saturating_sub(1),
        };
        let packets = packets as u64;
        self.packets += packets;
        for it in &mut self.users {
            let Some(sample) = &mut it.sample else {
                continue;
            };
            sample.packets += packets;
            if sample.packets >= SAMPLE {
                it.taken_ns = it.estimate_ns(self.packets);
                it.sample = None;
            }
        }
    }
}

impl User {
    /// The time that the user's groups, as they are now, would have taken for these packets. It is
    /// at least the time that the user's groups have taken. So a change makes it no less.
    fn estimate_ns(&self, packets: u64) -> u64 {
        let of_sample = |it: &Sample| {
            let all_ns = it.ns.saturating_mul(packets) / it.packets.max(SAMPLE);
            all_ns.min(TAKEN_MAX_NS)
        };
        let of_sample = self.sample.as_ref().map_or(0, of_sample);
        self.taken_ns.max(of_sample)
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
        shares.end_burst(0, BURST);
        shares.begin_burst(HALF_LIFE_NS);
        assert_eq!(shares.users[2].taken_ns, 5_100_000);
        shares.begin_burst(64 * HALF_LIFE_NS);
        shares.add(1, 10);
        assert_eq!(most(&shares), [true, false, false]);
        // Users that take nothing.
        (4..60).for_each(|user| shares.begin(user));
        shares.add(2, 7);
        assert_eq!(most(&shares), [true, false, false]);
    }

    /// User 1 takes 100 ns for each packet and user 2 nothing, while user 3 takes 500 ns for each
    /// packet that it gets.
    fn burst(shares: &mut Shares, gets: bool) {
        shares.add(1, 100 * SAMPLE);
        shares.add(3, if gets { 500 * SAMPLE } else { 0 });
        shares.end_burst(0, BURST);
    }

    /// Two users that have had groups for a while.
    fn scene() -> Shares {
        let mut shares = Shares::default();
        [1, 2].into_iter().for_each(|user| shares.begin(user));
        (0..1000).for_each(|_| burst(&mut shares, false));
        assert_eq!(most(&shares), [true, false, false]);
        shares
    }

    #[test]
    fn a_newcomer_counts_as_if_it_had_always_been_there() {
        let mut shares = scene();
        shares.begin(3);
        burst(&mut shares, true);
        assert_eq!(most(&shares), [false, false, true]);
        // It is left out for a while.
        (0..1000).for_each(|_| burst(&mut shares, false));
        assert_eq!(most(&shares), [false, false, true]);
        // A newcomer that takes little makes no difference.
        shares.begin(4);
        shares.add(4, 50 * SAMPLE);
        burst(&mut shares, false);
        assert_eq!(most(&shares), [false, false, true]);
        assert!(!shares.takes_most(4));
    }

    #[test]
    fn a_user_that_begins_again_has_its_former_time() {
        let mut shares = scene();
        for _ in 0..50 {
            shares.begin(3);
            burst(&mut shares, true);
            assert_eq!(most(&shares), [false, false, true]);
            shares.end(3);
            assert!(shares.takes_most(1), "of those that have groups");
            shares.begin(3);
            assert_eq!(most(&shares), [false, false, true]);
            // Another of its users comes for the first time.
            shares.begin(9);
            assert_eq!(most(&shares), [false, false, true]);
            shares.end(9);
            shares.end(3);
        }
        shares.begin_burst(64 * HALF_LIFE_NS);
        assert_eq!(shares.users.len(), 2, "it is forgotten");
    }

    #[test]
    fn a_user_whose_groups_change_counts_by_the_new_ones() {
        let mut shares = scene();
        shares.begin(3);
        (0..1000).for_each(|_| burst(&mut shares, false));
        assert_eq!(most(&shares), [true, false, false]);
        // Neither a second group nor a change before the sample is complete makes it less.
        shares.begin(3);
        shares.add(3, 500 * SAMPLE / 2);
        shares.end_burst(0, BURST / 2);
        assert_eq!(most(&shares), [false, false, true]);
        shares.change(3);
        assert_eq!(most(&shares), [false, false, true]);
    }

    #[test]
    fn no_user_has_taken_more_than_the_thread_can() {
        let mut shares = scene();
        shares.begin(3);
        shares.add(3, HALF_LIFE_NS);
        shares.end_burst(0, BURST);
        assert_eq!(shares.users[2].taken_ns, TAKEN_MAX_NS);
    }

    #[test]
    fn users_without_groups_are_counted_for_a_while_only() {
        let mut shares = Shares::default();
        [1, 2, 2].into_iter().for_each(|user| shares.begin(user));
        shares.end(2);
        assert!(shares.are_shared());
        shares.end(2);
        assert!(!shares.are_shared());
        shares.end(1);
        assert!(!shares.are_shared());
        for user in 10..500 {
            shares.begin(user);
            shares.add(user, user.into());
            shares.end(user);
        }
        assert_eq!(shares.users.len(), GONE_MAX);
        assert_eq!(shares.users[0].user, 500 - 64, "those that took least");
        shares.begin_burst(10 * HALF_LIFE_NS);
        assert!(shares.users.is_empty());
    }

    #[test]
    fn bursts_are_short_as_long_as_packets_are_slow() {
        let mut shares = Shares::default();
        let mut after = |ns| {
            shares.end_burst(ns, BURST);
            shares.burst()
        };
        assert_eq!(after(BURST_NS), BURST);
        let slow = [(); 8].map(|()| after(BURST_NS + 1));
        assert_eq!(slow, [32, 16, 8, 4, 2, 1, 1, 1]);
        let fast = [(); 7].map(|()| after(1000));
        assert_eq!(fast, [2, 4, 8, 16, 32, 64, 64]);
    }
}
