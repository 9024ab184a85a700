//! The members of a device, and what a change of a group does with them.

use crate::accounts::Account;
use crate::fan_out::MemberSlot;
use crate::group::Wants;
use crate::queue::Queue;
use crate::shared::{ClosedThere, Shared, UserThread};
use fanpcap_group::served::{Members, Progress};
use fanpcap_group::view::FinalCounters;
use fanpcap_linux::unix;
use fanpcap_poll::message::{Hello, MemberCounts};
use fanpcap_poll::{PoolFile, PoolKind, PoolSize};
use fanpcap_ring::PoolWords;
use fanpcap_ring::pool::{LaneWriter, PoolCounts};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;

#[derive(Debug)]
pub(super) struct Member {
    /// The group's number in the queues.
    pub(super) group: u8,
    /// The user for whom the member counts.
    pub(super) account: Account,
    /// The slot whose packets come into the pool.
    pub(super) slot: Option<u8>,
    pub(super) pid: u32,
    pub(super) wants_sent: bool,
    /// When the member was admitted, nanoseconds of `CLOCK_MONOTONIC`; 0: it was not.
    pub(super) joined_ns: u64,
    /// Packets that the member had taken itself when it ended, and those of them that its filter
    /// had rejected, as it says.
    pub(super) own: Option<[u64; 2]>,
    pub(super) words: PoolWords,
    /// The pool. It is dropped after its words.
    pub(super) pool: Shared,
    pub(super) size: PoolSize,
    pub(super) state: State,
    /// What the member has in common with a member of each group beside its group
    /// ([`fanpcap_group::served::Joining::pair`]).
    pub(super) pair: u64,
    /// When the connection closed, nanoseconds of `CLOCK_MONOTONIC`.
    pub(super) gone_ns: u64,
    /// Whether the member's process hangs at a group beside its group.
    pub(super) hangs_elsewhere: bool,
    /// The member that reads the pool, if this member is gone.
    pub(super) taker: Option<u64>,
    /// When the member was asked to take no packets, if it has not answered.
    pub(super) asked_ns: Option<u64>,
    /// The member may have forged this, so it decides only about the member itself.
    progress: Progress,
    /// What the reader had taken at the last look, and when a look last found that it has taken
    /// more.
    taken: u64,
    pub(super) took_ns: u64,
    /// The final counts of the pool.
    pub(super) counts: PoolCounts,
}

/// What the poller knows of a member's application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has not looked for packets yet.
    Unread,
    /// It has looked for packets.
    Reads,
    /// The connection has closed.
    Gone,
}

impl Member {
    /// Bytes of the pool.
    pub(super) fn len(&self) -> u64 {
        self.size.file_len().unwrap_or_default().into()
    }

    /// Looks how far the pool's reader has come.
    pub(super) fn look(&mut self, now_ns: u64) {
        self.progress.look(self.words.progress(), now_ns);
        let taken = self.words.taken();
        if taken != self.taken {
            self.taken = taken;
            self.took_ns = now_ns;
        }
    }

    /// Whether the member counts as one that does not read.
    pub(super) fn hangs(&self, now_ns: u64) -> bool {
        self.hangs_elsewhere || self.hangs_here(now_ns)
    }

    /// Whether the member does not read its own pool.
    pub(super) fn hangs_here(&self, now_ns: u64) -> bool {
        self.progress.hangs(now_ns)
    }

    /// Nanoseconds until the member counts as one that does not read, if it takes no packets.
    /// `None` if its pool is empty, or if it counts as such a member already.
    pub(super) fn until_hanging(&self, now_ns: u64) -> Option<u64> {
        self.progress.until_hanging(now_ns).filter(|left| *left > 0)
    }

    /// Notes how many packets the member has taken and rejected itself, when it ends.
    pub(super) fn note_taken(&mut self) {
        let [taken, rejected, _] = self.words.figures();
        self.own.get_or_insert([taken, rejected]);
    }

    /// The member's account so far, and the packets that other members have taken out of its pool.
    /// All numbers of packets taken and rejected are what these members say. Packets that the
    /// others' filters have rejected are among those that the member has taken and rejected,
    /// because no application got them.
    pub(super) fn account(&self) -> (MemberCounts, u64) {
        let PoolCounts { produced, dropped } = self.counts;
        let [all, all_rejected, _] = self.words.figures();
        let all = all.min(produced);
        let [own, own_rejected] = self.own.unwrap_or([all, all_rejected]);
        let own = own.min(all);
        let others = all - own;
        let others_rejected = all_rejected.saturating_sub(own_rejected).min(others);
        let counts = MemberCounts {
            produced,
            dropped,
            taken: own + others_rejected,
            rejected: own_rejected.min(own) + others_rejected,
        };
        (counts, others - others_rejected)
    }

    /// The member's counters after its pool has been read to the end.
    pub(super) fn final_counters(&self) -> FinalCounters {
        let (counts, inherited) = self.account();
        FinalCounters {
            members: 1,
            received: counts.received(),
            dropped: counts.dropped,
            taken: counts.delivered(),
            inherited,
            unread: counts.unread().saturating_sub(inherited),
            unknown: 0,
        }
    }
}

/// What a newcomer brings into its slot: a writer for each queue, and an end of the bell.
#[derive(Debug)]
pub(super) struct Admission {
    lanes: Vec<LaneWriter>,
    wants: Wants,
    shared: Shared,
}

/// A newcomer before it joins. It has all its descriptors.
#[derive(Debug)]
pub(super) struct Newcomer {
    pub(super) member: Member,
    pub(super) admission: Admission,
    /// The member's end of the bell.
    pub(super) bell: ClosedThere,
}

impl Newcomer {
    /// Makes all that a newcomer of this group needs.
    ///
    /// # Errors
    /// `EMFILE` and other errors of [`PoolFile::create`] and of socketpair(2).
    pub(super) fn new(
        (kind, size): (PoolKind, PoolSize),
        (group, account): (u8, Account),
        hello: &Hello,
        thread: &UserThread,
        now_ns: u64,
    ) -> io::Result<Self> {
        let (pool, lanes) = PoolFile::create(kind, size)?;
        let [bell, members_end] = unix::pair()?;
        // Nothing that a member sends shall lie in a queue that the poller closes.
        unix::receive_nothing(bell.as_fd())?;
        let wants = Wants {
            snaplen: hello.snaplen,
            sent: hello.wants_sent,
        };
        let words = pool.map_words()?;
        let shared = thread.shared(pool, bell);
        Ok(Self {
            member: Member {
                group,
                account,
                slot: None,
                pid: 0,
                wants_sent: hello.wants_sent,
                joined_ns: 0,
                own: None,
                words,
                pool: shared.clone(),
                size,
                state: State::Unread,
                pair: 0,
                gone_ns: 0,
                hangs_elsewhere: false,
                taker: None,
                asked_ns: None,
                progress: Progress::new(now_ns),
                taken: 0,
                took_ns: 0,
                counts: PoolCounts::default(),
            },
            admission: Admission {
                lanes,
                wants,
                shared,
            },
            bell: thread.closed_there(members_end),
        })
    }
}

/// The members of one group during a change.
pub(super) struct Side<'a> {
    pub(super) queues: &'a [Queue],
    pub(super) members: &'a mut BTreeMap<u64, Member>,
    pub(super) index: u8,
    pub(super) admission: Option<Admission>,
    pub(super) now_ns: u64,
}

impl Members for Side<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn is_connected(&self, member: u64) -> bool {
        let member = self.members.get(&member);
        member.is_some_and(|it| it.state != State::Gone)
    }

    fn admit(&mut self, member: u64, slot: u8) {
        let Some(Admission {
            lanes,
            wants,
            shared,
        }) = self.admission.take()
        else {
            return;
        };
        let group = self.index;
        for (queue, lane) in self.queues.iter().zip(lanes) {
            let at = MemberSlot { group, slot };
            let shared = shared.clone();
            // This thread unmaps what the slot had before.
            drop(queue.change(move |queue| queue.admit(at, lane, wants, shared)));
        }
        if let Some(member) = self.members.get_mut(&member) {
            member.slot = Some(slot);
            member.joined_ns = self.now_ns;
        }
    }

    fn dismiss(&mut self, slot: u8) {
        let group = self.index;
        let at = MemberSlot { group, slot };
        // This thread gets the pool's mapping, and unmaps it.
        let dismissed = |queue: &Queue| queue.change(move |queue| queue.dismiss(at)).flatten();
        let dismissed = self.queues.iter().filter_map(dismissed);
        let counts: Vec<PoolCounts> = dismissed.map(|it| it.counts()).collect();
        let mut members = self.members.values_mut();
        let member = members.find(|it| it.group == group && it.slot == Some(slot));
        if let Some(member) = member {
            member.slot = None;
            for PoolCounts { produced, dropped } in counts {
                member.counts.produced += produced;
                member.counts.dropped += dropped;
            }
        }
    }

    fn settle(&mut self) {
        for queue in self.queues {
            queue.change(|_| ());
        }
    }

    fn hangs(&self, member: u64) -> bool {
        let member = self.members.get(&member);
        member.is_some_and(|it| it.hangs(self.now_ns))
    }

    fn is_half_full(&self, member: u64) -> bool {
        let half = |it: &Member| it.len() / 2;
        self.members
            .get(&member)
            .is_none_or(|it| it.words.unread() >= half(it))
    }
}
