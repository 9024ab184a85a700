//! Detects which copies have had a share of the group's packets. A member of a steered group has no
//! share before its application looks for packets.

use std::collections::BTreeMap;

use fanpcap_group::record::LastLook;
use fanpcap_group::view::GroupTable;

use super::Ledger;
use super::member::Member;

/// Which copies have had a share so far, and the groups' tables.
#[derive(Debug, Default)]
pub(super) struct Shares {
    tables: BTreeMap<u32, GroupTable>,
    /// For each copy whose members were checked: whether one of its members had a share.
    had: BTreeMap<usize, bool>,
}

impl Shares {
    /// Whether the group gives packets to a member; `None` if the group's table can't be read.
    pub(super) fn has(&mut self, group: u16, member: &Member) -> Option<bool> {
        if !member.is_steered() {
            return Some(true);
        }
        let find = |table: &GroupTable| {
            let places = table.look()?.places;
            let place = places.iter().find(|place| place.member == member.id);
            place.map(|place| place.buckets > 0)
        };
        let ifindex = member.ifindex;
        let known = self.tables.get(&ifindex).and_then(find);
        known.or_else(|| {
            let table = GroupTable::of_member(ifindex, group, &member.record)?;
            let found = find(&table);
            self.tables.insert(ifindex, table);
            found
        })
    }
}

impl Ledger {
    /// For each copy that has had no share so far, checks whether one of its members has a share.
    pub(super) fn note_shares(&mut self) {
        for member in self.held.iter().filter(|it| it.has_joined()) {
            let copy = member.copy;
            if self.shares.had.get(&copy) != Some(&true) {
                let has = self.shares.has(self.group, member);
                self.shares.had.extend(has.map(|has| (copy, has)));
            }
        }
    }

    /// Whether a copy has had a share of the group's packets. If the group's table can't be read,
    /// the result is true for a copy whose application looks for packets.
    pub(crate) fn has_share(&self, copy: usize) -> bool {
        let looks = |it: &Member| it.has_joined() && it.record.last_look != LastLook::Never;
        let known = self.shares.had.get(&copy).copied();
        known.unwrap_or_else(|| self.held.iter().any(|it| it.copy == copy && looks(it)))
    }

    /// Copies that were in the group and never had a share of its packets.
    pub(crate) fn without_share(&self) -> Vec<usize> {
        let had = self.shares.had.iter().filter(|(_, had)| !**had);
        let got_none = |copy: &usize| self.account(*copy).received == Some(0);
        had.map(|(copy, _)| *copy).filter(got_none).collect()
    }
}
