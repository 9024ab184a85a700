//! A lane: one BPF ring buffer of a reader. The lane finds the next record, and releases room to
//! the kernel. It trusts no value in the ring buffer.
//!
//! The kernel's header of a record is a length and 4 bytes that only the kernel uses
//! (kernel/bpf/ringbuf.c). The upper bits of the length say whether the record is committed. The
//! BPF program's header of 24 bytes follows, then the captured bytes of the frame, with its tags.

use crate::frame::{Corrupt, corrupt};
use crate::prefetch::{AHEAD, prefetch_ahead};
use fanpcap_linux::bpf::RingMapping;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const KERNEL_HEAD: usize = 8;

/// The BPF program's header.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    stamp: u64,
    captured: u32,
    len: u32,
    queue: u16,
    flags: u16,
    filter: u32,
}

const HEAD: u64 = size_of::<Header>() as u64;

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;

/// Records begin at multiples of 8 bytes.
const ALIGNED: u64 = !7;

/// Value of [`Lane::head`] if the snapshot has no record.
pub(super) const NONE: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Lane {
    /// The position of the next record.
    at: u64,
    end: u64,
    ring: RingMapping,
    begin: u64,
    /// Position up to which room was released to the kernel.
    given: u64,
    /// The next record's stamp when the reader last left the lane; [`NONE`] if there was no record.
    pub(super) head: u64,
}

/// A committed record.
#[derive(Clone, Copy)]
pub(super) struct Next {
    pub(super) stamp: u64,
    /// The BPF program's header.
    header: NonNull<Header>,
    /// The kernel's header.
    word: u32,
}

pub(super) struct Record {
    /// The frame's bytes. The BPF program's header is in front of them.
    pub(super) data: NonNull<u8>,
    pub(super) captured: u32,
    pub(super) len: u32,
    pub(super) flags: u16,
    pub(super) last: u32,
}

impl Lane {
    pub(super) fn new(ring: RingMapping) -> Self {
        let words = [ring.consumer(), ring.read(), ring.producer()];
        let [given, read, producer] = words.map(|word| word.load(Ordering::Acquire) & ALIGNED);
        let filled = producer.wrapping_sub(given);
        // A dead reader may have left any values in these words. If the values contradict each
        // other, the lane skips all records that are in the ring now.
        let is_sound = filled <= ring.len() as u64 && read.wrapping_sub(given) <= filled;
        let at = if is_sound { read } else { producer };
        Self {
            ring,
            at,
            end: at,
            begin: at,
            given,
            head: NONE,
        }
    }

    /// Takes a snapshot of the producer's position.
    pub(super) fn look(&mut self) {
        self.at = self.unread_from();
        self.begin = self.at;
        self.end = self.producer();
        if self.unread() > self.ring.len() as u64 {
            // The producer's position is impossible. With this end, the next record is too long for
            // the snapshot, so `take` reports it as corrupt.
            self.end = self.at.wrapping_add(1);
        }
        if self.at == self.end {
            self.give_again();
        }
        self.head = self.find();
    }

    /// Restores the word of the consumer's position if the word has an impossible value. Any
    /// process that maps the ring may have stored such a value. With that value, the kernel may
    /// find no room in an empty ring.
    fn give_again(&self) {
        let consumer = self.ring.consumer();
        let said = consumer.load(Ordering::Acquire).wrapping_sub(self.given);
        // A position up to the producer's is possible: after fork(2), another process may have
        // released more room.
        if said > self.producer().wrapping_sub(self.given) {
            consumer.store(self.given, Ordering::Release);
        }
    }

    /// Ends the snapshot.
    pub(super) fn leave(&mut self) {
        self.end = self.at;
    }

    /// The position at which the next snapshot starts: this reader's position, or the position of
    /// another process that has read more records since fork(2).
    fn unread_from(&self) -> u64 {
        let read = self.ring.read().load(Ordering::Acquire) & ALIGNED;
        if self.is_ahead(read) { read } else { self.at }
    }

    /// Whether a reader at `position` has read at least as much as this reader.
    fn is_ahead(&self, position: u64) -> bool {
        position.wrapping_sub(self.at) <= self.producer().wrapping_sub(self.at)
    }

    fn producer(&self) -> u64 {
        self.ring.producer().load(Ordering::Acquire) & ALIGNED
    }

    /// Whether the BPF program has committed or discarded the next record.
    pub(super) fn is_ready(&self) -> bool {
        let at = self.unread_from();
        self.producer() != at && self.word(at) & BUSY == 0
    }

    /// Bytes that were read, but whose room is not released to the kernel yet.
    #[inline(always)]
    pub(super) fn read(&self) -> u64 {
        self.at.wrapping_sub(self.given)
    }

    /// Releases to the kernel the room of the bytes that were read.
    #[cold]
    #[inline(never)]
    pub(super) fn give(&mut self) {
        if self.given != self.at {
            self.given = self.at;
            let consumer = self.ring.consumer();
            if !self.is_ahead(consumer.load(Ordering::Acquire)) {
                consumer.store(self.at, Ordering::Release);
            }
        }
    }

    #[inline(always)]
    fn unread(&self) -> u64 {
        self.end.wrapping_sub(self.at)
    }

    #[inline(always)]
    fn base(&self, position: u64) -> NonNull<u8> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "masked by the ring's length"
        )]
        let offset = position as usize & (self.ring.len() - 1);
        // SAFETY: below the ring's length.
        unsafe { self.ring.data().add(offset) }
    }

    /// The length and state of the record at a position, which must be a multiple of 8.
    #[inline(always)]
    fn word(&self, position: u64) -> u32 {
        // SAFETY: the word is aligned and in the data, which are mapped as long as `self`. The
        // kernel too accesses the word atomically.
        let word = unsafe { AtomicU32::from_ptr(self.base(position).as_ptr().cast()) };
        word.load(Ordering::Acquire)
    }

    /// The next record of the snapshot. `None` if the snapshot has no record left, or if its next
    /// record is discarded or not committed: [`Lane::find`] handles such a record.
    #[inline(always)]
    pub(super) fn next(&self) -> Option<Next> {
        let at = self.at;
        if at == self.end {
            return None;
        }
        let word = self.word(at);
        if word & (BUSY | DISCARDED) != 0 {
            return None;
        }
        // SAFETY: twice the ring's length is mapped, and the offset with two headers is less than
        // that.
        let header = unsafe { self.base(at).add(KERNEL_HEAD).cast::<Header>() };
        // SAFETY: as above, and aligned; the record is committed, so nobody writes to it.
        let stamp = unsafe { header.cast::<u64>().read() }.min(NONE - 2);
        Some(Next {
            stamp,
            header,
            word,
        })
    }

    /// Skips discarded records, and returns the next record's stamp. Returns [`NONE`] if the
    /// snapshot has no record left. Ends the snapshot before a record that is not committed.
    #[cold]
    #[inline(never)]
    pub(super) fn find(&mut self) -> u64 {
        while self.at != self.end {
            if let Some(next) = self.next() {
                return next.stamp;
            }
            let word = self.word(self.at);
            if word & BUSY != 0 {
                self.end = self.at;
            } else if stride(word) > self.unread() {
                self.skip();
            } else if word & DISCARDED != 0 {
                self.pass(self.at.wrapping_add(stride(word)));
            }
        }
        NONE
    }

    #[inline(always)]
    pub(super) fn take(&mut self, next: Next) -> Result<Record, Corrupt> {
        // SAFETY: as in next().
        let header = unsafe { next.header.read() };
        let stride = stride(next.word);
        if stride > self.unread() || HEAD + u64::from(header.captured) > len(next.word) {
            return Err(self.refuse(header.captured, next.word));
        }
        // Only within the snapshot: the kernel may be writing to the memory after it.
        if AHEAD * stride < self.unread() {
            prefetch_ahead(next.header.as_ptr().cast(), stride);
        }
        self.pass(self.at.wrapping_add(stride));
        Ok(Record {
            // SAFETY: the record has room for the header, and `captured` bytes after it.
            data: unsafe { next.header.add(1).cast() },
            captured: header.captured,
            len: header.len,
            flags: header.flags,
            last: header.filter,
        })
    }

    /// Advances to a position. Stores the position in the ring buffer before the packet is
    /// delivered: if this process dies, the next reader does not deliver the packet again.
    #[inline(always)]
    fn pass(&mut self, position: u64) {
        self.at = position;
        self.ring.read().store(position, Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self, captured: u32, word: u32) -> Corrupt {
        self.skip();
        corrupt(u32::try_from(HEAD).unwrap_or(0), captured, len(word))
    }

    /// Skips all records up to the producer's position. After a record with a corrupt length, the
    /// next record can't be found.
    fn skip(&mut self) {
        self.end = self.producer();
        self.pass(self.end);
    }
}

/// Bytes of a record, without the kernel's header.
#[inline(always)]
fn len(word: u32) -> u64 {
    (word & !(BUSY | DISCARDED)).into()
}

/// The room of a record in the ring.
#[inline(always)]
fn stride(word: u32) -> u64 {
    (len(word) + KERNEL_HEAD as u64 + 7) & ALIGNED
}
