//! A member of a group: its identity, its page and its counters.

use crate::group_stats::GroupStats;
use crate::page::{self, GroupDir, MemberId, Page};
use crate::record::{MemberCounters, NOT_READ_BY_US, Record, WORDS, at};
use crate::rejecting::Rejections;
use crate::roster::Roster;
use crate::steered::Steered;
use fanpcap_config::mode::Mode;
use fanpcap_config::steering::Steering;
use fanpcap_linux::file::shared::{self, Word};
use fanpcap_linux::wait::clock;
use fanpcap_linux::{packet, process};
use fanpcap_reader::{Publish, PublishedCounters};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Identifies a member and its group. Stays valid when the process or the thread moves to another
/// network namespace.
#[derive(Clone, Debug)]
pub struct Identity {
    group: u16,
    mode: Mode,
    ifindex: u32,
    id: MemberId,
    /// The group directory; `None` where there are no pages.
    group_dir: Option<GroupDir>,
}

impl Identity {
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

    /// The member's id in its network namespace.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// The group directory; `None` where there are no pages.
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

    /// Returns name and process id of a member of another application, by its page. Two different
    /// applications rarely share a stream on purpose. The process id is no proof: in another
    /// container it may equal our own.
    pub fn stranger(&self) -> Option<(String, u32)> {
        let own = process::executable();
        let differs = |record: &Record| record.executable != own;
        let other = self.records().into_iter().find(differs)?;
        Some((other.program, other.pid))
    }

    /// Sums up what the kernel and the pages show of the group.
    pub fn group_stats(&self) -> GroupStats {
        let members = self.members();
        let pages = self.group_dir.as_ref().map(GroupDir::pages);
        GroupStats::of(members.as_deref(), pages.unwrap_or_default())
    }

    /// The members of the group; `None` if this member is not in the calling thread's network
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

/// A handle in a kernel fanout group. The membership ends when the handle's socket is closed.
#[derive(Debug)]
pub struct Member {
    identity: Arc<Identity>,
    /// Totals of the system library's counters in this process, which are 32 bits wide and wrap.
    by_library: MemberCounters,
    /// What the socket had counted when it joined.
    before: MemberCounters,
    page: Result<Page, [Word; WORDS]>,
    /// The member's part in the group's steering program, if there is one.
    steered: Option<Arc<Steered>>,
}

impl Publish for Steered {
    fn publish(&self) {
        self.publish();
    }

    fn goes_on(&self) -> bool {
        Self::goes_on(self)
    }
}

impl Member {
    /// Makes the member, with its page. `before` is what the system's library has counted on the
    /// socket before it joined. `program` is the group's steering program, if there is one.
    pub(crate) fn new(
        identity: Identity,
        before: MemberCounters,
        program: Option<(&Steering, &Arc<Steered>)>,
    ) -> Self {
        let steering = program.map(|(steering, _)| steering);
        let content = page::content(identity.mode, steering, before);
        let create = |group_dir| Page::create(group_dir, identity.id, &content).ok();
        // Without a page the group's sums are unknown. Statistics show them as unknown.
        let page = identity.group_dir.as_ref().and_then(create);
        let page = page.ok_or_else(|| shared::own(&content));
        let words = page.as_ref().map_or_else(|own| own, Page::words);
        let steered = program.map(|(_, steered)| Arc::clone(steered));
        if let Some(steered) = &steered {
            steered.publish_on(&words[at::DIGEST..]);
        }
        Self {
            page,
            identity: Arc::new(identity),
            by_library: before,
            before,
            steered,
        }
    }

    /// The member's part in the group's steering program, if there is one.
    pub fn steered(&self) -> Option<&Arc<Steered>> {
        self.steered.as_ref()
    }

    /// The digest of the group's steering program on this member's page; 0: none. Another member
    /// may have replaced the program.
    pub fn digest(&self) -> u64 {
        self.words()[at::DIGEST].get()
    }

    /// Records on the page when this member rejects all packets.
    pub fn rejections(&self) -> Rejections {
        Rejections::new(self.identity.ifindex, self.words())
    }

    /// The identity of this member.
    pub fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Returns the counters that our reader must publish; `None` where there is no page. Also notes
    /// on the page that our reader reads the member.
    pub fn read_by_us(&self) -> Option<PublishedCounters> {
        let words = self.page.as_ref().ok()?.words();
        let taken = &words[at::TAKEN];
        if taken.get() == NOT_READ_BY_US {
            taken.set(0);
        }
        Some(PublishedCounters {
            taken: taken.clone(),
            received: words[at::BY_US[0]].clone(),
            dropped: words[at::BY_US[1]].clone(),
            reading: words[at::READING].clone(),
            read_ns: words[at::READ_NS].clone(),
            read_taken: words[at::READ_TAKEN].clone(),
            idle_taken: words[at::IDLE_TAKEN].clone(),
            looked_ns: words[at::LOOKED_NS].clone(),
            more: self
                .steered
                .clone()
                .map(|steered| steered as Arc<dyn Publish>),
        })
    }

    /// Notes on the page that the system's library reads the member. That library does not show the
    /// packets that it has taken.
    pub fn read_by_system(&self) {
        self.words()[at::TAKEN].set(NOT_READ_BY_US);
    }

    /// Publishes the system library's totals. Returns the socket's totals since it was opened, not
    /// since it joined.
    pub fn handle_stats(&mut self, received: u32, dropped: u32) -> MemberCounters {
        let before = self.by_library;
        self.by_library.received = unwrapped(before.received, received);
        self.by_library.dropped = unwrapped(before.dropped, dropped);
        // Add instead of set: the library of a forked child counts beside its parent's.
        let more = MemberCounters {
            received: self.by_library.received - before.received,
            dropped: self.by_library.dropped - before.dropped,
        };
        self.add(at::BY_LIBRARY, more);
        if let Some(steered) = &self.steered {
            steered.publish_at_once();
        }
        let past = self.sums(at::BY_US);
        MemberCounters {
            received: self.by_library.received + past.received,
            dropped: self.by_library.dropped + past.dropped,
        }
    }

    /// Reads the socket's counters without the system's library, and publishes them. Any thread of
    /// the process may call this. The kernel clears its counters when they are read, so each packet
    /// is counted only here or only by that library. Nothing is allocated or freed.
    pub fn refresh(&self, fd: BorrowedFd<'_>) {
        // If the read fails, the old counters must keep their old time.
        self.words()[at::READING].during(|| {
            if let Ok(statistics) = packet::take_statistics(fd) {
                let more = MemberCounters {
                    received: statistics.packets.into(),
                    dropped: statistics.drops.into(),
                };
                self.add(at::BY_US, more);
            }
        });
    }

    /// The member's counters since it joined, as last read.
    pub fn counters(&self) -> MemberCounters {
        let (told, past, before) = (self.sums(at::BY_LIBRARY), self.sums(at::BY_US), self.before);
        let since =
            |told: u64, past: u64, before: u64| told.saturating_add(past).saturating_sub(before);
        MemberCounters {
            received: since(told.received, past.received, before.received),
            dropped: since(told.dropped, past.dropped, before.dropped),
        }
    }

    fn words(&self) -> &[Word; WORDS] {
        self.page.as_ref().map_or_else(|own| own, Page::words)
    }

    fn sums(&self, [received, dropped]: [usize; 2]) -> MemberCounters {
        MemberCounters {
            received: self.words()[received].get(),
            dropped: self.words()[dropped].get(),
        }
    }

    fn add(&self, [received, dropped]: [usize; 2], more: MemberCounters) {
        self.words()[received].add(more.received);
        self.words()[dropped].add(more.dropped);
        self.words()[at::READ_TAKEN].set(self.words()[at::TAKEN].get());
        self.words()[at::READ_NS].set(clock::monotonic_ns());
    }
}

/// Advances a 64-bit total to a 32-bit count, which equals it modulo 2^32. A count below the total,
/// which another thread read earlier, leaves the total unchanged.
fn unwrapped(total: u64, now: u32) -> u64 {
    let low = total & u64::from(u32::MAX);
    let step = (u64::from(now) + (1 << 32) - low) & u64::from(u32::MAX);
    if step < 1 << 31 { total + step } else { total }
}

#[cfg(test)]
mod tests;
