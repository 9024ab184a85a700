//! The members that get a packet, in a group whose members joined one after another.

use std::collections::BTreeMap;

use fanpcap_buckets::layout::{self, BUCKETS};
use fanpcap_buckets::{Owners, Share, Slot, plan};
use fanpcap_steer::native::{Decision, Outcome};

use super::members::Members;

/// The class whose members get no broadcast packets.
const NO_BROADCAST: u8 = 63;

/// The members of a group, by their classes.
#[derive(Clone, Debug)]
pub(super) struct Roster {
    classes: BTreeMap<u8, Class>,
    everyone: Members,
}

/// The members of one class.
#[derive(Clone, Debug, Default)]
struct Class {
    /// The members' numbers, in the order in which the members joined.
    numbers: Vec<usize>,
    all: Members,
    /// The number of the member that owns each bucket.
    owners: Vec<usize>,
}

impl Roster {
    /// The roster of members with these classes, in the order in which the members join.
    pub(super) fn of(classes: &[u8]) -> Self {
        let mut roster = Self {
            classes: BTreeMap::new(),
            everyone: Members::NONE,
        };
        for (number, &class) in classes.iter().enumerate() {
            if class != NO_BROADCAST {
                roster.everyone = roster.everyone.or(Members::one(number));
            }
            let class = roster.classes.entry(class).or_default();
            class.numbers.push(number);
            class.all = class.all.or(Members::one(number));
        }
        for class in roster.classes.values_mut() {
            class.owners = owners(&class.numbers);
        }
        roster
    }

    /// The members that get a packet with this outcome.
    pub(super) fn members(&self, outcome: &Outcome) -> Members {
        let of_class = |members: &dyn Fn(&Class) -> Members| {
            let class = self.classes.get(&outcome.class);
            class.map_or(Members::NONE, members)
        };
        match outcome.decision {
            Decision::Drop => Members::NONE,
            Decision::Broadcast => self.everyone,
            Decision::Copy => of_class(&|class| class.all),
            Decision::Steer(hash) => of_class(&|class| class.owner(hash)),
            Decision::Member(rank) => of_class(&|class| class.member(rank as usize)),
            Decision::Double(first, second) => {
                of_class(&|class| class.owner(first).or(class.owner(second)))
            }
        }
    }
}

impl Class {
    fn owner(&self, hash: u32) -> Members {
        Members::one(self.owners[layout::bucket(hash)])
    }

    fn member(&self, rank: usize) -> Members {
        Members::one(self.numbers[rank % self.numbers.len()])
    }
}

/// The owner of each bucket among members with these numbers, which join in this order. A member's
/// slot is the member's number in the whole group, not in its class.
fn owners(numbers: &[usize]) -> Vec<usize> {
    let mut owners: Owners = [None; BUCKETS];
    let mut shares = Vec::new();
    let slots = numbers
        .iter()
        .filter_map(|&number| u8::try_from(number).ok());
    for slot in slots.map(Slot) {
        shares.push(Share { slot, weight: 1 });
        for step in plan(&owners, &shares) {
            owners[step.bucket] = Some(step.to);
        }
    }
    let number = |owner: Option<Slot>| owner.map_or(0, |slot| slot.0.into());
    owners.into_iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use fanpcap_steer::native::Host;

    use super::*;

    #[test]
    fn each_member_owns_as_much() {
        for members in [1, 3, 256] {
            let owners = owners(&(0..members).collect::<Vec<_>>());
            let owned = |member: usize| owners.iter().filter(|&&it| it == member).count();
            let least = BUCKETS / members;
            for member in 0..members {
                assert!([least, least + 1].contains(&owned(member)), "{member}");
            }
        }
    }

    #[test]
    fn only_members_of_the_class_get_a_packet() {
        let roster = Roster::of(&[2, 0, 63, 0, 2]);
        let get = |decision, class| {
            let outcome = Outcome {
                decision,
                class,
                host: Host::Unsaid,
                mark: None,
            };
            roster.members(&outcome).numbers().collect::<Vec<_>>()
        };
        assert_eq!(get(Decision::Copy, 0), [1, 3]);
        assert_eq!(get(Decision::Broadcast, 0), [0, 1, 3, 4]);
        assert_eq!(get(Decision::Member(3), 2), [4]);
        let hash_of = |member: usize| {
            let mut hashes = 0..4096;
            hashes.find(|&hash| get(Decision::Steer(hash), 0) == [member])
        };
        let (first, second) = (hash_of(1).unwrap(), hash_of(3).unwrap());
        assert_eq!(get(Decision::Double(first, second), 0), [1, 3]);
        for hash in 0..4096 {
            assert!([[0], [4]].contains(&get(Decision::Steer(hash), 2)[..].try_into().unwrap()));
        }
        for decision in [Decision::Copy, Decision::Steer(5), Decision::Member(1)] {
            assert!(get(decision, 7).is_empty());
        }
        assert!(get(Decision::Drop, 0).is_empty());
    }
}
