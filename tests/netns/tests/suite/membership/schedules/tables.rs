//! A group whose table is in the kernel, on packet sockets and on XDP.

use anyhow::{Context, Result, ensure};
use fanpcap_group::page::MemberId;
use fanpcap_group::view::{GroupTable, View};
use fanpcap_group::weight;
use fanpcap_linux::interface;
use fanpcap_netns::DEVICE;
use fanpcap_testkit::await_for::LIMIT;

use super::super::recorder::Recorder;
use super::super::table::{BUCKETS, Table};
use super::GROUP;
use super::engine::{self, Group, Shares};

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

    fn has_shares(&mut self, weights: &[Option<u16>]) -> Result<bool> {
        let view = self.tables()?.0.look();
        self.seen = view.context("the group's table is gone")?;
        let have = engine::have_shares(&self.seen.places, &self.ids, weights);
        Ok(have && self.seen.under_way.is_none())
    }

    fn settled(&mut self, weights: &[Option<u16>]) -> Result<Option<Shares>> {
        if !self.has_shares(weights)? {
            return Ok(None);
        }
        let owners = self.tables()?.1.owners();
        let slots = engine::slots(&self.seen.places, &self.ids, weights);
        let mut of_slots = [usize::MAX; 256];
        for (member, slot) in slots.iter().enumerate() {
            if let Some(slot) = slot {
                of_slots[usize::from(*slot)] = member;
            }
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
