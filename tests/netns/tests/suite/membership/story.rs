//! Which members recorded each frame, and which member had each flow in each phase.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Result, ensure};

use super::load::{FLOWS, Sent, print};
use super::records::Got;

/// The member that had a flow in a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    Member(usize),
    Several,
}

/// The records of all members of a group, at the end of a test.
pub(super) struct Story {
    sent: Sent,
    members: Vec<Vec<Got>>,
    /// For each phase, the owner of each flow.
    owners: Vec<Vec<Owner>>,
}

/// The difference between the owners of flows in two phases.
#[derive(Debug)]
pub(super) struct Moved {
    /// Flows that have moved to another member.
    pub(super) flows: usize,
    /// Of these flows, the number that the changed member neither had before nor has now.
    pub(super) of_others: usize,
    /// Flows that the changed member had before or has now.
    pub(super) concerned: usize,
}

impl Story {
    /// `phases` are in microseconds since 1970.
    pub(super) fn new(sent: &Sent, members: Vec<Vec<Got>>, phases: &[Range<u64>]) -> Self {
        let number = |all: Vec<Got>| all.into_iter().map(|got| sent.number(got)).collect();
        let members: Vec<Vec<Got>> = members.into_iter().map(number).collect();
        let owners = |phase| owners(&members, phase);
        let owners = phases.iter().map(owners).collect();
        Self {
            sent: sent.clone(),
            members,
            owners,
        }
    }

    /// The frames that no member has recorded. Checks that no frame was recorded twice.
    pub(super) fn missing(&self) -> Result<Vec<u32>> {
        // A number between two parts belongs to no frame, so no member may record it.
        let mut times = vec![1_u32; self.sent.end() as usize];
        for part in self.sent.numbers() {
            times[part.start as usize..part.end as usize].fill(0);
        }
        for (member, all) in self.members.iter().enumerate() {
            for got in all {
                let times = times.get_mut(got.number as usize);
                ensure!(times.is_some(), "{got:?} at {member} was never sent");
                times.into_iter().for_each(|times| *times += 1);
            }
        }
        let of_times = |is_it: fn(u32) -> bool| {
            let numbers = (0..).zip(&times).filter(|(_, times)| is_it(**times));
            numbers.map(|(number, _)| number).collect::<Vec<u32>>()
        };
        let doubled = of_times(|it| it > 1);
        ensure!(
            doubled.is_empty(),
            "doubled: {}, first {:?}",
            doubled.len(),
            doubled[0]
        );
        Ok(of_times(|it| it == 0))
    }

    /// Checks that every frame was recorded once, except the frames `in_hand`, which members were
    /// handling when they were killed.
    pub(super) fn ensure_each_once(&self, in_hand: &BTreeSet<u32>) -> Result<()> {
        let missing = self.missing()?;
        let (in_hand, lost): (Vec<u32>, Vec<u32>) =
            missing.iter().partition(|number| in_hand.contains(number));
        let shares: Vec<usize> = self.members.iter().map(Vec::len).collect();
        let counts = [lost.len(), in_hand.len()];
        print(&format!(
            "{shares:?} of {}: [lost, handled by killed members] {counts:?}",
            self.sent.count()
        ));
        ensure!(lost.is_empty(), "lost, first {:?}", lost[0]);
        Ok(())
    }

    /// The frame that a member was handling when it was killed after a phase, if the member had not
    /// recorded this frame. It is the first frame of the member's flows after the last frame that
    /// the member recorded.
    pub(super) fn in_hand(&self, phase: usize, member: usize) -> Option<u32> {
        let last = self.members[member].last()?;
        let owners = &self.owners[phase];
        let is_its = |number: &u32| owners[(number % FLOWS) as usize] == Owner::Member(member);
        let mut numbers = self.sent.numbers().flatten();
        numbers.find(|number| *number > last.number && is_its(number))
    }

    /// Checks that in each phase every flow was recorded, and by only one member.
    pub(super) fn ensure_flows_whole(&self) -> Result<()> {
        self.ensure_flows_whole_without(0)
    }

    /// Like [`Story::ensure_flows_whole`], if `lost` frames reached no member. A flow may then be
    /// without a frame in a phase.
    pub(super) fn ensure_flows_whole_without(&self, lost: usize) -> Result<()> {
        for (phase, owners) in self.owners.iter().enumerate() {
            let split = owners.iter().filter(|it| **it == Owner::Several).count();
            let unseen = owners.iter().filter(|it| **it == Owner::Nobody).count();
            ensure!(
                split == 0 && unseen <= lost,
                "phase {phase}: {split} flows split, {unseen} unseen"
            );
        }
        Ok(())
    }

    /// Checks that no member recorded a packet of a flow after a later packet from the same device.
    pub(super) fn ensure_in_order(&self) -> Result<()> {
        let late = self.late();
        let first = late.first();
        ensure!(
            late.is_empty(),
            "{} packets out of order: {first:?}",
            late.len()
        );
        Ok(())
    }

    /// Packets that a member recorded after a later packet of the same flow and device, with the
    /// member's number.
    pub(super) fn late(&self) -> Vec<(usize, Got)> {
        let directions = self.sent.directions();
        let mut late = Vec::new();
        for (member, all) in self.members.iter().enumerate() {
            let mut last = vec![0; directions as usize];
            let is_late = |got: &&Got| {
                let last = &mut last[(got.number % directions) as usize];
                *last = (*last).max(got.number);
                *last > got.number
            };
            late.extend(all.iter().filter(is_late).map(|got| (member, *got)));
        }
        late
    }

    /// The old and the new member of each flow that moved from the previous phase to this one.
    pub(super) fn moves(&self, phase: usize) -> impl Iterator<Item = (usize, usize)> {
        let both = self.owners[phase - 1].iter().zip(&self.owners[phase]);
        both.filter_map(|pair| match pair {
            (Owner::Member(before), Owner::Member(now)) if before != now => Some((*before, *now)),
            _ => None,
        })
    }

    /// Compares the owners of flows in a phase and in the previous one. Between the two phases only
    /// `member` joined or ended; `None` if no member did.
    pub(super) fn moved(&self, phase: usize, member: Option<usize>) -> Moved {
        let of = |owner: &Owner| member.is_some_and(|member| *owner == Owner::Member(member));
        let both = self.owners[phase - 1].iter().zip(&self.owners[phase]);
        let concerns = |(before, now): &(&Owner, &Owner)| of(before) || of(now);
        let moves = both.clone().filter(|(before, now)| before != now);
        Moved {
            flows: moves.clone().count(),
            of_others: moves.filter(|pair| !concerns(pair)).count(),
            concerned: both.filter(concerns).count(),
        }
    }

    /// The number of flows that a member had in a phase.
    pub(super) fn flows(&self, phase: usize, member: usize) -> usize {
        let owners = self.owners[phase].iter();
        owners.filter(|it| **it == Owner::Member(member)).count()
    }

    /// Two times, in microseconds, of the flows that a member had in a phase: from `since_us` until
    /// another member recorded their first packet, and the longest time that one of their packets
    /// waited at another member.
    pub(super) fn served(&self, phase: usize, member: usize, since_us: u64) -> Option<(u64, u32)> {
        let had = |got: &&Got| {
            let flow = (got.number % FLOWS) as usize;
            self.owners[phase][flow] == Owner::Member(member) && got.at_us() >= since_us
        };
        let others = self.members.iter().enumerate();
        let others = others.filter(|(other, _)| *other != member);
        let got = others.flat_map(|(_, all)| all.iter().filter(had));
        let first = got.clone().map(Got::at_us).min()?;
        let longest = got.map(|got| got.waited_us).max()?;
        Some((first - since_us, longest))
    }
}

fn owners(members: &[Vec<Got>], phase: &Range<u64>) -> Vec<Owner> {
    let mut owners = vec![Owner::Nobody; FLOWS as usize];
    for (member, all) in members.iter().enumerate() {
        for got in all.iter().filter(|got| phase.contains(&got.arrived_us)) {
            let owner = &mut owners[(got.number % FLOWS) as usize];
            *owner = match *owner {
                Owner::Nobody => Owner::Member(member),
                Owner::Member(other) if other == member => *owner,
                Owner::Member(_) | Owner::Several => Owner::Several,
            };
        }
    }
    owners
}
