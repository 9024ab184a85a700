//! What the members of a device may take: one user's members, and all together.

use crate::accounts::Account;
use fanpcap_linux::process::memory;
use fanpcap_poll::PoolKind;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a poller gives to the members of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The memory of pools.
    pub pools: PoolKind,
    /// What the members may take.
    pub limits: Limits,
}

impl Policy {
    /// The default for one of `devices` devices of a process: they share the memory.
    pub fn of_one_in(devices: u64) -> Self {
        let mut policy = Self::default();
        policy.limits.bytes.all /= devices.max(1);
        policy
    }
}

/// The limits of a device's members. A member has one connection, so there is no other limit of
/// members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections, those included that are not of members yet.
    pub connections: Limit,
    /// Groups. Each packet is steered once for each group, so each group takes CPU time of all
    /// queues. A group counts for the user of its first member.
    pub groups: Limit,
    /// Bytes of pools, tables and remembered flows.
    pub bytes: Limit,
}

/// How much of something members may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The most that all users' members may take together.
    pub all: u64,
    /// The most that the members of a user may take.
    pub each: u64,
}

impl Default for Limits {
    /// Connections: their descriptors are a few thousand, which is far below the usual hard limit
    /// of open files. Groups: 64 is what a queue has, and a user has seldom more than eight
    /// applications on a device. Bytes: 8 GiB, or half of the memory that the process may use,
    /// because the kernel can't swap pools.
    fn default() -> Self {
        Self {
            connections: Limit {
                all: 1024,
                each: 256,
            },
            groups: Limit { all: 64, each: 8 },
            bytes: Limit {
                all: usable_memory().map_or(BYTES_MAX, |it| BYTES_MAX.min(it / 2)),
                each: u64::MAX,
            },
        }
    }
}

const BYTES_MAX: u64 = 8 << 30;

/// Which limit does not let a user take more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The limit of all users together.
    OfAll,
    /// The limit of the user.
    OfUser,
}

impl Limit {
    /// Checks that a user may take `more`. A user may have at most as much as is then left. So the
    /// first user gets at most half, and the next users find room, however much others ask for.
    /// This holds for root, too: the root of a container has the same number.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn check(self, taken: &Taken, account: Account, more: u64) -> Result<(), Reached> {
        let all = taken
            .0
            .values()
            .fold(more, |sum, it| sum.saturating_add(*it));
        let left = self.all.checked_sub(all).ok_or(Reached::OfAll)?;
        let own = taken.0.get(&account).copied().unwrap_or_default();
        match own.saturating_add(more) <= self.each.min(left) {
            true => Ok(()),
            false => Err(Reached::OfUser),
        }
    }
}

/// How much each user's members have taken.
#[derive(Debug, Default)]
pub(crate) struct Taken(BTreeMap<Account, u64>);

impl FromIterator<(Account, u64)> for Taken {
    fn from_iter<I: IntoIterator<Item = (Account, u64)>>(all: I) -> Self {
        let mut taken = Self::default();
        for (account, amount) in all {
            let sum = taken.0.entry(account).or_default();
            *sum = sum.saturating_add(amount);
        }
        taken
    }
}

/// Bytes of memory that the machine has, or that the process's cgroups may use if that is less.
/// `None` if this is not known.
fn usable_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let limits = memory::limits(Path::new("/")).into_iter();
    limits.map(|it| it.bytes).chain([kib << 10]).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { all: 64, each: 40 };

    /// How much a user gets that asks for one more again and again.
    fn grab(all: &mut Vec<(Account, u64)>, user: u32) -> u64 {
        let user = Account(user);
        let mut got = 0;
        while LIMIT.check(&all.iter().copied().collect(), user, 1).is_ok() {
            all.push((user, 1));
            got += 1;
        }
        got
    }

    #[test]
    fn each_user_leaves_as_much_as_it_has() {
        let mut all = Vec::new();
        let got: Vec<u64> = (1..8).map(|user| grab(&mut all, user)).collect();
        assert_eq!(got, [32, 16, 8, 4, 2, 1, 0]);
        assert_eq!(grab(&mut all, 0), 0, "nor does root get more");
        all.retain(|(user, _)| *user != Account(1));
        assert_eq!(grab(&mut all, 7), 16, "half of what the first user had");
    }

    #[test]
    fn a_user_has_a_limit_besides_that_of_all() {
        let check = |limit: Limit, user, more| limit.check(&Taken::default(), Account(user), more);
        let wide = Limit { all: 99, each: 40 };
        assert_eq!(check(wide, 7, 40), Ok(()));
        assert_eq!(check(wide, 7, 41), Err(Reached::OfUser));
        assert_eq!(check(wide, 7, 100), Err(Reached::OfAll));
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(usable_memory().unwrap() > 1 << 20);
        assert!(Limits::default().bytes.all <= 8 << 30);
        let of_three = Policy::of_one_in(3).limits.bytes.all;
        assert_eq!(of_three, Limits::default().bytes.all / 3);
    }
}
