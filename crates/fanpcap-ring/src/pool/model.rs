//! loom's model of a pool: all interleavings of a writer on two CPUs with readers, for the words
//! that they share. Each model runs with both kinds of writers. The BPF programs are written here
//! as `fanpcap-xdp` emits them. The steps of readers, and of a writer that is a process, are this
//! crate's own ([`super::words`]). Each block has room for one record. So a lane's position is its
//! last block's sequence.

use super::words::{Lent, NEVER, Supply, Word, leave, publish, wake_after};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::thread;

impl Word for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn exchange(&self, value: u64) -> u64 {
        let former = self.swap(value, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        former
    }

    fn publish(&self, value: u64) {
        self.store(value, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    fn add_bits(&self, bits: u64) {
        self.fetch_or(bits, Ordering::AcqRel);
    }

    fn clear_bits(&self, bits: u64) -> u64 {
        self.fetch_and(!bits, Ordering::AcqRel)
    }

    fn replace(&self, old: u64, new: u64) -> bool {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        self.compare_exchange(old, new, order.0, order.1).is_ok()
    }
}

const BLOCKS: usize = 2;

/// The most records of a lane in these models.
const RECORDS: usize = 3;

/// Who writes the pool.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Bpf,
    Process,
}

struct Lane {
    position: AtomicU64,
    /// The index of the block with each sequence, modulo the number of blocks.
    table: [AtomicU64; BLOCKS],
    left: AtomicU64,
    wake_at: AtomicU64,
}

struct Pool {
    kind: Kind,
    free: AtomicU64,
    used: AtomicU64,
    returned: AtomicU64,
    lanes: [Lane; 2],
    /// A block's content: loom reports accesses of two threads that are not ordered.
    blocks: [UnsafeCell<u64>; BLOCKS],
    bell: AtomicBool,
}

impl Pool {
    fn new(kind: Kind) -> Arc<Self> {
        let lane = || Lane {
            position: AtomicU64::new(0),
            table: std::array::from_fn(|_| AtomicU64::new(0)),
            left: AtomicU64::new(0),
            wake_at: AtomicU64::new(NEVER),
        };
        Arc::new(Self {
            kind,
            free: AtomicU64::new((1 << BLOCKS) - 1),
            used: AtomicU64::new(0),
            returned: AtomicU64::new(0),
            lanes: [lane(), lane()],
            blocks: std::array::from_fn(|_| UnsafeCell::new(0)),
            bell: AtomicBool::new(false),
        })
    }

    fn supply(&self) -> Supply<'_, AtomicU64> {
        Supply {
            free: &self.free,
            used: &self.used,
            returned: &self.returned,
        }
    }

    /// The writer's step for a block: takes back the blocks that readers have returned, and takes
    /// the lowest free block.
    fn take_block(&self) -> Option<u64> {
        if self.kind == Kind::Process {
            return self.supply().take().map(u64::from);
        }
        if self.returned.load(Ordering::Relaxed) != 0 {
            let returned = self.returned.swap(0, Ordering::AcqRel);
            let freed = self.used.fetch_and(!returned, Ordering::AcqRel) & returned;
            self.free.fetch_or(freed, Ordering::AcqRel);
        }
        for _ in 0..2 {
            let free = self.free.load(Ordering::Relaxed);
            let lowest = free & free.wrapping_neg();
            if lowest == 0 {
                return None;
            }
            if self.free.fetch_and(!lowest, Ordering::AcqRel) & lowest != 0 {
                self.used.fetch_or(lowest, Ordering::AcqRel);
                return Some(lowest.trailing_zeros().into());
            }
        }
        None
    }

    /// A packet arrives on the lane's CPU. Returns false if there is no free block.
    fn arrive(&self, lane: usize, content: u64) -> bool {
        let lane = &self.lanes[lane];
        let Some(block) = self.take_block() else {
            return false;
        };
        let sequence = lane.position.load(Ordering::Relaxed) + 1;
        lane.table[usize::try_from(sequence).unwrap() % BLOCKS].store(block, Ordering::Relaxed);
        let to = &self.blocks[usize::try_from(block).unwrap()];
        // SAFETY: loom checks that no other thread accesses the block.
        to.with_mut(|to| unsafe { *to = content });
        if self.kind == Kind::Process {
            // The record has filled the block.
            self.supply().fill(u32::try_from(block).unwrap());
            if publish(&lane.position, &lane.wake_at, sequence, false) {
                self.bell.store(true, Ordering::Release);
            }
            return true;
        }
        fence(Ordering::SeqCst);
        lane.position.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let position = sequence;
        if position >= lane.wake_at.load(Ordering::Relaxed)
            && lane.wake_at.swap(NEVER, Ordering::AcqRel) != NEVER
        {
            self.bell.store(true, Ordering::Release);
        }
        true
    }

    fn index(&self, lane: usize, sequence: u64) -> usize {
        let at = usize::try_from(sequence).unwrap();
        let index = self.lanes[lane].table[at % BLOCKS].load(Ordering::Relaxed);
        usize::try_from(index).unwrap()
    }

    /// Gives back the lane's blocks before `sequence`.
    fn leave(&self, lane: usize, sequence: u64) {
        let Lane { left, position, .. } = &self.lanes[lane];
        let lent = Lent {
            left,
            newest: || position.get() + 1,
            most: BLOCKS as u64 + 1,
            index: |it| (it != 0).then(|| self.index(lane, it)),
        };
        leave(&lent, sequence, |index| self.returned.add_bits(1 << index));
    }

    /// Reads the records from `at` up to the lane's position, and gives their blocks back.
    fn read(&self, lane: usize, at: u64, content: &mut Vec<u64>) -> u64 {
        let position = self.lanes[lane].position.get();
        for sequence in at + 1..=position {
            let from = &self.blocks[self.index(lane, sequence)];
            // SAFETY: loom checks that no other thread writes to the block.
            content.push(from.with(|from| unsafe { *from }));
            // The reader has gone on to the next block's begin.
            self.leave(lane, sequence + 1);
        }
        position
    }
}

fn model(test: impl Fn(Kind) + Clone + Send + Sync + 'static) {
    for kind in [Kind::Bpf, Kind::Process] {
        let (mut builder, test) = (loom::model::Builder::new(), test.clone());
        builder.preemption_bound = Some(3);
        builder.check(move || test(kind));
    }
}

#[test]
fn no_block_is_written_while_it_is_read() {
    model(|kind| {
        let pool = Pool::new(kind);
        let writer = Arc::clone(&pool);
        let writer = thread::spawn(move || {
            let arrived = (1..=RECORDS as u64).filter(|&it| writer.arrive(0, it));
            arrived.collect::<Vec<u64>>()
        });
        let mut read = Vec::new();
        let at = pool.read(0, 0, &mut read);
        let at = pool.read(0, at, &mut read);
        let arrived = writer.join().unwrap();
        pool.read(0, at, &mut read);
        assert_eq!(read, arrived, "in order, each once");
        let free = (0..=BLOCKS).take_while(|_| pool.arrive(0, 9)).count();
        assert_eq!(free, BLOCKS, "no block is lost");
    });
}

#[test]
fn two_cpus_never_have_the_same_block() {
    model(|kind| {
        let pool = Pool::new(kind);
        let other = Arc::clone(&pool);
        let other = thread::spawn(move || other.arrive(1, 7));
        let arrived = pool.arrive(0, 5);
        assert!(arrived && other.join().unwrap(), "there are two blocks");
        let mut read = Vec::new();
        pool.read(0, 0, &mut read);
        pool.read(1, 0, &mut read);
        assert_eq!(read, [5, 7]);
        assert!(
            pool.arrive(0, 8) && pool.arrive(1, 9),
            "both were given back"
        );
        assert!(!pool.arrive(0, 10), "both are in use");
    });
}

/// After fork(2), two processes may read. A block that one of them returned, and that has been
/// taken again since, must not be returned by the other.
#[test]
fn a_block_is_returned_once_by_whichever_reader() {
    model(|kind| {
        let pool = Pool::new(kind);
        assert!(pool.arrive(0, 1) && pool.arrive(0, 2));
        let readers: [_; 2] = std::array::from_fn(|_| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.leave(0, 2))
        });
        // Takes the first block again, as soon as it is returned.
        let took = pool.arrive(0, 3);
        readers.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(pool.arrive(0, 3), !took, "the other two blocks are unread");
    });
}

/// One of two readers may be behind by more blocks than the pool has.
#[test]
fn a_reader_that_is_far_behind_returns_no_block_that_is_in_use_again() {
    model(|kind| {
        let pool = Pool::new(kind);
        assert!(pool.arrive(0, 1) && pool.arrive(0, 2));
        let behind = Arc::clone(&pool);
        let behind = thread::spawn(move || behind.leave(0, 2));
        let mut at = 0;
        for _ in 0..2 {
            at = pool.read(0, at, &mut Vec::new());
            // A block that the other reader is about to return is not free yet.
            let _ = pool.arrive(0, 3) && pool.arrive(0, 4);
        }
        behind.join().unwrap();
        let unread = pool.lanes[0].position.get() - at;
        let more = (0..3).take_while(|_| pool.arrive(0, 5)).count() as u64;
        assert_eq!(unread + more, BLOCKS as u64);
        assert_ne!(pool.index(0, 1), pool.index(0, 2), "both have one block");
    });
}

#[test]
fn a_reader_that_waits_is_woken_or_sees_the_record() {
    model(|kind| {
        let pool = Pool::new(kind);
        let writer = Arc::clone(&pool);
        let writer = thread::spawn(move || assert!(writer.arrive(0, 1)));
        let lane = &pool.lanes[0];
        let may_wait = wake_after(&lane.wake_at, || lane.position.get(), 1);
        writer.join().unwrap();
        let is_unread = lane.position.get() != 0;
        assert!(is_unread);
        // A reader that noted position 0 waits for position 1.
        let noted_after = lane.wake_at.get() == 2;
        assert!(!may_wait || noted_after || pool.bell.load(Ordering::Acquire));
    });
}

/// A hostile member gives back, again and again, blocks that it has not read.
#[test]
fn no_two_lanes_of_a_process_have_one_block_whatever_a_member_returns() {
    model(|kind| {
        if kind == Kind::Bpf {
            return;
        }
        let pool = Pool::new(kind);
        let member = Arc::clone(&pool);
        let member = thread::spawn(move || member.returned.add_bits(u64::MAX));
        let other = Arc::clone(&pool);
        let other = thread::spawn(move || other.take_block());
        let taken = [pool.take_block(), other.join().unwrap()];
        member.join().unwrap();
        assert!(taken.contains(&Some(0)) && taken.contains(&Some(1)));
        assert_eq!(
            pool.take_block(),
            None,
            "both lanes still fill their blocks"
        );
    });
}
