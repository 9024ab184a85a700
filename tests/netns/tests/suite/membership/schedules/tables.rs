//! A group whose table is in the kernel, on packet sockets and on XDP.

use anyhow::{Context, Result, ensure};
use fanpcap_group::page::MemberId;
use fanpcap_group::view::{GroupTable, State, View};
use fanpcap_group::weight;
use fanpcap_linux::interface;
use fanpcap_netns::DEVICE;
use fanpcap_testkit::await_for::LIMIT;

use super::super::recorder::Recorder;
use super::super::table::{BUCKETS, Table};
use super::GROUP;
use super::engine::{Group, Shares};

#[derive(Default)]
pub(super) struct TableGroup {
    ids: Vec<MemberId>,
    /// Since the first look at the group.
    tables: Option<(GroupTable, Table)>,
    /// The process of the first member.
    first: u32,
    seen: View,
}

impl TableGroup {
    fn tables(&mut self) -> Result<&(GroupTable, Table)> {
        if self.tables.is_none() {
            let group = GroupTable::find(ifindex()?, GROUP, LIMIT).map_err(anyhow::Error::msg)?;
            self.tables = Some((group.context("no table")?, Table::of(self.first)?));
        }
        self.tables.as_ref().context("no table")
    }

    fn is_settled(&self, weights: &[Option<u16>]) -> bool {
        let view = &self.seen;
        let sum: usize = weights.iter().flatten().map(|it| usize::from(*it)).sum();
        let there = weights.iter().flatten().count();
        let live = view.places.iter().filter(|it| it.state == State::Live);
        let is_even = |(id, weight): (&MemberId, &Option<u16>)| {
            let Some(weight) = weight else {
                return true;
            };
            let quota = BUCKETS * usize::from(*weight);
            let due = quota / sum..=quota.div_ceil(sum);
            let mut its = view.places.iter().filter(|it| it.member == *id);
            its.any(|it| {
                it.state == State::Live && it.weight == *weight && due.contains(&it.buckets)
            })
        };
        // On XDP, a slot between those of members may be free.
        let is_rest = |state| matches!(state, State::Vacant | State::Free);
        let rests = view.places.iter().filter(|it| is_rest(it.state));
        view.under_way.is_none()
            && live.count() == there
            && rests.count() + there == view.places.len()
            && self.ids.iter().zip(weights).all(is_even)
    }
}

fn ifindex() -> Result<u32> {
    interface::index(DEVICE).context("no device")
}

impl Group for TableGroup {
    fn add(&mut self, member: &Recorder) -> Result<()> {
        if self.ids.is_empty() {
            self.first = member.pid()?;
        }
        self.ids.push(member.id()?);
        Ok(())
    }

    fn settled(&mut self, weights: &[Option<u16>]) -> Result<Option<Shares>> {
        let view = self.tables()?.0.look();
        self.seen = view.context("the group's table is gone")?;
        if !self.is_settled(weights) {
            return Ok(None);
        }
        let owners = self.tables()?.1.owners();
        let mut of_slots = [usize::MAX; 256];
        let mut slots = vec![None; weights.len()];
        for place in &self.seen.places {
            let member = self.ids.iter().rposition(|id| *id == place.member);
            let Some(member) = member.filter(|&it| weights[it].is_some()) else {
                continue;
            };
            of_slots[usize::from(place.slot)] = member;
            slots[member] = (place.weight > 0).then_some(place.slot);
        }
        let owner = |bucket| of_slots[usize::from(owners.of(bucket))];
        let owners: Vec<usize> = (0..BUCKETS).map(owner).collect();
        let is_there = |owner: &usize| *owner != usize::MAX;
        ensure!(owners.iter().all(is_there), "an ended member owns buckets");
        Ok(Some(Shares { owners, slots }))
    }

    fn seen(&self) -> String {
        format!("{:?}", self.seen.places)
    }

    fn weigh(&mut self, member: usize, weight: u16) -> Result<()> {
        weight::weigh(ifindex()?, GROUP, self.ids[member], weight)?;
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        let gone = self.tables()?.0.look().context("no view")?.gone;
        ensure!(
            (gone.dropped, gone.unread) == (0, 0),
            "members that have ended have lost packets: {gone:?}"
        );
        Ok(())
    }

    fn finish(self: Box<Self>, _: u64) -> Result<u64> {
        Ok(0)
    }
}
