//! The counts of a balanced group, and the result of its last round.

use super::{ELEPHANTS_MAX, Table, at};
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::{BUCKETS, SLOTS};
use fanpcap_buckets::leveling::Shift;
use fanpcap_config::steering::{Balance, Steering};
use std::sync::atomic::{AtomicU32, Ordering};

/// The result of the last round of a balanced group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leveled {
    /// Whether buckets with live flows move too; if not, only idle buckets move.
    pub moves_all: bool,
    /// How many rounds there were.
    pub rounds: u64,
    /// How far the busiest member's load was above its share of the packets, in parts of 1000.
    pub above: u64,
    /// Buckets with more packets than a member's share. They stay where they are.
    pub elephants: Vec<Elephant>,
}

/// A bucket with more packets than a member's share: probably one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elephant {
    /// The bucket.
    pub bucket: u16,
    /// The slot that owns the bucket.
    pub slot: Slot,
    /// The bucket's part of the group's packets, in parts of 1000.
    pub part: u16,
}

impl Elephant {
    /// Encodes the elephant as a word that is not 0.
    fn encode(self) -> u64 {
        let [low, high] = self.bucket.to_le_bytes();
        let [less, more] = self.part.to_le_bytes();
        u64::from_le_bytes([low, high, self.slot.0, 1, less, more, 0, 0])
    }

    fn decode(word: u64) -> Option<Self> {
        let [low, high, slot, is_one, less, more, ..] = word.to_le_bytes();
        (is_one == 1).then_some(Self {
            bucket: u16::from_le_bytes([low, high]),
            slot: Slot(slot),
            part: u16::from_le_bytes([less, more]),
        })
    }
}

/// The packets of each bucket since the last round.
#[derive(Debug)]
pub(crate) struct Loads {
    /// The number of packets of each bucket.
    pub(crate) packets: Vec<u64>,
    /// The buckets without packets for the time [`IDLE`], or since the group began.
    pub(crate) idle: Vec<bool>,
}

/// How long a bucket without packets may still have a live flow, in units of [`AGE_NS`].
const IDLE: u32 = 100;
/// The unit of a bucket's age, which is the time since the bucket's last packet.
const AGE_NS: u64 = 100_000_000;
/// A bucket's note has the count of its packets in the lower bits, and the bucket's age in the bits
/// above.
const AGE_SHIFT: u32 = 24;
const AGE_MAX: u32 = 255;
const COUNT_MASK: u32 = (1 << AGE_SHIFT) - 1;

impl Table<'_> {
    /// Notes which steering program the group has.
    pub(crate) fn show_program(&self, steering: &Steering, now_ns: u64) {
        self.set_balance(steering.balance(), now_ns);
        self.set(at::DIGEST, steering.digest());
    }

    /// Notes in the table which buckets may move: none, only idle buckets, or all. The caller must
    /// set the group's digest only after this call, because this call takes a group with the digest
    /// 0 for a new group.
    pub(crate) fn set_balance(&self, balance: Option<Balance>, now_ns: u64) {
        let balance = match balance {
            None => 0,
            Some(Balance::Idle) => 1,
            Some(Balance::All) => 2,
        };
        if self.get(at::BALANCE) == 0 {
            self.begin_rounds(now_ns);
        }
        self.set(at::BALANCE, balance);
    }

    /// Notes that nothing has been counted so far. In a new group no bucket has a flow, so all
    /// buckets are idle. In a group that has run without counts, any bucket may have a flow, so no
    /// bucket is idle yet.
    fn begin_rounds(&self, now_ns: u64) {
        let age = match self.get(at::DIGEST) {
            0 => AGE_MAX,
            _ => 0,
        };
        for it in self.loads.chunks_exact(2) {
            let [count, _] = read(it);
            it[1].store((count & COUNT_MASK) | (age << AGE_SHIFT), Ordering::Relaxed);
        }
        self.set(at::ROUNDED_NS, now_ns);
        self.set(at::ROUND_NS, now_ns);
    }

    /// Which buckets move to level the members' loads; `None` if the group is not balanced.
    pub(crate) fn balance(&self) -> Option<Balance> {
        match self.get(at::BALANCE) {
            1 => Some(Balance::Idle),
            2 => Some(Balance::All),
            _ => None,
        }
    }

    /// Packets that were counted since the last round.
    pub(crate) fn packets(&self) -> u64 {
        let buckets = self.loads.chunks_exact(2);
        buckets.map(|it| u64::from(since(read(it)))).sum()
    }

    /// Returns the packets of each bucket since the last round. Notes the counts and ages of the
    /// buckets for the next round.
    pub(crate) fn take_loads(&self, now_ns: u64) -> Loads {
        let aged_ns = now_ns.wrapping_sub(self.get(at::ROUNDED_NS));
        self.set(at::ROUNDED_NS, now_ns);
        let aged = u32::try_from(aged_ns / AGE_NS).unwrap_or(AGE_MAX);
        let mut loads = Loads {
            packets: vec![0; BUCKETS],
            idle: vec![false; BUCKETS],
        };
        for (bucket, it) in self.loads.chunks_exact(2).enumerate() {
            let [count, note] = read(it);
            let packets = since([count, note]);
            let age = match packets {
                0 => (note >> AGE_SHIFT).saturating_add(aged).min(AGE_MAX),
                _ => 0,
            };
            it[1].store((count & COUNT_MASK) | (age << AGE_SHIFT), Ordering::Relaxed);
            loads.packets[bucket] = packets.into();
            loads.idle[bucket] = age >= IDLE;
        }
        loads
    }

    /// The result of the last round; `None` if the group is not balanced.
    pub(crate) fn leveled(&self) -> Option<Leveled> {
        let balance = self.balance()?;
        let elephants = self.words_at::<ELEPHANTS_MAX>(at::ELEPHANTS);
        Some(Leveled {
            moves_all: balance == Balance::All,
            rounds: self.get(at::ROUNDS),
            above: self.get(at::IMBALANCE),
            elephants: elephants.into_iter().filter_map(Elephant::decode).collect(),
        })
    }

    pub(crate) fn set_leveled(&self, above: u64, elephants: [Option<Elephant>; ELEPHANTS_MAX]) {
        self.set(at::ROUNDS, self.get(at::ROUNDS).wrapping_add(1));
        self.set(at::IMBALANCE, above);
        for (elephant, index) in elephants.into_iter().zip(at::ELEPHANTS..) {
            self.set(index, elephant.map_or(0, Elephant::encode));
        }
    }

    /// The slots that got buckets in the last round.
    pub(crate) fn received(&self) -> Vec<usize> {
        let words: [u64; SLOTS / 64] = self.words_at(at::RECEIVED);
        let is_one = |slot: &usize| (words[slot / 64] >> (slot % 64)) & 1 == 1;
        (0..SLOTS).filter(is_one).collect()
    }

    pub(crate) fn set_received(&self, shifts: &[Shift]) {
        let mut words = [0; SLOTS / 64];
        for shift in shifts {
            words[shift.to / 64] |= 1 << (shift.to % 64);
        }
        self.set_words(at::RECEIVED, words);
    }
}

fn read(bucket: &[AtomicU32]) -> [u32; 2] {
    [0, 1].map(|at: usize| bucket[at].load(Ordering::Relaxed))
}

/// Packets of a bucket that were counted since its note was written.
fn since([count, note]: [u32; 2]) -> u32 {
    count.wrapping_sub(note) & COUNT_MASK
}

const _: () = assert!(BUCKETS <= 1 << 16);
