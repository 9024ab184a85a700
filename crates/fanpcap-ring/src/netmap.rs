//! A receive ring of netmap (net/netmap.h): slots, each with the number of a buffer in the memory
//! that the process and the kernel module share. The module changes the ring only during a system
//! call of the process. A packet of several buffers has a slot for each of them.

use crate::frame::{Corrupt, corrupt};
use fanpcap_linux::packet::ring::Mapping;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The reader's side of a receive ring.
#[derive(Debug)]
pub struct NetmapRing {
    memory: Mapping,
    /// The offset of the `struct netmap_ring`.
    ring: usize,
    slots: u32,
    /// The offset of the buffer with the number 0, and the bytes of a buffer.
    buffers: i64,
    buffer_len: u32,
    /// The first slot that was not lent yet.
    next: u32,
    /// A packet of several buffers, put together. A burst has at most one of them.
    joined: Box<[u8]>,
    /// Packets that were left out because they have more bytes than `joined`.
    too_long: u64,
}

/// A slot of the ring (`struct netmap_slot`).
#[derive(Clone, Copy)]
struct Slot {
    buffer: u32,
    len: u16,
    flags: u16,
}

impl NetmapRing {
    /// The receive ring with this number, in the memory of a device whose `struct netmap_if` is at
    /// `interface`. Makes the module stamp the ring at each system call. `None` if the memory has
    /// no such ring.
    pub fn new(memory: Mapping, interface: usize, number: u16) -> Option<Self> {
        let field = |at: usize| word(&memory, interface.checked_add(at)?);
        let count = |at: usize| Some(field(at)?.load(Ordering::Relaxed) as usize);
        // The transmit rings come first, then those of the host that transmit.
        let before = count(TX_RINGS)?.checked_add(count(HOST_TX_RINGS)?)?;
        let number =
            Some(usize::from(number)).filter(|it| count(RX_RINGS).is_some_and(|n| *it < n));
        let index = before.checked_add(number?)?;
        let entry = index.checked_mul(size_of::<u64>())?.checked_add(OFFSETS)?;
        let offset = long(&memory, interface.checked_add(entry)?)?;
        let ring = interface.checked_add(usize::try_from(offset.load(Ordering::Relaxed)).ok()?)?;
        let field = |at: usize| Some(word(&memory, ring.checked_add(at)?)?.load(Ordering::Relaxed));
        let (slots, buffer_len, next) = (field(SLOTS)?, field(BUFFER_LEN)?, field(HEAD)?);
        let buffers = long(&memory, ring)?.load(Ordering::Relaxed).to_ne_bytes();
        let buffers = i64::try_from(ring)
            .ok()?
            .checked_add(i64::from_ne_bytes(buffers))?;
        let end = (slots as usize)
            .checked_mul(SLOT_LEN)?
            .checked_add(ring + FIRST_SLOT)?;
        if slots < 2 || buffer_len == 0 || next >= slots || end > memory.len() {
            return None;
        }
        word(&memory, ring + FLAGS)?.fetch_or(TIMESTAMP, Ordering::Relaxed);
        Some(Self {
            memory,
            ring,
            slots,
            buffers,
            buffer_len,
            next,
            joined: vec![0; LONGEST].into(),
            too_long: 0,
        })
    }

    /// Passes the next packets to `lend`, at most `most`. They stay in the memory as long as the
    /// caller uses their bytes, and until [`NetmapRing::release`]. Ends before the second packet of
    /// several buffers.
    ///
    /// # Errors
    /// A slot's buffer is outside of the memory. The packet is lost.
    pub fn lend<'ring>(
        &'ring mut self,
        most: usize,
        mut lend: impl FnMut(&'ring [u8]),
    ) -> Result<(), Corrupt> {
        let mut joined_len = None;
        for _ in 0..most {
            let waiting = self.waiting();
            if waiting == 0 {
                break;
            }
            let slot = self.slot(self.next);
            if slot.flags & MORE_FRAGMENTS == 0 {
                self.next = self.after(self.next, 1);
                let (begin, len) = self.buffer(slot)?;
                // SAFETY: `buffer` has checked the bytes. They are the reader's until `release`,
                // which needs the ring that stays borrowed as long as the bytes are in use.
                lend(unsafe { slice::from_raw_parts(begin.as_ptr(), len) });
                continue;
            }
            match self.join(waiting)? {
                Joined::Whole(len) => {
                    joined_len = Some(len);
                    break;
                }
                Joined::TooLong => {}
                Joined::Unfinished => break,
            }
        }
        if let Some(len) = joined_len {
            lend(&self.joined[..len]);
        }
        Ok(())
    }

    /// Puts the packet of several buffers together that begins at the next slot, of `waiting`
    /// slots.
    fn join(&mut self, waiting: u32) -> Result<Joined, Corrupt> {
        let mut len = 0;
        for count in 0..waiting {
            let slot = self.slot(self.after(self.next, count));
            let (begin, part_len) = match self.buffer(slot) {
                Ok(part) => part,
                Err(error) => {
                    self.next = self.after(self.next, count + 1);
                    return Err(error);
                }
            };
            if let Some(room) = self.joined.get_mut(len..len + part_len) {
                // SAFETY: `buffer` has checked the bytes, which the module does not change now.
                room.copy_from_slice(unsafe { slice::from_raw_parts(begin.as_ptr(), part_len) });
            }
            len += part_len;
            if slot.flags & MORE_FRAGMENTS == 0 {
                self.next = self.after(self.next, count + 1);
                if len > self.joined.len() {
                    self.too_long += 1;
                    return Ok(Joined::TooLong);
                }
                return Ok(Joined::Whole(len));
            }
        }
        if waiting + 1 < self.slots {
            return Ok(Joined::Unfinished);
        }
        // The ring is full of one packet, so its end can never come.
        self.next = self.after(self.next, waiting);
        self.too_long += 1;
        Ok(Joined::TooLong)
    }

    /// How many slots with packets wait in the ring, as of the last system call.
    pub fn waiting(&self) -> u32 {
        let tail = self.tail().min(self.slots - 1);
        match tail.checked_sub(self.next) {
            Some(waiting) => waiting,
            None => self.slots - self.next + tail,
        }
    }

    /// Whether the module had no slot left for the next packet, as of the last system call.
    pub fn is_full(&self) -> bool {
        self.waiting() + 1 == self.slots
    }

    /// The end of the slots with packets, as of the last system call. Each packet moves it.
    pub fn tail(&self) -> u32 {
        self.word(TAIL).load(Ordering::Acquire)
    }

    /// The number of slots.
    pub fn count(&self) -> u32 {
        self.slots
    }

    /// Marks the slots of all lent packets as free. The module takes them at the next system call.
    /// Returns their number.
    pub fn release(&mut self) -> u32 {
        self.word(CURRENT).store(self.next, Ordering::Release);
        let before = self.word(HEAD).swap(self.next, Ordering::Release);
        match self.next.checked_sub(before) {
            Some(count) => count,
            None => self.next.wrapping_sub(before).wrapping_add(self.slots),
        }
    }

    /// The time of day of the last system call.
    pub fn stamp(&self) -> Duration {
        // The module writes the struct timeval only during a system call of this process.
        let [seconds, microseconds] = [STAMP, STAMP + 8].map(|at| {
            long(&self.memory, self.ring + at).map_or(0, |it| it.load(Ordering::Relaxed))
        });
        Duration::from_secs(seconds) + Duration::from_micros(microseconds.min(999_999))
    }

    /// How many packets were left out because they have more than 64 KiB with their headers.
    pub fn too_long(&self) -> u64 {
        self.too_long
    }

    fn after(&self, slot: u32, count: u32) -> u32 {
        let next = slot + count;
        if next < self.slots {
            next
        } else {
            next - self.slots
        }
    }

    fn slot(&self, index: u32) -> Slot {
        let at = self.ring + FIRST_SLOT + index as usize * SLOT_LEN;
        // SAFETY: `new` has checked that all slots are in the memory.
        let slot = unsafe { self.memory.base().add(at) };
        // SAFETY: as above. Offsets of rings, and so those of slots, are aligned: see `word`.
        let buffer = unsafe { slot.cast::<u32>().read_volatile() };
        // SAFETY: a slot has 16 bytes.
        let rest = unsafe { slot.add(4) };
        // SAFETY: as above.
        let [len, flags] = unsafe { rest.cast::<[u16; 2]>().read_volatile() };
        Slot { buffer, len, flags }
    }

    /// The address and the length of a slot's bytes.
    fn buffer(&self, slot: Slot) -> Result<(NonNull<u8>, usize), Corrupt> {
        let offset = i64::from(slot.buffer).checked_mul(self.buffer_len.into());
        let at = offset.and_then(|offset| self.buffers.checked_add(offset));
        let at = at.and_then(|at| usize::try_from(at).ok());
        let len = usize::from(slot.len);
        let end = at.and_then(|at| at.checked_add(len));
        match (at, end) {
            (Some(at), Some(end)) if end <= self.memory.len() && slot.len_fits(self.buffer_len) => {
                // SAFETY: checked above.
                Ok((unsafe { self.memory.base().add(at) }, len))
            }
            _ => Err(corrupt(0, slot.len.into(), self.buffer_len.into())),
        }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` has checked that the ring's words are in the memory, and aligned.
        let word = unsafe { self.memory.base().add(self.ring + at) };
        // SAFETY: as above. The module accesses the words only during system calls.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }
}

/// A packet of several buffers.
enum Joined {
    /// It has so many bytes.
    Whole(usize),
    TooLong,
    /// Its last slot has not come yet.
    Unfinished,
}

impl Slot {
    fn len_fits(self, buffer_len: u32) -> bool {
        u32::from(self.len) <= buffer_len
    }
}

/// The word at an offset of the memory; `None` if the memory has no aligned word there.
fn word(memory: &Mapping, at: usize) -> Option<&AtomicU32> {
    let place = place(memory, at, size_of::<u32>())?;
    // SAFETY: `place` has checked the bytes and their alignment. All accesses are atomic.
    Some(unsafe { AtomicU32::from_ptr(place.as_ptr().cast()) })
}

/// As [`word`], of 64 bits.
fn long(memory: &Mapping, at: usize) -> Option<&AtomicU64> {
    let place = place(memory, at, size_of::<u64>())?;
    // SAFETY: as above.
    Some(unsafe { AtomicU64::from_ptr(place.as_ptr().cast()) })
}

fn place(memory: &Mapping, at: usize, len: usize) -> Option<NonNull<u8>> {
    let is_inside = at % len == 0 && at.checked_add(len)? <= memory.len();
    // SAFETY: the bytes are in the memory: checked here.
    is_inside.then(|| unsafe { memory.base().add(at) })
}

/// The longest packet of several buffers that is captured.
const LONGEST: usize = 1 << 16;

// struct netmap_if: the numbers of rings, and the offsets of the rings from this struct.
const TX_RINGS: usize = 24;
const RX_RINGS: usize = 28;
const HOST_TX_RINGS: usize = 36;
const OFFSETS: usize = 56;

// struct netmap_ring: the offset of the buffers from this struct is at 0.
const SLOTS: usize = 8;
const BUFFER_LEN: usize = 12;
const HEAD: usize = 20;
const CURRENT: usize = 24;
const TAIL: usize = 28;
const FLAGS: usize = 32;
const STAMP: usize = 40;
const FIRST_SLOT: usize = 256;
const SLOT_LEN: usize = 16;

/// `NR_TIMESTAMP`.
const TIMESTAMP: u32 = 2;
/// `NS_MOREFRAG`.
const MORE_FRAGMENTS: u16 = 0x20;
