//! Which member owns which bucket in a group whose members joined one after another.

use fanpcap_buckets::layout::{self, BUCKETS};
use fanpcap_buckets::{Owners, Share, Slot, plan};

#[derive(Clone, Debug)]
pub(super) struct BucketOwners(Vec<u32>);

impl BucketOwners {
    /// The owners in a group of `members` members.
    pub(super) fn of(members: u16) -> Self {
        let mut owners: Owners = [None; BUCKETS];
        let mut shares = Vec::new();
        for slot in (0..=u8::MAX).take(members.into()).map(Slot) {
            shares.push(Share { slot, weight: 1 });
            for step in plan(&owners, &shares) {
                owners[step.bucket] = Some(step.to);
            }
        }
        let number = |owner: Option<Slot>| owner.map_or(0, |slot| slot.0.into());
        Self(owners.into_iter().map(number).collect())
    }

    /// The member that gets packets with this hash.
    pub(super) fn member(&self, hash: u32) -> u32 {
        self.0[layout::bucket(hash)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_owns_as_much() {
        for members in [1, 3, 256] {
            let owners = BucketOwners::of(members);
            let owned = |member: u32| owners.0.iter().filter(|&&it| it == member).count();
            let least = BUCKETS / usize::from(members);
            for member in 0..u32::from(members) {
                assert!([least, least + 1].contains(&owned(member)), "{member}");
            }
        }
    }
}
