//! A member of a group: its page, its counters and its membership.

use crate::identity::Identity;
use crate::membership::Membership;
use crate::page::{self, Page};
use crate::record::{MemberCounters, NOT_READ_BY_US, NoFlow, SENT, STEALS, WORDS, at};
use crate::rejecting::Rejections;
use crate::shared::Shared;
use crate::steered::Steered;
use crate::table::at as table;
use fanpcap_config::steering::Steering;
use fanpcap_linux::file::shared::{self as words, Word};
use fanpcap_linux::packet;
use fanpcap_linux::wait::clock;
use fanpcap_reader::{Publish, PublishedCounters, PublishedPosition};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A handle in a kernel fanout group. The membership ends when the handle's socket is closed.
#[derive(Debug)]
pub struct Member {
    identity: Arc<Identity>,
    /// The totals of the system library's counters in this process. The library's own counters have
    /// 32 bits and wrap.
    by_library: MemberCounters,
    /// The socket's counters at its join.
    before: MemberCounters,
    page: Result<Page, [Word; WORDS]>,
    /// The member's part in the group's steering program; `None` if the group has no steering
    /// program.
    steered: Option<Arc<Steered>>,
    /// The membership, if the group has a steering program.
    membership: Option<Arc<Membership>>,
}

/// A member of the calling process, in a group with a steering program.
#[derive(Debug)]
pub struct OwnMember {
    /// The member's part in the steering program.
    pub steered: Arc<Steered>,
    /// The member's identity.
    pub identity: Arc<Identity>,
    /// The objects that the member shares with the other members.
    pub(crate) shared: Arc<Shared>,
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
    /// Makes the member, with its page. `before` contains the counters that the system's library
    /// had for the socket before the member joined. `program` is the group's steering program, or
    /// `None` if the group has none.
    pub(crate) fn new(
        identity: Identity,
        class: u8,
        before: MemberCounters,
        program: Option<(&Steering, &Arc<Steered>)>,
    ) -> Self {
        let steering = program.map(|(steering, _)| steering);
        let content = page::content(identity.mode(), class, steering, before);
        let create = |group_dir| Page::create(group_dir, identity.id(), &content).ok();
        // If the page can't be made, the statistics show the group's sums as unknown.
        let page = identity.group_dir().and_then(create);
        let page = page.ok_or_else(|| words::own(&content));
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
            membership: None,
        }
    }

    /// Notes what the system's library has counted for earlier sockets of the handle, for a member
    /// whose socket is new. Its page begins with zeros.
    pub fn note_earlier_sockets(&mut self, earlier: MemberCounters) {
        self.by_library = earlier;
    }

    /// Notes on the page why the member began its group with mode `hash` instead of `flow`.
    pub fn note_no_flow(&self, why: NoFlow) {
        self.words()[at::TITLE].set(why as u64);
    }

    /// Records that the member has entered its group with this membership.
    pub(crate) fn hold(&mut self, membership: Membership) {
        if let Some((_, io)) = membership.io() {
            let sent = u64::from(io.captures_sent()) * SENT;
            self.words()[at::RING_BYTES].set(io.bytes() as u64 | sent);
        }
        self.membership = Some(Arc::new(membership.with_page(self.words())));
    }

    /// The membership, if the group has a steering program.
    pub fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.as_ref()
    }

    /// Gives the member's share of the packets to other members, because its handle is about to be
    /// closed.
    pub fn depart(&self) {
        if let Some(membership) = &self.membership {
            membership.depart();
        }
    }

    /// Returns this member's objects that a replacement of the steering program needs; `None` if
    /// the group has no steering program.
    pub fn own(&self) -> Option<OwnMember> {
        Some(OwnMember {
            steered: Arc::clone(self.steered.as_ref()?),
            identity: Arc::clone(&self.identity),
            shared: Arc::clone(self.membership.as_ref()?.shared()),
        })
    }

    /// The member's page, for a member that takes over its ring.
    pub(crate) fn reopen_page(&self) -> Option<File> {
        self.page.as_ref().ok()?.reopen().ok()
    }

    /// Writes to the page the descriptors of the objects that the members share, and whether the
    /// host loses the device's packets ([`STEALS`]).
    pub(crate) fn show_shared(&self, shared: &Shared, steals: bool) {
        shared.show_on(self.words(), u64::from(steals) * STEALS);
    }

    /// Opens the group's rendezvous. Only the group's first member does this. Opening fails if
    /// there is no page, for example. Then newcomers find the group only by pidfd_getfd(2).
    pub(crate) fn open_rendezvous(&self, shared: &Shared) {
        if let Ok(page) = &self.page {
            let _ = shared.open_rendezvous(page);
        }
    }

    /// The member's part in the group's steering program; `None` if the group has no steering
    /// program.
    pub fn steered(&self) -> Option<&Arc<Steered>> {
        self.steered.as_ref()
    }

    /// The digest of the group's steering program; 0: none. The digest comes from the group's table
    /// if there is one, because another member may have replaced the steering program.
    pub fn digest(&self) -> u64 {
        let on_page = || self.words()[at::DIGEST].get();
        let table = self
            .membership
            .as_ref()
            .map(|membership| membership.shared().table());
        table.map_or_else(on_page, |table| table.get(table::DIGEST))
    }

    /// Records on the page when this member rejects all packets.
    pub fn rejections(&self) -> Rejections {
        Rejections::new(self.identity.ifindex(), self.words())
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
            position: PublishedPosition {
                taken: taken.clone(),
                mark: words[at::BLOCK].clone(),
            },
            received: words[at::BY_US[0]].clone(),
            dropped: words[at::BY_US[1]].clone(),
            reading: words[at::READING].clone(),
            read_ns: words[at::READ_NS].clone(),
            read_taken: words[at::READ_TAKEN].clone(),
            idle_taken: words[at::IDLE_TAKEN].clone(),
            looked_ns: words[at::LOOKED_NS].clone(),
            rejected: None,
            more: self
                .steered
                .clone()
                .map(|steered| steered as Arc<dyn Publish>),
        })
    }

    /// Notes on the page that the system's library reads the member. That library does not show how
    /// many packets it has taken.
    pub fn read_by_system(&self) {
        self.words()[at::TAKEN].set(NOT_READ_BY_US);
    }

    /// Publishes the system library's totals. Returns the socket's totals since the socket was
    /// opened, not since it joined.
    pub fn handle_stats(&mut self, received: u32, dropped: u32) -> MemberCounters {
        let before = self.by_library;
        self.by_library.received = unwrapped(before.received, received);
        self.by_library.dropped = unwrapped(before.dropped, dropped);
        // Add instead of set: in a forked child, the library counts in addition to the parent's
        // library.
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
    /// the process may call this. The kernel clears its counters when they are read. So each packet
    /// is counted once, either here or by the system's library. Nothing is allocated or freed.
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

    /// The packets that our code has read from the socket's counters without the system's library.
    pub fn read_so_far(&self) -> MemberCounters {
        self.sums(at::BY_US)
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

/// Advances a 64-bit total until it equals a 32-bit count modulo 2^32. A count below the total was
/// read earlier by another thread; it leaves the total unchanged.
fn unwrapped(total: u64, now: u32) -> u64 {
    let low = total & u64::from(u32::MAX);
    let step = (u64::from(now) + (1 << 32) - low) & u64::from(u32::MAX);
    if step < 1 << 31 { total + step } else { total }
}

#[cfg(test)]
mod tests;
