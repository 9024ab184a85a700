//! A member of a direct group: its place, its counters, and what is known of the whole group.

use crate::page::{self, GroupDir, MemberId, Page};
use crate::record::{Counters, NOT_READ_BY_US, Record, Running, WORDS, at};
use crate::rejecting::Rejections;
use crate::roster::Roster;
use crate::steered::Steered;
use fanpcap_config::mode::Mode;
use fanpcap_config::steering::{Counts, Steering};
use fanpcap_linux::file::shared::{self, Word};
use fanpcap_linux::wait::clock;
use fanpcap_linux::{packet, process};
use fanpcap_reader::{Kept, Tell};
use fanpcap_steer::ir::COUNTERS;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Where a member sits. It stays true when the process or thread moves to another network namespace.
#[derive(Clone, Debug)]
pub struct Place {
    group: u16,
    mode: Mode,
    ifindex: u32,
    id: MemberId,
    /// The directory of the members' pages, where there are any.
    group_dir: Option<GroupDir>,
}

/// What is known of a whole group; what is not, is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Sockets in the group, of all processes.
    pub members: Option<u64>,
    /// Sums over the members, when each of them has published its counters.
    pub counters: Option<Counters>,
    /// Age of the oldest counters in the sums, in nanoseconds; 0 where there are none.
    pub age_ns: u64,
    /// The same of the program's counters and the late fragments.
    pub counts_age_ns: u64,
    /// Sums over the program's counters, when each member has published its own.
    pub counts: Option<Counts>,
    /// Later fragments that came before the first of their datagram, if the member lives whose copy of the program meets
    /// them.
    pub late: Option<u64>,
}

impl Place {
    pub(crate) fn new(group: u16, mode: Mode, ifindex: u32, id: MemberId) -> Self {
        let group_dir = GroupDir::for_member(ifindex, group).ok();
        Self {
            group,
            mode,
            ifindex,
            id,
            group_dir,
        }
    }

    /// The group's number.
    pub fn group(&self) -> u16 {
        self.group
    }

    /// What tells the member from others.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// The directory of the group's pages.
    pub(crate) fn group_dir(&self) -> Option<&GroupDir> {
        self.group_dir.as_ref()
    }

    /// The group's mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether two members are in the same group.
    pub fn is_beside(&self, other: &Self) -> bool {
        (self.group, self.ifindex) == (other.group, other.ifindex)
            && self.group_dir == other.group_dir
    }

    /// Another program in the group, by its page: name and process. Two different programs that share
    /// a stream are rarely meant to. The number of the process tells nothing: in another container it may be our own.
    pub fn stranger(&self) -> Option<(String, u32)> {
        let own = process::executable();
        let differs = |record: &Record| record.executable != own;
        let other = self.records().into_iter().find(differs)?;
        Some((other.program, other.pid))
    }

    /// What the kernel and the members' pages tell of the group.
    pub fn group_stats(&self) -> GroupStats {
        let members = self.members();
        let told = GroupStats {
            members: members.as_ref().map(|members| members.len() as u64),
            ..GroupStats::default()
        };
        let pages = self.group_dir.as_ref().map(GroupDir::pages);
        let pages = pages.unwrap_or_default();
        let Some(records) = members.and_then(|members| of_members(&members, pages)) else {
            return told;
        };
        let oldest = records.iter().map(|record| record.read_ns).min();
        let now = clock::monotonic_ns();
        let known = oldest.filter(|&oldest| oldest > 0);
        let programs: Option<Vec<&Running>> = records
            .iter()
            .map(|record| record.steering.as_ref())
            .collect();
        let counted = programs.as_deref().and_then(oldest_count);
        let age = |oldest: Option<u64>| oldest.map_or(0, |oldest| now.saturating_sub(oldest));
        GroupStats {
            counters: known.map(|_| sum(&records)),
            age_ns: age(known),
            counts_age_ns: age(counted),
            counts: programs.as_deref().and_then(sum_counts),
            late: programs.as_deref().and_then(sum_late),
            ..told
        }
    }

    /// The members of the group; `None` if this one is not in the calling thread's network
    /// namespace.
    pub(crate) fn members(&self) -> Option<Vec<MemberId>> {
        let roster = Roster::look().ok()?;
        roster.find(self.id)?;
        Some(roster.ids(self.ifindex, self.group).collect())
    }

    fn records(&self) -> Vec<Record> {
        self.group_dir
            .as_ref()
            .map(GroupDir::records)
            .unwrap_or_default()
    }
}

/// The records of the sockets in `members`, one at least, if each has a page. A page of another socket says nothing of the
/// group: its owner is about to join, or has failed to.
fn of_members(members: &[MemberId], pages: Vec<(MemberId, Record)>) -> Option<Vec<Record>> {
    let mut pages: BTreeMap<MemberId, Record> = pages.into_iter().collect();
    let records = members.iter().map(|member| pages.remove(member));
    records
        .collect::<Option<Vec<_>>>()
        .filter(|records| !records.is_empty())
}

fn sum(records: &[Record]) -> Counters {
    // What others have written may be anything.
    let add = |sum: Counters, record: &Record| Counters {
        received: sum.received.saturating_add(record.counters.received),
        dropped: sum.dropped.saturating_add(record.counters.dropped),
    };
    records.iter().fold(Counters::default(), add)
}

/// Sums over the programs' counters, when all have published theirs.
fn sum_counts(programs: &[&Running]) -> Option<Counts> {
    let mut sums = [0_u64; COUNTERS];
    for running in programs {
        (running.counted_ns > 0).then_some(())?;
        for (sum, count) in sums.iter_mut().zip(running.counters) {
            *sum = sum.wrapping_add(count);
        }
    }
    Some(sums)
}

/// When the oldest of the programs' counters was read that may have changed since.
fn oldest_count(programs: &[&Running]) -> Option<u64> {
    let counted = programs.iter().map(|running| running.counted_ns);
    counted.filter(|&counted_ns| counted_ns > 0).min()
}

/// All late fragments, when a member tells of them that has set the program.
fn sum_late(programs: &[&Running]) -> Option<u64> {
    let setters = programs.iter().filter(|running| running.has_set);
    let late = setters.map(|running| running.late);
    late.reduce(u64::saturating_add)
}

/// A handle in a kernel fan-out group. It ends when the handle's socket is closed.
#[derive(Debug)]
pub struct Member {
    place: Arc<Place>,
    /// What this process' system library has counted; its counters are 32 bits wide and wrap.
    told: Counters,
    /// What the socket had counted when it joined.
    before: Counters,
    page: Result<Page, [Word; WORDS]>,
    /// Its part in the group's program, where that has one.
    steered: Option<Arc<Steered>>,
}

impl Tell for Steered {
    fn tell(&self) {
        self.publish();
    }

    fn goes_on(&self) -> bool {
        Self::goes_on(self)
    }
}

impl Member {
    /// A member at `place` whose library has counted `before`, which was not the group's.
    pub(crate) fn new(place: Place, before: Counters) -> Self {
        Self::with(place, before, None)
    }

    /// The same in a group with a program.
    pub(crate) fn steered(
        place: Place,
        before: Counters,
        program: (&Steering, &Arc<Steered>),
    ) -> Self {
        Self::with(place, before, Some(program))
    }

    fn with(place: Place, before: Counters, program: Option<(&Steering, &Arc<Steered>)>) -> Self {
        let steering = program.map(|(steering, _)| steering);
        let content = page::content(place.mode, steering, before);
        let create = |group_dir| Page::create(group_dir, place.id, &content).ok();
        // Without a page the group's sums are unknown, and say so.
        let page = place.group_dir.as_ref().and_then(create);
        let page = page.ok_or_else(|| shared::own(&content));
        let words = page.as_ref().map_or_else(|own| own, Page::words);
        let steered = program.map(|(_, steered)| Arc::clone(steered));
        if let Some(steered) = &steered {
            steered.publish_on(&words[at::DIGEST..]);
        }
        Self {
            page,
            place: Arc::new(place),
            told: before,
            before,
            steered,
        }
    }

    /// Its part in the group's program, where that has one.
    pub fn steering(&self) -> Option<&Arc<Steered>> {
        self.steered.as_ref()
    }

    /// The digest of its group's steering program, as its page tells: another member may have
    /// replaced it. 0 for none.
    pub fn digest(&self) -> u64 {
        self.words()[at::DIGEST].get()
    }

    /// Notes on its page when it rejects all.
    pub fn rejections(&self) -> Rejections {
        Rejections::new(self.place.ifindex, self.words())
    }

    /// Where it sits.
    pub fn place(&self) -> &Arc<Place> {
        &self.place
    }

    /// What a reader of ours, which is told so by this, must keep of the member; none where there is no page
    /// to keep it on.
    pub fn read_by_us(&self) -> Option<Kept> {
        let words = self.page.as_ref().ok()?.words();
        let taken = &words[at::TAKEN];
        if taken.get() == NOT_READ_BY_US {
            taken.set(0);
        }
        Some(Kept {
            taken: taken.clone(),
            received: words[at::PAST[0]].clone(),
            dropped: words[at::PAST[1]].clone(),
            reading: words[at::READING].clone(),
            read_ns: words[at::READ_NS].clone(),
            read_taken: words[at::READ_TAKEN].clone(),
            idle_taken: words[at::IDLE_TAKEN].clone(),
            looked_ns: words[at::LOOKED_NS].clone(),
            more: self.steered.clone().map(|steered| steered as Arc<dyn Tell>),
        })
    }

    /// Notes that the system's library reads the member, which does not tell what it has taken.
    pub fn read_by_system(&self) {
        self.words()[at::TAKEN].set(NOT_READ_BY_US);
    }

    /// Takes in the totals that the system's library tells and publishes. Returns the socket's totals,
    /// which begin with the handle, not with the group.
    pub fn handle_stats(&mut self, received: u32, dropped: u32) -> Counters {
        let before = self.told;
        self.told.received = unwrapped(before.received, received);
        self.told.dropped = unwrapped(before.dropped, dropped);
        // Added, not set: a forked child's library counts beside its parent's.
        let more = Counters {
            received: self.told.received - before.received,
            dropped: self.told.dropped - before.dropped,
        };
        self.add(at::TOLD, more);
        if let Some(steered) = &self.steered {
            steered.publish_at_once();
        }
        let past = self.sums(at::PAST);
        Counters {
            received: self.told.received + past.received,
            dropped: self.told.dropped + past.dropped,
        }
    }

    /// Reads the socket's counters past the system's library, from any thread of the process, and
    /// publishes. The kernel clears them on read, so each packet is counted on one side only.
    /// Nothing is allocated or freed.
    pub fn refresh(&self, fd: BorrowedFd<'_>) {
        // Old counters must not look like new ones.
        self.words()[at::READING].during(|| {
            if let Ok(statistics) = packet::take_statistics(fd) {
                let more = Counters {
                    received: statistics.packets.into(),
                    dropped: statistics.drops.into(),
                };
                self.add(at::PAST, more);
            }
        });
    }

    /// The member's counters as last read, since it joined.
    pub fn counters(&self) -> Counters {
        let (told, past, before) = (self.sums(at::TOLD), self.sums(at::PAST), self.before);
        let since =
            |told: u64, past: u64, before: u64| told.saturating_add(past).saturating_sub(before);
        Counters {
            received: since(told.received, past.received, before.received),
            dropped: since(told.dropped, past.dropped, before.dropped),
        }
    }

    fn words(&self) -> &[Word; WORDS] {
        self.page.as_ref().map_or_else(|own| own, Page::words)
    }

    fn sums(&self, [received, dropped]: [usize; 2]) -> Counters {
        Counters {
            received: self.words()[received].get(),
            dropped: self.words()[dropped].get(),
        }
    }

    fn add(&self, [received, dropped]: [usize; 2], more: Counters) {
        self.words()[received].add(more.received);
        self.words()[dropped].add(more.dropped);
        self.words()[at::READ_TAKEN].set(self.words()[at::TAKEN].get());
        self.words()[at::READ_NS].set(clock::monotonic_ns());
    }
}

/// A 64-bit total after a 32-bit one, which it follows modulo 2^32, has moved on. One that another
/// thread has read before, and told later, has not.
fn unwrapped(total: u64, now: u32) -> u64 {
    let low = total & u64::from(u32::MAX);
    let step = (u64::from(now) + (1 << 32) - low) & u64::from(u32::MAX);
    if step < 1 << 31 { total + step } else { total }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    #[test]
    fn sums_are_over_the_members_and_no_other_pages() {
        let pages = |inodes: &[u64]| {
            let page = |&inode: &u64| {
                let pid = u32::try_from(inode).unwrap();
                (MemberId::of_socket(inode), Record { pid, ..record() })
            };
            inodes.iter().map(page).collect::<Vec<_>>()
        };
        let told = |members: &[u64], inodes: &[u64]| {
            let members: Vec<_> = members.iter().copied().map(MemberId::of_socket).collect();
            let records = of_members(&members, pages(inodes))?;
            Some(records.iter().map(|it| it.pid).collect::<Vec<_>>())
        };
        assert_eq!(told(&[1, 2], &[2, 1]), Some(vec![1, 2]));
        assert_eq!(told(&[1], &[1, 3]), Some(vec![1]), "3 is joining");
        assert_eq!(told(&[1, 2], &[1, 3]), None, "2 has no page");
        assert_eq!(told(&[], &[3]), None);
    }

    #[test]
    fn totals_go_on_when_32_bits_wrap() {
        assert_eq!(unwrapped(0, 5), 5);
        assert_eq!(unwrapped(5, 5), 5);
        assert_eq!(unwrapped(u64::from(u32::MAX), 4), (1 << 32) + 4);
    }

    #[test]
    fn a_total_that_comes_late_takes_nothing_back() {
        assert_eq!(unwrapped(10, 9), 10);
        assert_eq!(unwrapped((7 << 32) + 10, 9), (7 << 32) + 10);
        assert_eq!(unwrapped(7 << 32, u32::MAX), 7 << 32);
    }

    #[test]
    fn what_was_counted_before_joining_is_not_the_groups() {
        let before = Counters {
            received: 50,
            dropped: 2,
        };
        let place = Place {
            group: 7,
            mode: Mode::parse("lb").unwrap(),
            ifindex: 1,
            id: MemberId::of_socket(1),
            group_dir: None,
        };
        let mut member = Member::new(place, before);
        let totals = member.handle_stats(60, 2);
        assert_eq!((totals.received, totals.dropped), (60, 2));
        let own = member.counters();
        assert_eq!((own.received, own.dropped), (10, 0));
    }
}
