//! How members leave their group, and when the group becomes empty.

use std::collections::BTreeSet;
use std::io;
use std::thread;

use fanpcap_group::founder::Memberless;
use fanpcap_group::page::MemberId;
use fanpcap_group::roster::Roster;
use fanpcap_linux::netlink::link;

use super::device_names::is_gone;
use super::member::Member;
use super::{Account, Ledger, memberless};

impl Ledger {
    /// Settles members, each on its own thread. First makes all these members refuse packets, so
    /// that their threads wait for packets in flight at the same time. If a child process still
    /// uses a member, the ledger keeps the member, and later calls check it again.
    ///
    /// In a group that this command has founded, the group's lock is held meanwhile, so that no
    /// newcomer takes over the members' rings. Members wait while that lock can't be had.
    pub(super) fn settle_at_once(&mut self, ended: Vec<Member>) {
        let (mut founded, ended) = self.of_founded(ended);
        if !ended.is_empty() {
            self.settle_these(ended, None);
        }
        let Some(founder) = self.founder.clone().filter(|_| !founded.is_empty()) else {
            return;
        };
        match founder.lock_memberless(self.awaits()) {
            Ok(Some(memberless)) => {
                founded.extend(self.rest_of_founded());
                self.settle_these(founded, Some(memberless));
            }
            Ok(None) | Err(_) => self.ended.extend(founded),
        }
    }

    fn settle_these(&mut self, mut ended: Vec<Member>, memberless: Option<Memberless<'_>>) {
        let refuse = on_threads(&mut ended, Member::refuse);
        let mut refuse = refuse.into_iter();
        // A member whose thread could not be started stays, and the next call tries again.
        let (mut ended, stay): (Vec<_>, Vec<_>) = ended
            .into_iter()
            .partition(|_| refuse.next().flatten().unwrap_or(false));
        self.held.extend(stay);
        self.hold_known(&mut ended);
        // In a group without members, no packet comes to those that are gone.
        if memberless.is_none() {
            self.await_still(&ended);
        }
        // The end of a member that never joined can't make the group empty.
        let joined = ended.iter().filter(|member| member.has_joined());
        let devices: BTreeSet<u32> = joined.map(|it| it.ifindex).collect();
        let devices = devices.into_iter();
        let moments: Vec<Moment> = devices.map(|it| Moment::of(it, &ended)).collect();
        // A member that joined and died since the last scan has ended an absence by its join.
        self.end_absences(&ended);
        for moment in &moments {
            self.note_uncounted(moment, &ended);
        }
        if let Some(memberless) = &memberless {
            memberless::let_go(memberless, &ended);
        }
        let accounts = on_threads(&mut ended, Member::settle);
        let accounts = accounts.into_iter().map(Option::flatten);
        let accounts: Vec<Option<Account>> = accounts
            .zip(&ended)
            .map(|(account, member)| Some(self.with_lost_reading(account?, member)))
            .collect();
        if let Some(memberless) = memberless {
            let ids = ended.iter().map(|member| member.id);
            memberless::vacate(memberless, ids.zip(accounts.iter().copied()));
        }
        for moment in moments {
            self.note_leave(&moment, &ended, &accounts);
        }
        for (member, account) in ended.iter().zip(accounts) {
            let of_copy = |account| (member.copy, account);
            self.settled.extend(account.map(of_copy));
        }
        self.end_absences(&[]);
    }

    /// The account of a member whose last counters may be lost. If they are lost, the bound of
    /// uncounted packets also contains the packets that the device has counted since the last
    /// complete reading. The same span of the device's counter is added only once, even if several
    /// members end.
    pub(super) fn with_lost_reading(&mut self, account: Account, member: &Member) -> Account {
        let Some(read_ns) = member.lost_since() else {
            return account;
        };
        let ifindex = member.ifindex;
        let joined = member.rejecting().joined_at;
        // If this process never held the counters, the number of the group's packets that reached
        // no member is unknown, too. So the span then begins at the member's join.
        let (before, known) = match member.lacks_counters() {
            true => (joined, account.received.unwrap_or(0)),
            false => (self.counts.before(ifindex, read_ns).or(joined), 0),
        };
        let since = before.zip(link::packets(ifindex).ok());
        let spans = self.bounded.entry(ifindex).or_default();
        let lost = since.map(|(before, now)| spans.add(before, now).saturating_sub(known));
        let at_most = account.uncounted_at_most.zip(lost);
        Account {
            uncounted_at_most: at_most.map(|(known, lost)| known.saturating_add(lost)),
            ..account
        }
    }

    /// Notes that members have left the group on a device, and whether the group is empty now.
    fn note_leave(&mut self, moment: &Moment, ended: &[Member], accounts: &[Option<Account>]) {
        let of_device = ended.iter().zip(accounts);
        let of_device = of_device.filter(|(member, _)| member.ifindex == moment.ifindex);
        let refused = of_device.filter_map(|(_, account)| account.as_ref()?.refused);
        let left = moment.counted_at_the_leave(refused.sum());
        let Some(one) = ended.first() else {
            return;
        };
        let in_group = self.ids_in_group(moment.ifindex);
        // A copy creates its page before it joins. So after this call the ledger knows all copies'
        // members in `in_group`.
        self.learn();
        let is_deserted = in_group.is_some_and(|in_group| {
            let device = (moment.ifindex, left);
            self.is_deserted(device, &in_group)
        });
        let unsure = is_deserted.then(|| {
            self.absences.begin(moment.ifindex, left);
            // Ended members that wait for a takeover joined before this moment, so their joins do
            // not end the new absence.
            let rest = self.ended.iter_mut();
            rest.filter(|it| it.ifindex == moment.ifindex)
                .for_each(|it| it.is_of_before = true);
            let gets_none = self.stopped.contains(&moment.ifindex) || is_gone(moment.ifindex);
            if gets_none { Some(0) } else { moment.unsure() }
        });
        let missed = self.missed_at_the_end(moment.ifindex, (is_deserted, left));
        let at_most = unsure.unwrap_or(Some(0));
        let at_most = at_most.map(|it| it.saturating_add(missed));
        let account = Account::uncounted(at_most);
        self.settled.push((one.copy, account));
    }

    /// Whether the group on a device was empty after the members left. `counted` is the device's
    /// packet counter at that time. `in_group` are the members that the kernel lists now.
    fn is_deserted(
        &self,
        (ifindex, counted): (u32, Option<u64>),
        in_group: &BTreeSet<MemberId>,
    ) -> bool {
        let is_in = |member: &Member| match member.rejecting() {
            it if member.ifindex != ifindex || !it.has_begun => false,
            // A member that has started to join may still fail to join.
            _ if !member.has_joined() && !in_group.contains(&member.id) => false,
            // A member that joined after the others left was not in the group when they left.
            it => it
                .joined_at
                .zip(counted)
                .is_none_or(|(joined, left)| joined <= left),
        };
        in_group.is_subset(&self.known) && !self.held.iter().any(is_in)
    }

    /// Members of the group on a device; `None` if the kernel does not list them.
    pub(super) fn ids_in_group(&self, ifindex: u32) -> Option<BTreeSet<MemberId>> {
        let roster = Roster::look().ok()?;
        Some(roster.ids(ifindex, self.group).collect())
    }

    /// Ends the absences on devices where a copy is in the group again, or where a member in
    /// `ended` has meanwhile been in the group.
    pub(super) fn end_absences(&mut self, ended: &[Member]) {
        self.note_begun(ended);
        for ifindex in self.absences.devices() {
            let members = self.held.iter().chain(ended);
            let of_device = members.filter(|member| {
                member.ifindex == ifindex || self.names.is_successor(ifindex, member.ifindex)
            });
            let begun = of_device
                .filter(|it| it.has_joined() && !it.is_of_before)
                .map(Member::rejecting);
            if let Some(first) = begun.map(|it| it.joined_at).min() {
                let gone = self.names.name(ifindex).filter(|_| is_gone(ifindex));
                self.complaints
                    .extend(self.absences.end(ifindex, first, gone));
                self.resumed.extend(first.map(|first| (ifindex, first)));
            }
        }
    }

    /// Notes each device's packet counter at the first join of a copy.
    fn note_begun(&mut self, ended: &[Member]) {
        let members = self.held.iter().chain(ended);
        for member in members.filter(|it| it.has_joined()) {
            if let Some(joined) = member.rejecting().joined_at {
                let begun = self.begun.entry(member.ifindex).or_insert(joined);
                *begun = joined.min(*begun);
            }
        }
    }
}

/// Members that refuse packets and are about to leave the group on a device.
pub(super) struct Moment {
    pub(super) ifindex: u32,
    /// The device's count before and after `refused` was read.
    counted: [Option<u64>; 2],
    /// Packets that these members had refused when this `Moment` was created.
    refused: u64,
}

impl Moment {
    fn of(ifindex: u32, members: &[Member]) -> Self {
        let before = link::packets(ifindex).ok();
        let of_device = members.iter().filter(|member| member.ifindex == ifindex);
        let refused = of_device.filter_map(Member::refused).sum();
        Self {
            ifindex,
            counted: [before, link::packets(ifindex).ok()],
            refused,
        }
    }

    /// The device's count after `refused` was read.
    pub(super) fn counted(&self) -> Option<u64> {
        self.counted[1]
    }

    /// The device's count when the last of these members left. The result is valid if the group had
    /// no other member: these members then refused every packet until that time. The true count may
    /// be lower, by up to [`Moment::unsure`].
    fn counted_at_the_leave(&self, refused: u64) -> Option<u64> {
        Some(self.counted[1]? + refused.saturating_sub(self.refused))
    }

    fn unsure(&self) -> Option<u64> {
        let [before, after] = self.counted;
        Some(after?.saturating_sub(before?))
    }
}

/// Applies `act` to each member, each on its own thread. The result is `None` for a member whose
/// thread could not be started.
fn on_threads<T: Send>(members: &mut [Member], act: fn(&mut Member) -> T) -> Vec<Option<T>> {
    thread::scope(|scope| {
        let begin = |member| thread::Builder::new().spawn_scoped(scope, move || act(member));
        let threads: Vec<_> = members.iter_mut().map(begin).collect();
        let joined = |thread: io::Result<thread::ScopedJoinHandle<'_, T>>| thread.ok()?.join().ok();
        threads.into_iter().map(joined).collect()
    })
}
