//! What watchers see of a device's groups, and how they change the weights of members.

use super::groups::{Group, SeenCounts};
use super::member::Member;
use super::{Device, ROOT};
use crate::fan_out::GROUPS_MAX;
use crate::group::GroupCounts;
use fanpcap_group::view::{Leveled, Place, View};
use fanpcap_group::weight::WeighError;
use fanpcap_poll::message::{MemberCounts, SeenGroup, SeenLedger, SeenRounds, SeenSlot};
use std::fs;
use std::os::linux::fs::MetadataExt;

/// How long the counts of a group are shown again. A user that asks all the time must not take the
/// time of the queues' threads.
const FRESH_NS: u64 = 5_000_000;

impl Device {
    /// The first group from this index on that a user may see. Root may see the groups of all
    /// users.
    pub fn see(&mut self, from: u8, user: u32, now_ns: u64) -> Option<SeenGroup> {
        let is_shown = |index: &u8| {
            let group = self
                .groups
                .get(usize::from(*index))
                .and_then(Option::as_ref);
            group.is_some_and(|it| may_touch(user, it.user))
        };
        let all = (0..=u8::MAX).take(GROUPS_MAX);
        let index = all.filter(|index| *index >= from).find(is_shown)?;
        let counts = self.seen_counts(index, now_ns)?;
        let group = self.groups.get(usize::from(index))?.as_ref()?;
        let view = group.served.look();
        let slots = view.places.iter().map(|place| self.slot(place, &counts));
        Some(SeenGroup {
            slots: slots.collect(),
            ..self.seen(index, group, &view, &counts, now_ns)
        })
    }

    fn seen(
        &self,
        index: u8,
        group: &Group,
        view: &View,
        counts: &SeenCounts,
        now_ns: u64,
    ) -> SeenGroup {
        let gone = view.gone;
        SeenGroup {
            index,
            number: group.number,
            user: group.user,
            ifindex: self.ifindex,
            pid_namespace: pid_namespace(),
            title: group.title.clone(),
            ledger: ledger(&counts.group, now_ns),
            source: counts.source,
            gone: [
                gone.members,
                gone.received,
                gone.dropped,
                gone.taken,
                gone.inherited,
                gone.unread,
                gone.unknown,
            ],
            takeovers: view.takeovers,
            changes: view.changes,
            moved: view.moved.map_or([0; 2], |it| [it.buckets, it.at_ns]),
            rounds: view.leveled.as_ref().map(rounds),
            slots: Vec::new(),
        }
    }

    /// The counts of a group, which are a few milliseconds old at most.
    fn seen_counts(&mut self, index: u8, now_ns: u64) -> Option<SeenCounts> {
        let group = self.groups.get_mut(usize::from(index))?.as_mut()?;
        if let Some((at_ns, counts)) = &group.seen {
            if now_ns.saturating_sub(*at_ns) < FRESH_NS {
                return Some(counts.clone());
            }
        }
        let mut all = SeenCounts::default();
        for queue in &self.queues {
            let (group, slots, source) = queue.change(move |queue| {
                let source = queue.state().0;
                let fan_out = &queue.fan_out;
                (fan_out.counts(index), fan_out.slot_counts(index), source)
            })?;
            all.group.add_all(&group?);
            all.source[0] += source.received.saturating_sub(source.skipped);
            all.source[1] += source.dropped;
            for (slot, counts) in slots {
                let sum = all.slots.entry(slot).or_default();
                sum.produced += counts.produced;
                sum.dropped += counts.dropped;
            }
        }
        group.seen = Some((now_ns, all.clone()));
        Some(all)
    }

    fn slot(&self, place: &Place, counts: &SeenCounts) -> SeenSlot {
        let number = place.member.socket();
        let seen = SeenSlot {
            state: place.state as u8,
            member: number,
            pid: place.pid,
            buckets: u16::try_from(place.buckets).unwrap_or(u16::MAX),
            weight: place.weight,
            class: place.class,
            since_ns: place.since_ns,
            taker: place.taker,
            name: place.name,
            ..SeenSlot::default()
        };
        let Some(member) = self.members.get(&number) else {
            return seen;
        };
        let [.., looked_ns] = member.words.figures();
        SeenSlot {
            pool_bytes: u32::try_from(member.len()).unwrap_or(u32::MAX),
            wants_sent: member.wants_sent,
            joined_ns: member.joined_ns,
            counts: of_member(member, counts),
            looked_ns,
            ..seen
        }
    }

    /// Gives a member another weight; 0 drains it. `user` asks for it.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn weigh(
        &mut self,
        member: u64,
        weight: u16,
        user: u32,
        now_ns: u64,
    ) -> Result<(), String> {
        let gone = || WeighError::Gone.to_string();
        let found = self.members.get(&member).ok_or_else(gone)?;
        let index = found.group;
        let group = self.groups.get(usize::from(index)).and_then(Option::as_ref);
        if !may_touch(user, group.ok_or_else(gone)?.user) {
            return Err(OTHER_USER.to_owned());
        }
        if let Some(weighed) = self.weigh_beside(member, weight, now_ns) {
            return weighed;
        }
        let weighed = self.change(index, now_ns, None, |group, side| {
            let weighed = group.weigh(member, weight, side);
            // When this returns, all packets in flight to the member are in its pool.
            side.settle();
            weighed
        });
        let weighed = weighed.ok_or_else(gone)?;
        if let Some(Some(group)) = self.groups.get_mut(usize::from(index)) {
            group.seen = None;
        }
        weighed.map_err(|error| error.to_string())
    }
}

/// Whether a process of `user` may see and change the groups of `owner`.
pub(super) fn may_touch(user: u32, owner: u32) -> bool {
    user == owner || user == ROOT
}

const OTHER_USER: &str = "it is a member of another user: be root, or that user";

/// A member's packets: those of its slot, and those of before, if it has lost its slot.
fn of_member(member: &Member, counts: &SeenCounts) -> MemberCounts {
    let of_slot = member.slot.and_then(|slot| counts.slots.get(&slot));
    let of_slot = of_slot.copied().unwrap_or_default();
    let [taken, rejected, ..] = member.words.figures();
    let produced = member.counts.produced + of_slot.produced;
    let taken = taken.min(produced);
    MemberCounts {
        produced,
        dropped: member.counts.dropped + of_slot.dropped,
        taken,
        rejected: rejected.min(taken),
    }
}

pub(super) fn ledger(counts: &GroupCounts, at_ns: u64) -> SeenLedger {
    SeenLedger {
        at_ns,
        offered: counts.offered,
        nowhere: counts.nowhere,
        no_member: counts.no_member,
        produced: counts.produced,
        dropped: counts.dropped,
        unwanted: counts.unwanted,
        no_time: counts.no_time,
        stopped: counts.stopped,
        not_allowed: counts.not_allowed,
    }
}

fn rounds(leveled: &Leveled) -> SeenRounds {
    let elephants = leveled.elephants.iter();
    SeenRounds {
        moves_all: leveled.moves_all,
        rounds: leveled.rounds,
        above: leveled.above,
        elephants: elephants
            .map(|it| (it.bucket, it.slot.0, it.part))
            .collect(),
    }
}

/// The inode of this process's PID namespace; 0 if it is not known.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |it| it.st_ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_touches_the_groups_of_others() {
        assert!(may_touch(1000, 1000) && may_touch(ROOT, 1000));
        assert!(!may_touch(1000, ROOT) && !may_touch(1000, 1001));
    }
}
