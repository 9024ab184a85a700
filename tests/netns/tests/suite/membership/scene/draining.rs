//! Drains members of a scene, and gives them a weight again.

use anyhow::{Context, Result, ensure};
use fanpcap_group::view::GroupTable;
use fanpcap_group::weight;
use fanpcap_linux::interface;
use fanpcap_testkit::await_for;
use fanpcap_testkit::await_for::LIMIT;

use super::super::recorder::End;
use super::Scene;

impl Scene<'_> {
    /// Drains a member: only its buckets move. Waits until the member has read its ring, if it
    /// reads. Returns how many packets are left in the ring.
    pub(in super::super) fn drain(&mut self, member: usize) -> Result<Option<u64>> {
        let (slot, id) = (self.slot(member)?, self.members[member].id()?);
        let drained = weight::drain(ifindex(self.device)?, self.group, id)?;
        let moved = self.moved_from(slot)?;
        self.members[member].slot = None;
        self.note(format!("drain of slot {slot}"), member, moved, None);
        let read = await_for("the ring to be read", LIMIT, || {
            Ok((drained.unread() == Some(0)).then_some(()))
        });
        Ok(read.map_or_else(|_| drained.unread(), |()| Some(0)))
    }

    /// Ends a drained member.
    pub(in super::super) fn end_drained(&mut self, member: usize, how: End) -> Result<()> {
        self.members[member].end(how).map(drop)
    }

    /// Drains a member that hangs, and kills it. Returns how many packets were in its ring.
    pub(in super::super) fn drain_and_kill_hung(&mut self, member: usize) -> Result<Option<u64>> {
        let (slot, id) = (self.slot(member)?, self.members[member].id()?);
        self.late = Some("it was drained with packets in its ring");
        self.members[member].hang()?;
        let drained = weight::drain(ifindex(self.device)?, self.group, id)?;
        let moved = self.moved_from(slot)?;
        let unread = drained.unread();
        let ended_us = self.members[member].end(End::HangsFirst)?;
        let what = format!("drain and kill -9 of slot {slot}");
        self.note(what, member, moved, Some((End::HangsFirst, ended_us)));
        Ok(unread)
    }

    /// Gives a drained member another weight, with which it gets a share.
    pub(in super::super) fn weigh(&mut self, member: usize, weight: u16) -> Result<()> {
        let before = self.owners.shares();
        weight::weigh(
            ifindex(self.device)?,
            self.group,
            self.members[member].id()?,
            weight,
        )?;
        let moved = self.await_move("its share", |owners| owners.shares().len() > before.len())?;
        let new = self.owners.shares().into_keys();
        let new = new
            .filter(|slot| !before.contains_key(slot))
            .collect::<Vec<_>>();
        ensure!(
            moved.iter().all(|(_, to)| new == [*to]),
            "{before:?}, {new:?}"
        );
        self.members[member].slot = new.first().copied();
        self.note("a weight again".to_owned(), member, moved.len(), None);
        Ok(())
    }

    /// Waits until a member has all buckets.
    pub(in super::super) fn await_share_of(&mut self, member: usize) -> Result<()> {
        let id = self.members[member].id()?;
        let table = GroupTable::find(ifindex(self.device)?, self.group, LIMIT);
        let table = table.map_err(anyhow::Error::msg)?.context("no table")?;
        // A dead member keeps its buckets until the remaining member notices the death.
        let owner = await_for("all buckets", LIMIT, || {
            let places = table.look().map(|view| view.places).unwrap_or_default();
            let mut owners = places.into_iter().filter(|place| place.buckets > 0);
            let owner = owners.next().filter(|owner| owner.member == id);
            Ok(owner.filter(|_| owners.next().is_none()))
        })?;
        ensure!(owner.weight == 1, "{owner:?}");
        Ok(())
    }
}

fn ifindex(device: &str) -> Result<u32> {
    // If there are several devices, this function uses the first device's group.
    let first = device.split('^').next().unwrap_or(device);
    interface::find(first)?.context("no device")
}
