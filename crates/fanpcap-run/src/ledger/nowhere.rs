//! Packets that the group's steering program dropped, on all devices of the copies. The ledger
//! holds the memory with these counts, which then outlives the group.

use std::collections::BTreeSet;
use std::sync::Arc;

use fanpcap_group::founder::Founder;
use fanpcap_group::group_counters::GroupCounters;
use fanpcap_group::page::MemberId;
use fanpcap_group::view::GroupTable;

use super::Ledger;
use super::member::Member;

/// The counts of the copies' groups. A device has several, one after the other, if the group ended
/// and began again.
#[derive(Debug, Default)]
pub(super) struct Nowhere {
    /// Each with its device, and with what it counted before a copy was in the group.
    tables: Vec<(u32, GroupTable, u64)>,
    engines: Vec<(Arc<GroupCounters>, u64)>,
    /// A member ended before the count of its group was held.
    is_unknown: bool,
}

impl Nowhere {
    /// Holds the count of a group on packet sockets that this command has founded. If that fails,
    /// the count is held when the group has a member.
    pub(super) fn of_founder(&mut self, founder: &Founder) {
        let table = founder.table().filter(|_| !founder.is_on_engine());
        let table = table.map(|table| (founder.ifindex(), table, 0));
        self.tables.extend(table);
    }

    /// Holds the count of a group on an engine. `copies` are the copies' members so far.
    pub(super) fn of_engine(&mut self, counters: &Arc<GroupCounters>, copies: &BTreeSet<MemberId>) {
        let is_ours = counters.has_had_only(copies);
        let before = if is_ours { 0 } else { counters.nowhere() };
        self.engines.push((Arc::clone(counters), before));
    }

    fn has(&self, member: &Member) -> bool {
        let ifindex = member.ifindex;
        let mut tables = self.tables.iter().filter(|(of, ..)| *of == ifindex);
        tables.any(|(_, table, _)| table.has(member.id))
    }

    fn sum(&self) -> Option<u64> {
        let tables = self.tables.iter();
        let tables = tables.map(|(_, table, before)| table.nowhere().saturating_sub(*before));
        let engines = self.engines.iter();
        let engines = engines.map(|(it, before)| it.nowhere().saturating_sub(*before));
        let sum = tables.chain(engines).reduce(u64::saturating_add);
        sum.filter(|_| !self.is_unknown)
    }
}

impl Ledger {
    /// Packets that the steering program dropped since the first copy joined; `None` if the number
    /// is unknown, or if the group has no steering program.
    pub(crate) fn nowhere(&self) -> Option<u64> {
        self.nowhere.sum()
    }

    /// Holds the counts of the groups of members that have joined. A newcomer has no slot yet, so
    /// its group's count is held later.
    pub(super) fn hold_nowhere(&mut self) {
        for member in &self.held {
            let counts_in_table = member.is_steered() && !member.record.is_on_engine();
            if !counts_in_table || self.nowhere.has(member) {
                continue;
            }
            let (ifindex, group) = (member.ifindex, self.group);
            let table = GroupTable::of_member(ifindex, group, &member.record);
            let Some(table) = table.filter(|it| it.has(member.id)) else {
                continue;
            };
            let is_ours = table.has_had_only(&self.known);
            let before = if is_ours { 0 } else { table.nowhere() };
            self.nowhere.tables.push((ifindex, table, before));
        }
    }

    /// Notes that a member has ended. If the count of its group is not held, it is lost: a handle
    /// was too short, or this process may not trace the member's process. Mode `flow` drops no
    /// packets, so there nothing is said.
    pub(super) fn note_nowhere_of(&mut self, ended: &Member) {
        let is_held = match ended.record.is_on_engine() {
            true => !ended.lacks_counters(),
            false => !ended.is_steered() || self.nowhere.has(ended),
        };
        if is_held || !ended.has_joined() {
            return;
        }
        self.nowhere.is_unknown = true;
        let title = ended.record.title().unwrap_or_default();
        if title.split('+').next() != Some("flow") {
            let lacks = ended.lacks.map(|it| format!("; this needs {it}"));
            self.complaints.push(format!(
                "how many packets the steering program dropped is unknown: copy {} had a handle whose group's count could not be read{}",
                ended.copy, lacks.unwrap_or_default()
            ));
        }
    }
}
