//! The ledger of copies whose packets come from a poller. The poller counts the packets of each
//! member, and keeps the accounts of members that have ended for this command. So each packet that
//! came to the group is in one number, and no number is a bound, except for members whose processes
//! have ended before this command saw them.

mod members;
mod stop;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::time::Duration;

use fanpcap_group::view::State;
use fanpcap_linux::interface;
use fanpcap_linux::process::effective_user;
use fanpcap_poll::message::{EndedMember, Question, Reply, SeenGroup, SeenSlot, Watched};
use fanpcap_poll::{Asking, place};
use fanpcap_snapshot::unreachable;
use serde::Serialize;

use super::absence::Absences;
use super::book::Book;
use super::{Absent, Account, First, Left};

/// After the last copy's end, the poller gets this time to notice it.
const NOTICED_WITHIN: Duration = Duration::from_secs(3);
const PERIOD: Duration = Duration::from_millis(5);

/// How long the poller may take for a reply. Afterwards its counts are unknown.
const ANSWERS: Duration = Duration::from_secs(2);

/// The longest time until a reader hands packets in its pool to its application.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Packets that only the copies' poller counts, since the copies were started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct AtPoller {
    /// Packets that came to the poller, dropped ones included.
    pub(crate) received: u64,
    /// Packets that were lost before the poller, because it was late.
    pub(crate) dropped: u64,
    /// Packets that came to the group until it was stopped. They are those received by its members,
    /// those that the steering program dropped, and the next four numbers, if no packet goes to
    /// several members.
    pub(crate) offered: u64,
    /// Packets of the group for which it had no member.
    pub(crate) no_member: u64,
    /// Packets of the group for which the poller had no time.
    pub(crate) no_time: u64,
    /// Packets that the host sends, and that the copies do not want.
    pub(crate) unwanted: u64,
    /// Packets that the filter of the poller's policy has left out.
    pub(crate) not_allowed: u64,
}

/// The ledger of a group of a poller.
pub(crate) struct PolledLedger {
    group: u16,
    engine: String,
    device: String,
    /// Whether this network namespace had the device when the ledger was made.
    is_here: bool,
    /// The connection on which the poller keeps accounts; `None` after it did not reply in time. A
    /// later connection would begin new counts, and the poller would tell of the same members
    /// again.
    asking: Option<Asking>,
    seen: Option<SeenGroup>,
    watched: Watched,
    running: Vec<(u32, usize)>,
    processes: BTreeMap<u32, usize>,
    /// The members of copies that were seen, and their copies.
    owners: BTreeMap<u64, usize>,
    /// The members of other processes that were seen.
    others: BTreeSet<u64>,
    settled: Vec<(usize, Account)>,
    had_share: BTreeSet<usize>,
    absences: Absences,
    /// Packets that came without a group until it was last seen.
    absent: u64,
    is_stopped: bool,
    /// The members whose packets were stopped with those of their group, which then had no other
    /// members, and no newcomer since.
    stopped: BTreeSet<u64>,
    /// The members of which the others of their group got the packets.
    drained: BTreeSet<u64>,
    /// A member that was not stopped has come or gone, so the stopped ones may get packets again.
    has_other_come: bool,
    has_unstopped: bool,
    complaints: VecDeque<String>,
    complained: BTreeSet<String>,
}

impl PolledLedger {
    /// The ledger of `group` at the poller of a device. Create it before the first copy starts.
    ///
    /// # Errors
    /// The poller does not reply, and what to do.
    pub(crate) fn new(group: u16, engine: &str, device: &str) -> anyhow::Result<Self> {
        let mut ledger = Self::unasked(group, engine, device);
        let asked = connect(engine, device).and_then(|asking| {
            ledger.asking = Some(asking);
            ledger.take()
        });
        asked.map_err(|error| unreachable(&ledger.socket(), &error))?;
        ledger.meet();
        Ok(ledger)
    }

    fn unasked(group: u16, engine: &str, device: &str) -> Self {
        Self {
            group,
            engine: engine.to_owned(),
            device: device.to_owned(),
            is_here: interface::index(device).is_some(),
            asking: None,
            seen: None,
            watched: Watched::default(),
            running: Vec::new(),
            processes: BTreeMap::new(),
            owners: BTreeMap::new(),
            others: BTreeSet::new(),
            settled: Vec::new(),
            had_share: BTreeSet::new(),
            absences: Absences::default(),
            absent: 0,
            is_stopped: false,
            stopped: BTreeSet::new(),
            drained: BTreeSet::new(),
            has_other_come: false,
            has_unstopped: false,
            complaints: VecDeque::new(),
            complained: BTreeSet::new(),
        }
    }

    fn socket(&self) -> String {
        format!("{}:{}", self.engine, self.device)
    }

    /// Asks for the group and for the accounts of members that have ended.
    fn take(&mut self) -> io::Result<()> {
        let asking = self.asking.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            let watched = match asking.ask(Question::Watch(self.group))? {
                Reply::Watched(watched) => watched,
                Reply::NotDone(why) => return Err(io::Error::other(why)),
                Reply::Group(_) | Reply::NoGroup | Reply::Done => {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            };
            let has_more = !watched.ended.is_empty();
            let ended = std::mem::take(&mut self.watched.ended);
            self.watched = *watched;
            self.watched.ended.extend(ended);
            if !has_more {
                break;
            }
        }
        let groups = asking.groups()?;
        let user = effective_user();
        let is_it = |it: &SeenGroup| it.number == Some(self.group) && it.user == user;
        self.seen = groups.into_iter().find(is_it);
        Ok(())
    }

    /// The poller has ended or does not reply in time. What its members had at the last reply is
    /// all that is known, and is settled once. A late reply is never read.
    fn lose(&mut self, error: &io::Error) {
        let text = unreachable(&self.socket(), error);
        self.complaints.push_back(format!(
            "the copies' counters are unknown from now on: {text}"
        ));
        self.asking = None;
        self.settle_ended();
        self.settle_rest(None);
        self.seen = None;
    }

    fn look(&mut self) {
        if self.asking.is_none() {
            return;
        }
        if let Err(error) = self.take() {
            return self.lose(&error);
        }
        self.meet();
        self.settle_ended();
        if self.watched.forgotten > 0 {
            let text = "the accounts of some members are unknown, because many members ended at \
                        once";
            self.complaints.push_back(text.to_owned());
        }
        self.note_absence();
    }

    /// Begins or ends an absence: a time without the group, after it had a member of a copy.
    fn note_absence(&mut self) {
        let index = self.index();
        let has_had = !self.had_no_members();
        match self.seen.is_some() {
            false if has_had => self.absences.begin(index, Some(self.absent)),
            false => {}
            true => {
                if self.watched.absent > self.absent && has_had {
                    self.absences.begin(index, Some(self.absent));
                }
                let said = self.absences.end(index, Some(self.watched.absent), None);
                self.complaints.extend(said);
                self.absent = self.watched.absent;
            }
        }
    }

    fn index(&self) -> u32 {
        interface::index(&self.device).unwrap_or_default()
    }

    /// The slots of members, also of those that have ended and whose packets are still read.
    fn slots(&self) -> impl Iterator<Item = &SeenSlot> {
        let slots = self.seen.iter().flat_map(|it| &it.slots);
        slots.filter(|it| it.pool_bytes > 0)
    }

    /// The members of copies.
    fn held(&self) -> impl Iterator<Item = (usize, &SeenSlot)> {
        let of = |slot: &'_ SeenSlot| self.owners.get(&slot.member).copied();
        self.slots().filter_map(move |slot| Some((of(slot)?, slot)))
    }

    fn living(&self) -> impl Iterator<Item = (usize, &SeenSlot)> {
        self.held().filter(|(_, slot)| is_living(slot))
    }

    fn ask_for(&mut self, question: Question) -> bool {
        let Some(asking) = &mut self.asking else {
            return false;
        };
        match asking.ask(question) {
            Ok(reply) => reply == Reply::Done,
            Err(error) => {
                self.lose(&error);
                false
            }
        }
    }
}

fn connect(engine: &str, device: &str) -> io::Result<Asking> {
    let found = place::open(engine, device)?;
    Asking::connect(&found.directory, &found.name, ANSWERS)
}

fn at_poller(watched: &Watched) -> AtPoller {
    let [received, dropped] = watched.source;
    let ledger = &watched.ledger;
    AtPoller {
        received,
        dropped,
        // Nobody wants what comes after the copies were stopped.
        offered: ledger.offered.saturating_sub(ledger.stopped),
        no_member: ledger.no_member,
        no_time: ledger.no_time,
        unwanted: ledger.unwanted,
        not_allowed: ledger.not_allowed,
    }
}

fn is_living(slot: &SeenSlot) -> bool {
    matches!(State::of(slot.state), State::Live | State::Newcomer)
}

fn of_living(slot: &SeenSlot) -> Account {
    Account {
        received: Some(slot.counts.received()),
        dropped: Some(slot.counts.dropped),
        taken: Some(slot.counts.delivered()),
        ..Account::ZERO
    }
}

fn of_ended(ended: &EndedMember) -> Account {
    let counts = ended.counts;
    Account {
        received: Some(counts.received()),
        dropped: Some(counts.dropped),
        taken: Some(counts.delivered()),
        inherited: Some(ended.inherited),
        unread: Some(counts.unread().saturating_sub(ended.inherited)),
        ..Account::ZERO
    }
}

impl Book for PolledLedger {
    fn started(&mut self, pid: u32, copy: usize) {
        self.running.push((pid, copy));
        self.processes.insert(pid, copy);
        if self.asking.is_none() {
            self.settled.push((copy, Account::default()));
        }
    }

    fn take_complaint(&mut self) -> Option<String> {
        while let Some(complaint) = self.complaints.pop_front() {
            if self.complained.insert(complaint.clone()) {
                return Some(complaint);
            }
        }
        None
    }

    fn scan(&mut self, copies: &[(u32, usize)]) {
        self.running = copies.to_vec();
        self.look();
    }

    fn settle(&mut self, all: bool) {
        if all {
            self.look();
        }
    }

    fn end_of_watch(&mut self) {
        self.look();
        let index = self.index();
        let said = self.absences.end(index, Some(self.watched.absent), None);
        self.complaints.extend(said);
        self.absences.is_over = true;
    }

    fn absent(&self) -> Absent {
        self.absences.sum
    }

    fn close(&mut self) {
        self.close_within(NOTICED_WITHIN);
    }

    fn has_members(&self, copy: usize) -> bool {
        self.living().any(|(of, _)| of == copy)
    }

    fn had_no_members(&self) -> bool {
        self.settled.is_empty() && self.owners.is_empty()
    }

    fn first(&mut self) -> Option<First> {
        self.living().next()?;
        let title = self.seen.as_ref()?.title.clone();
        Some(First::Mode {
            engine: self.engine.clone(),
            mode: title,
        })
    }

    fn devices(&self) -> BTreeSet<u32> {
        interface::index(&self.device).into_iter().collect()
    }

    fn lost_devices(&mut self, copy: usize) -> BTreeSet<String> {
        let is_lost = self.is_here && interface::index(&self.device).is_none();
        let was_there = is_lost && self.members(copy) > 0;
        was_there.then(|| self.device.clone()).into_iter().collect()
    }

    fn members(&self, copy: usize) -> usize {
        let settled = self.settled.iter().filter(|(of, _)| *of == copy);
        settled.count() + self.owners.values().filter(|of| **of == copy).count()
    }

    fn account(&self, copy: usize) -> Account {
        let settled = self.settled.iter().filter(|(of, _)| *of == copy);
        let held = self.held().filter(|(of, _)| *of == copy);
        let held = held.map(|(_, slot)| of_living(slot));
        Account::sum(settled.map(|(_, account)| *account).chain(held))
    }

    fn has_share(&self, copy: usize) -> bool {
        self.had_share.contains(&copy)
    }

    fn without_share(&self) -> Vec<usize> {
        let copies: BTreeSet<usize> = self.settled.iter().map(|(copy, _)| *copy).collect();
        let got_none = |copy: &usize| self.account(*copy).received == Some(0);
        let without = copies.into_iter();
        without
            .filter(|copy| !self.has_share(*copy) && got_none(copy))
            .collect()
    }

    fn nowhere(&self) -> Option<u64> {
        Some(self.watched.ledger.nowhere)
    }

    fn stop(&mut self) {
        self.look();
        self.is_stopped = true;
        self.stop_members();
    }

    fn stop_newcomers(&mut self) {
        if self.is_stopped && self.living().next().is_some() {
            self.look();
            self.stop_members();
        }
    }

    fn has_stopped(&self) -> bool {
        self.is_stopped && self.living().next().is_some()
    }

    fn has_unstopped(&self) -> bool {
        self.has_unstopped
    }

    fn left(&mut self) -> Vec<Left> {
        let left = self.living().map(|(copy, slot)| Left {
            copy,
            packets: Some(slot.counts.unread()),
            timeout: TIMEOUT,
        });
        left.filter(|it| it.packets != Some(0)).collect()
    }

    fn at_poller(&self) -> Option<AtPoller> {
        Some(at_poller(&self.watched))
    }
}

#[cfg(test)]
mod tests;
