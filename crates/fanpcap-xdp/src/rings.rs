//! A member's ring buffers on one device.

use crate::layout::Lanes;
use crate::rows::SlotCounts;
use fanpcap_linux::bpf::{RingBuffer, RingMapping};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// A member's ring buffers: one for each lane of received packets, and optionally one for sent
/// packets.
#[derive(Debug)]
pub struct MemberRings {
    received: Vec<RingBuffer>,
    /// The ring buffer for sent packets. It is half as long as a ring buffer for received packets.
    /// Other processes recognise it by this length.
    sent: Option<RingBuffer>,
    /// The slot's counts at the time when the slot got these ring buffers.
    before: OnceLock<SlotCounts>,
}

const MIB: u32 = 1 << 20;
/// Bytes of all ring buffers for received packets, if the application has set no size.
/// [`BYTES_SHORT`] is for snaplens up to [`SHORT`], [`BYTES_LONG`] for larger snaplens.
const BYTES_SHORT: u32 = 16 * MIB;
const BYTES_LONG: u32 = 64 * MIB;
const SHORT: u32 = 256;
/// The smallest and the largest size that pcap_set_buffer_size(3PCAP) can set.
const BYTES_MIN: u32 = 4 * MIB;
const BYTES_MAX: u32 = 1 << 30;

impl MemberRings {
    /// Creates empty ring buffers. `bytes` is the total size of the ring buffers for received
    /// packets, if the application has set a size.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `ENOMEM` when the kernel does not have enough memory.
    pub fn create(
        snaplen: u32,
        bytes: Option<u32>,
        lanes: Lanes,
        has_sent: bool,
    ) -> io::Result<Self> {
        let len = lane_len(snaplen, bytes, lanes);
        let create = |len| RingBuffer::create("fanpcap_ring", len);
        let received = (0..lanes.received()).map(|_| create(len));
        Ok(Self {
            received: received.collect::<io::Result<_>>()?,
            sent: has_sent.then(|| create(len / 2)).transpose()?,
            before: OnceLock::new(),
        })
    }

    /// Returns the bytes of all ring buffers that [`MemberRings::create`] would create.
    pub fn bytes(snaplen: u32, bytes: Option<u32>, lanes: Lanes, has_sent: bool) -> u64 {
        let len = u64::from(lane_len(snaplen, bytes, lanes));
        len * u64::from(lanes.received()) + if has_sent { len / 2 } else { 0 }
    }

    /// Opens ring buffers from another process's [`MemberRings::descriptors`]. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` if `fds` can't be the ring buffers of a member of a group with these lanes.
    pub fn open(fds: Vec<OwnedFd>, lanes: Lanes) -> io::Result<Self> {
        let rings = fds.into_iter().map(RingBuffer::open);
        let mut received: Vec<RingBuffer> = rings.collect::<io::Result<_>>()?;
        let is_shorter = |last: &RingBuffer| received.iter().any(|it| it.len() > last.len());
        let has_sent = received.last().is_some_and(is_shorter);
        let sent = if has_sent { received.pop() } else { None };
        if received.is_empty() || received.len() > lanes.received() as usize {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self {
            received,
            sent,
            before: OnceLock::new(),
        })
    }

    /// The descriptors of the ring buffers, for [`MemberRings::open`].
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.all().map(AsFd::as_fd).collect()
    }

    /// Maps the ring buffers. Only one reader at a time may read them.
    ///
    /// # Errors
    /// The errors of mmap(2).
    pub fn map(&self) -> io::Result<Vec<RingMapping>> {
        self.all().map(RingBuffer::map).collect()
    }

    /// Bytes of all ring buffers.
    pub fn len(&self) -> usize {
        self.all().map(RingBuffer::len).sum()
    }

    /// Always false, because a member has at least one ring buffer.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = &RingBuffer> {
        self.received.iter().chain(&self.sent)
    }

    /// Returns the ring buffer of each lane. If there are fewer ring buffers than lanes, several
    /// lanes share a ring buffer. In this case, BPF programs on several CPUs may write to the same
    /// ring buffer.
    pub(crate) fn for_lanes(&self, lanes: Lanes) -> Vec<BorrowedFd<'_>> {
        let received = self.received.iter().cycle().take(lanes.received() as usize);
        received.chain(&self.sent).map(AsFd::as_fd).collect()
    }

    /// Whether the member has a ring buffer for sent packets.
    pub fn has_sent(&self) -> bool {
        self.sent.is_some()
    }

    /// Stores the slot's counts at the time when the slot has just got these ring buffers.
    pub(crate) fn note_before(&self, counts: SlotCounts) {
        let _ = self.before.set(counts);
    }

    /// The slot's counts at the time when the slot got these ring buffers; `None` before that time.
    pub(crate) fn before(&self) -> Option<SlotCounts> {
        self.before.get().copied()
    }
}

fn lane_len(snaplen: u32, bytes: Option<u32>, lanes: Lanes) -> u32 {
    let all = match bytes {
        Some(bytes) => bytes.clamp(BYTES_MIN, BYTES_MAX).next_power_of_two(),
        None if snaplen <= SHORT => BYTES_SHORT,
        None => BYTES_LONG,
    };
    (all / lanes.received()).max(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_lanes_share_the_bytes_and_each_has_enough() {
        let one = Lanes::for_queues(1);
        let sixteen = Lanes::for_queues(16);
        assert_eq!(lane_len(96, None, one), 16 * MIB);
        assert_eq!(lane_len(65_535, None, one), 64 * MIB);
        assert_eq!(lane_len(96, None, sixteen), MIB);
        assert_eq!(lane_len(96, Some(1), one), 4 * MIB);
        assert_eq!(lane_len(96, Some(1), sixteen), MIB);
        assert_eq!(lane_len(96, Some(100_000_000), one), 128 * MIB);
        assert_eq!(lane_len(96, Some(u32::MAX), sixteen), 64 * MIB);
        let mib = |snaplen, lanes, sent| MemberRings::bytes(snaplen, None, lanes, sent) >> 20;
        assert_eq!(mib(65_535, one, true), 96);
        assert_eq!(mib(96, one, false), 16);
        assert_eq!(mib(65_535, sixteen, true), 66);
    }
}
