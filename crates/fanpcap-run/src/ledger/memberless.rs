//! Settles the members of a group that this command has founded, once the group has no living
//! member. The group's founder has duplicates of their sockets.

use std::mem;

use fanpcap_group::founder::Memberless;
use fanpcap_group::page::MemberId;
use fanpcap_group::view::FinalCounters;
use fanpcap_linux::interface;

use super::member::Member;
use super::{Account, Ledger};

impl Ledger {
    /// Returns the members of `ended` that were in the group that this command has founded, and the
    /// other members: they did not join, or are in another group.
    pub(super) fn of_founded(&self, ended: Vec<Member>) -> (Vec<Member>, Vec<Member>) {
        let founder = self.founder.as_ref();
        let is_of_it = |it: &Member| founder.is_some_and(|founder| founder.has(it.id));
        ended.into_iter().partition(is_of_it)
    }

    /// Takes the other members of the founded group, which has no living member: their processes
    /// may have ended since the ledger last looked.
    pub(super) fn rest_of_founded(&mut self) -> Vec<Member> {
        let members = mem::take(&mut self.held);
        let (mut founded, others) = self.of_founded(members);
        self.held = others;
        let members = mem::take(&mut self.ended);
        let (waiting, others) = self.of_founded(members);
        self.ended = others;
        founded.extend(waiting);
        founded
    }

    /// Whether members of the founded group may still be succeeded: copies are restarted, and the
    /// device is there.
    pub(super) fn awaits(&self) -> bool {
        let founder = self.founder.as_ref();
        let is_there = founder.is_some_and(|it| interface::name(it.ifindex()).is_some());
        is_there && !self.absences.is_over
    }
}

/// Closes the group's duplicates of the members' sockets, so that the ledger has the last ones.
pub(super) fn let_go(memberless: &Memberless<'_>, ended: &[Member]) {
    for member in ended {
        // If this fails, the kernel does not release the socket, and its last packets are unknown.
        let _ = memberless.let_go(member.id);
    }
}

/// Adds the accounts of the members to the sums of the group, and gives up their slots. Settles
/// members that are no copies', too.
pub(super) fn vacate(
    memberless: Memberless<'_>,
    accounts: impl Iterator<Item = (MemberId, Option<Account>)>,
) {
    for (member, account) in accounts {
        // A slot that is not vacated is settled by the next newcomer.
        let _ = memberless.vacate(member, &account.map_or_else(unknown, final_counters));
    }
    let _ = memberless.settle();
}

fn unknown() -> FinalCounters {
    final_counters(Account::default())
}

fn final_counters(account: Account) -> FinalCounters {
    let Account {
        received,
        dropped,
        taken,
        inherited,
        unread,
        ..
    } = account;
    let all = [received, dropped, taken, inherited, unread];
    FinalCounters {
        members: 1,
        received: received.unwrap_or(0),
        dropped: dropped.unwrap_or(0),
        taken: taken.unwrap_or(0),
        inherited: inherited.unwrap_or(0),
        unread: unread.unwrap_or(0),
        unknown: u64::from(all.contains(&None)),
    }
}
