//! Pools: the frames that a sender sends, in order and repeatedly. A pool stores only those bytes
//! of a frame that differ from the other frames.

use anyhow::{Result, ensure};

/// Maximum size in bytes of a pool, and of the kernel's copy of it.
pub const POOL_LIMIT: usize = 256 << 20;

/// Minimum number of leading bytes that the sender copies for each frame. The sender uses the
/// memory of earlier frames again, and a receiver may have changed the headers there in place.
const OWN_LEN: usize = 128;

/// A frame, with the positions of the bytes that differ from those of other frames.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// All bytes.
    pub(crate) bytes: Vec<u8>,
    /// From this offset on, each byte has the value that [`payload`] returns for its offset.
    pub(crate) head: usize,
    /// Offset of the stamp. `bytes` has the stamp of frame 0.
    pub(crate) stamp: Option<usize>,
}

/// The value of a payload byte, which depends only on the byte's offset `place` in the frame.
#[allow(
    clippy::cast_possible_truncation,
    reason = "only the lowest byte is needed"
)]
pub(crate) fn payload(place: usize) -> u8 {
    place as u8
}

/// Frames in order. Frame number `i` on the wire is frame `i % len()` of the pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// A frame of the greatest length. After its own head, every frame has the bytes of the
    /// template.
    template: Vec<u8>,
    heads: Vec<u8>,
    slots: Vec<Slot>,
    head_len: usize,
    bytes: u64,
    /// Whether all frames have the same length.
    even: bool,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    at: usize,
    head: u32,
    len: u32,
    stamp: u32,
    /// Nanoseconds until the next frame.
    gap: u64,
}

impl Pool {
    /// Number of frames.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the pool has no frames.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes of all frames together, without their check sequences.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Length of the longest frame in bytes.
    pub fn longest(&self) -> usize {
        self.template.len()
    }

    /// The frame with this number, with the number as its stamp.
    pub fn frame(&self, number: u64) -> Vec<u8> {
        let mut frame = Vec::new();
        self.write_frame(number, &mut frame);
        frame
    }

    /// Writes frame `number` into `frame`, replacing its contents.
    pub(crate) fn write_frame(&self, number: u64, frame: &mut Vec<u8>) {
        frame.clear();
        let Some(slot) = self.slot(number) else {
            return;
        };
        let (head, len) = (slot.head as usize, slot.len as usize);
        frame.extend_from_slice(&self.heads[slot.at..slot.at + head]);
        frame.extend_from_slice(&self.template[head..len]);
        if slot.stamp != 0 {
            let at = slot.stamp as usize;
            frame[at..at + 8].copy_from_slice(&stamp(number));
        }
    }

    pub(crate) fn frame_len(&self, number: u64) -> usize {
        self.slot(number).map_or(0, |slot| slot.len as usize)
    }

    /// Bytes of `count` frames from frame `number` on.
    pub(crate) fn bytes_of(&self, number: u64, count: u64) -> u64 {
        if self.even {
            return count * self.longest() as u64;
        }
        let frames = number..number + count;
        frames.map(|number| self.frame_len(number) as u64).sum()
    }

    /// Nanoseconds between frame `number` and the next frame in the capture.
    pub(crate) fn gap(&self, number: u64) -> u64 {
        self.slot(number).map_or(0, |slot| slot.gap)
    }

    /// A frame of the greatest length. Every other frame is this frame with its first
    /// [`Pool::own_len`] bytes and its stamp overwritten.
    pub(crate) fn template(&self) -> &[u8] {
        &self.template
    }

    /// Number of leading bytes in which frames may differ from the template.
    pub(crate) fn own_len(&self) -> usize {
        self.head_len.max(OWN_LEN).min(self.longest())
    }

    /// Whether all frames have the same length.
    pub(crate) fn is_even(&self) -> bool {
        self.even
    }

    /// Whether frames have stamps.
    pub(crate) fn has_stamps(&self) -> bool {
        self.slots.iter().any(|slot| slot.stamp != 0)
    }

    /// Offset of the stamp in frame `number`; 0 for none.
    pub(crate) fn stamp_at(&self, number: u64) -> u32 {
        self.slot(number).map_or(0, |slot| slot.stamp)
    }

    /// Adds a frame that has [`payload`] after its head.
    pub(crate) fn push_made(&mut self, frame: &Frame) -> Result<()> {
        let head = &frame.bytes[..frame.head];
        self.push(head, frame.bytes.len(), frame.stamp.unwrap_or(0))
    }

    /// The finished pool of frames that [`Pool::push_made`] has added.
    pub(crate) fn of_made(mut self) -> Self {
        let longest = self.slots.iter().map(|slot| slot.len as usize).max();
        self.template = (0..longest.unwrap_or(0)).map(payload).collect();
        self
    }

    /// Adds any frame. The frame comes `gap` nanoseconds after the frame before it.
    pub(crate) fn push_captured(&mut self, frame: &[u8], gap: u64) -> Result<()> {
        self.push(frame, frame.len(), 0)?;
        if let [.., before, _] = self.slots.as_mut_slice() {
            before.gap = gap;
        }
        Ok(())
    }

    /// The finished pool of frames that [`Pool::push_captured`] has added. The gap after the last
    /// frame is `gap`, or the average gap if `gap` is `None`.
    pub(crate) fn of_captured(mut self, gap: Option<u64>) -> Self {
        let gaps: u64 = self.slots.iter().map(|slot| slot.gap).sum();
        let average = gaps
            .checked_div(self.slots.len().saturating_sub(1) as u64)
            .unwrap_or(0);
        if let Some(last) = self.slots.last_mut() {
            last.gap = gap.unwrap_or(average);
        }
        if let Some(longest) = self.slots.iter().max_by_key(|slot| slot.len) {
            self.template = self.heads[longest.at..longest.at + longest.len as usize].to_vec();
        }
        self.head_len = 0;
        for slot in &mut self.slots {
            let frame = &self.heads[slot.at..slot.at + slot.len as usize];
            let same = frame.iter().zip(&self.template).rev();
            let same = same.take_while(|(own, common)| own == common).count();
            slot.head = short(frame.len() - same);
            self.head_len = self.head_len.max(frame.len() - same);
        }
        self
    }

    /// The memory that the frames take.
    pub(crate) fn used(&self) -> usize {
        self.heads.len() + self.slots.len() * size_of::<Slot>()
    }

    fn slot(&self, number: u64) -> Option<&Slot> {
        let place = number.checked_rem(self.slots.len() as u64)?;
        self.slots.get(usize::try_from(place).ok()?)
    }

    fn push(&mut self, head: &[u8], len: usize, stamp: usize) -> Result<()> {
        let more = head.len() + size_of::<Slot>();
        ensure!(
            self.used() + more <= POOL_LIMIT,
            "the frames take more than {} MiB, {} of them fit: ask for fewer flows",
            POOL_LIMIT >> 20,
            self.len()
        );
        let first = self.slots.first();
        self.even = first.is_none_or(|first| self.even && first.len == short(len));
        self.slots.push(Slot {
            at: self.heads.len(),
            head: short(head.len()),
            len: short(len),
            stamp: short(stamp),
            gap: 0,
        });
        self.heads.extend_from_slice(head);
        self.head_len = self.head_len.max(head.len());
        self.bytes += len as u64;
        Ok(())
    }
}

/// A frame's stamp: its number in network order, and the complement. Number and complement add up
/// to the same checksum for every number, so a new stamp needs no new checksum.
pub(crate) fn stamp(number: u64) -> [u8; 8] {
    let low = u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
    let ([a, b, c, d], [e, f, g, h]) = (low.to_be_bytes(), (!low).to_be_bytes());
    [a, b, c, d, e, f, g, h]
}

fn short(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captured_frames_come_out_as_they_went_in() {
        let frames: Vec<Vec<u8>> = (60..1514_usize)
            .map(|len| (0..len).map(|at| payload(at * len / 7)).collect())
            .collect();
        let mut pool = Pool::default();
        for frame in &frames {
            pool.push_captured(frame, 1000).unwrap();
        }
        let pool = pool.of_captured(None);
        assert_eq!(pool.longest(), 1513);
        for (number, frame) in (0..).zip(&frames) {
            assert_eq!(&pool.frame(number), frame);
            assert_eq!(pool.gap(number), 1000);
        }
        assert_eq!(&pool.frame(frames.len() as u64), &frames[0]);
    }

    #[test]
    fn equal_frames_have_nothing_of_their_own_but_headers() {
        let mut pool = Pool::default();
        for _ in 0..3 {
            pool.push_captured(&[7; 1000], 0).unwrap();
        }
        assert_eq!(pool.of_captured(None).own_len(), OWN_LEN);
    }

    #[test]
    fn a_pool_has_its_limit() {
        let mut pool = Pool::default();
        let frame = vec![0; 1 << 20];
        let fitted = (0..300)
            .take_while(|_| pool.push_captured(&frame, 0).is_ok())
            .count();
        assert_eq!(fitted, 255);
        let error = pool.push_captured(&frame, 0).unwrap_err().to_string();
        assert!(error.contains("256 MiB, 255 of them fit"), "{error}");
    }
}
