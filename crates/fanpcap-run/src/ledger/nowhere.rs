//! Packets that the group's steering program dropped, on all devices of the copies. The ledger
//! holds the memory with these counts, which then outlives the group.

use std::sync::Arc;

use fanpcap_group::founder::Founder;
use fanpcap_group::group_counters::GroupCounters;
use fanpcap_group::page::MemberId;
use fanpcap_group::view::{GroupTable, State, View};

use super::Ledger;
use super::member::Member;

/// The counts of the copies' groups. A device has several, one after the other, if the group ended
/// and began again.
#[derive(Debug, Default)]
pub(super) struct Nowhere {
    tables: Vec<(u32, GroupTable, u64)>,
    /// Packets that former groups dropped whose founder this command was.
    of_former_founders: u64,
    engines: Vec<Arc<GroupCounters>>,
    /// A member ended before the count of its group was held.
    is_unknown: bool,
}

impl Nowhere {
    /// Adds the count of a founder whom another one replaces.
    pub(super) fn keep_of(&mut self, former: &Founder) {
        let sum = self.of_former_founders;
        self.of_former_founders = sum.saturating_add(former.nowhere());
    }

    pub(super) fn of_engine(&mut self, counters: &Arc<GroupCounters>) {
        self.engines.push(Arc::clone(counters));
    }

    fn has(&self, (ifindex, id): (u32, MemberId)) -> bool {
        let mut tables = self.tables.iter().filter(|(of, ..)| *of == ifindex);
        tables.any(|(_, table, _)| table.has(id))
    }

    fn sum(&self, founder: Option<&Founder>) -> Option<u64> {
        let tables = self.tables.iter();
        let tables = tables.map(|(_, table, before)| table.nowhere().saturating_sub(*before));
        let founder = founder.map(|it| it.nowhere().saturating_add(self.of_former_founders));
        let engines = self.engines.iter().map(|it| it.nowhere());
        let sum = tables.chain(founder).chain(engines);
        let sum = sum.reduce(u64::saturating_add);
        sum.filter(|_| !self.is_unknown)
    }
}

impl Ledger {
    /// Packets that the steering program dropped since the first copy joined; `None` if the number
    /// is unknown, or if the group has no steering program.
    pub(crate) fn nowhere(&self) -> Option<u64> {
        self.nowhere.sum(self.founder())
    }

    /// Holds the counts of the groups of members that have joined. A newcomer has no slot yet, so
    /// its group's count is held later.
    pub(super) fn hold_nowhere(&mut self) {
        for member in &self.held {
            if !counts_in_table(member) || self.holds_nowhere_of(member) {
                continue;
            }
            let (ifindex, group) = (member.ifindex, self.group);
            let table = GroupTable::of_member(ifindex, group, &member.record);
            let Some(table) = table.filter(|it| it.has(member.id)) else {
                continue;
            };
            let is_ours = table.look().is_some_and(|view| self.has_only_ours(&view));
            let before = if is_ours { 0 } else { table.nowhere() };
            self.nowhere.tables.push((ifindex, table, before));
        }
    }

    /// Notes that a member has ended. If the count of its group is not held, it is lost: a handle
    /// was too short, or this process may not trace the member's process. Mode `flow` drops no
    /// packets, so there nothing is said.
    pub(super) fn note_nowhere_of(&mut self, ended: &Member) {
        if counts_in_table(ended) && ended.has_joined() && !self.holds_nowhere_of(ended) {
            self.nowhere.is_unknown = true;
            let title = ended.record.title().unwrap_or_default();
            if title.split('+').next() == Some("flow") {
                return;
            }
            self.complaints.push(format!(
                "how many packets the steering program dropped is unknown: copy {} had a handle whose group's count could not be read",
                ended.copy
            ));
        }
    }

    fn holds_nowhere_of(&self, member: &Member) -> bool {
        let founder = self.founder().filter(|it| it.ifindex() == member.ifindex);
        founder.is_some_and(|it| it.has(member.id)) || self.nowhere.has((member.ifindex, member.id))
    }

    /// Whether the group has had only members of copies so far.
    fn has_only_ours(&self, view: &View) -> bool {
        let mut taken = view.places.iter().filter(|it| it.state != State::Free);
        view.gone.members == 0 && taken.all(|it| self.known.contains(&it.member))
    }
}

fn counts_in_table(member: &Member) -> bool {
    member.is_steered() && !member.record.is_on_engine()
}
