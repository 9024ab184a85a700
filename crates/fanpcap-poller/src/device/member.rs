//! The members of a device, and what a change of a group does with them.

use crate::fan_out::MemberSlot;
use crate::group::Wants;
use crate::queue::Queue;
use fanpcap_group::served::Members;
use fanpcap_group::view::FinalCounters;
use fanpcap_poll::message::Hello;
use fanpcap_poll::{PoolFile, PoolSize};
use fanpcap_ring::PoolWords;
use fanpcap_ring::pool::{LaneWriter, PoolCounts};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

#[derive(Debug)]
pub(super) struct Member {
    /// The group's number in the queues.
    pub(super) group: u8,
    /// The slot whose packets come into the pool.
    slot: Option<u8>,
    pub(super) pool: PoolFile,
    pub(super) size: PoolSize,
    words: PoolWords,
    pub(super) is_connected: bool,
    /// Whether the member's application has looked for packets.
    pub(super) reads: bool,
    /// The member that reads the pool, if this member is gone.
    pub(super) taker: Option<u64>,
    /// The final counts of the pool.
    counts: PoolCounts,
}

impl Member {
    pub(super) fn new(pool: PoolFile, size: PoolSize, group: u8) -> io::Result<Self> {
        Ok(Self {
            group,
            slot: None,
            words: pool.map_words()?,
            pool,
            size,
            is_connected: true,
            reads: false,
            taker: None,
            counts: PoolCounts::default(),
        })
    }

    /// Bytes of the pool's file.
    pub(super) fn len(&self) -> u64 {
        self.size.file_len().unwrap_or_default().into()
    }

    /// The member's counters after its pool has been read to the end. The poller does not know
    /// which of the packets the member itself has taken.
    pub(super) fn final_counters(&self) -> FinalCounters {
        let PoolCounts { produced, dropped } = self.counts;
        FinalCounters {
            members: 1,
            received: produced.saturating_add(dropped),
            dropped,
            taken: produced,
            ..FinalCounters::default()
        }
    }
}

/// What a newcomer brings into its slot: a writer for each queue, and an end of the bell.
#[derive(Debug)]
pub(super) struct Admission {
    lanes: Vec<LaneWriter>,
    wants: Wants,
    bell: OwnedFd,
}

impl Admission {
    pub(super) fn of(hello: &Hello, lanes: Vec<LaneWriter>, bell: OwnedFd) -> Self {
        let wants = Wants {
            snaplen: hello.snaplen,
            sent: hello.wants_sent,
        };
        Self { lanes, wants, bell }
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
        self.members.get(&member).is_some_and(|it| it.is_connected)
    }

    fn admit(&mut self, member: u64, slot: u8) {
        let Some(Admission { lanes, wants, bell }) = self.admission.take() else {
            return;
        };
        let group = self.index;
        for (queue, lane) in self.queues.iter().zip(lanes) {
            let at = MemberSlot { group, slot };
            // Without a bell the member looks for packets from time to time.
            if let Ok(bell) = bell.try_clone() {
                queue.change(move |queue| queue.admit(at, lane, wants, bell));
            }
        }
        if let Some(member) = self.members.get_mut(&member) {
            member.slot = Some(slot);
        }
    }

    fn dismiss(&mut self, slot: u8) {
        let group = self.index;
        let at = MemberSlot { group, slot };
        let dismissed = |queue: &Queue| queue.change(move |queue| queue.dismiss(at)).flatten();
        let counts: Vec<PoolCounts> = self.queues.iter().filter_map(dismissed).collect();
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

    fn unread(&self, member: u64) -> Option<u64> {
        self.members.get(&member)?.words.progress()
    }

    fn is_half_full(&self, member: u64) -> bool {
        let half = |it: &Member| it.len() / 2;
        self.members
            .get(&member)
            .is_none_or(|it| it.words.unread() >= half(it))
    }
}
