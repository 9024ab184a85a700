//! One packet in a ring, and what the kernel reports about the packet.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::{fmt, slice};

/// The error for an index or length, in a ring's memory, that leads out of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The offset of the packet in bytes, from the frame's start.
    pub mac: u32,
    /// The captured bytes.
    pub captured: u32,
    /// Bytes of the frame or record. For TPACKET_V3, bytes from the frame's start to the end of the
    /// block.
    pub room: u32,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "corrupted frame on kernel ring: mac offset {} + caplen {} > frame len {}",
            self.mac, self.captured, self.room
        )
    }
}

impl std::error::Error for Corrupt {}

/// Time of day, as the ring stores it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Seconds since 1970; the kernel keeps 32 bits of them.
    pub seconds: u32,
    /// Nanoseconds of the second.
    pub nanoseconds: u32,
}

impl Stamp {
    /// Nanoseconds from `earlier` to this stamp; 0 if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> u64 {
        let nanoseconds =
            |stamp: Self| u64::from(stamp.seconds) * 1_000_000_000 + u64::from(stamp.nanoseconds);
        nanoseconds(self).saturating_sub(nanoseconds(earlier))
    }
}

/// A VLAN tag that the kernel has removed from the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The tag's protocol identifier, 0x8100 or 0x88A8.
    pub tpid: u16,
    /// The tag's control information: priority and number.
    pub tci: u16,
}

/// A packet's properties from the kernel's `sockaddr_ll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// Protocol in host byte order, `ETH_P_*`.
    pub protocol: u16,
    /// The interface's index.
    pub ifindex: u32,
    /// The interface's hardware type, `ARPHRD_*`.
    pub hatype: u16,
    /// `PACKET_HOST`, `PACKET_OUTGOING` ...
    pub pkttype: u8,
}

impl LinkInfo {
    pub(crate) fn to_bytes(self) -> [u8; LINK_LEN] {
        let mut bytes = [0; LINK_LEN];
        bytes[2..4].copy_from_slice(&self.protocol.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.ifindex.to_ne_bytes());
        bytes[8..10].copy_from_slice(&self.hatype.to_ne_bytes());
        bytes[10] = self.pkttype;
        bytes
    }
}

pub(crate) const LINK_LEN: usize = 20;

/// One packet. Its bytes belong to the reader until the block or frame is released to the kernel.
#[derive(Debug)]
pub struct Frame<'ring> {
    link: NonNull<u8>,
    data: NonNull<u8>,
    captured: u32,
    headroom: u32,
    len: u32,
    stamp: Stamp,
    vlan: Option<Vlan>,
    ring: PhantomData<&'ring mut [u8]>,
}

/// A frame that stays in its ring while the reader takes further frames.
#[derive(Clone, Copy, Debug)]
pub struct LentFrame<'ring> {
    /// The captured bytes.
    pub bytes: &'ring [u8],
    /// The frame's length on the wire, without the tag beside it.
    pub wire_len: u32,
    /// The packet's arrival time.
    pub stamp: Stamp,
    /// The VLAN tag that the kernel has removed from the frame.
    pub vlan: Option<Vlan>,
    /// The direction (`PACKET_*`, linux/if_packet.h).
    pub pkttype: u8,
}

/// A frame's properties from its TPACKET_V2 or V3 header.
pub(crate) struct FrameHeader {
    /// The offset of the packet, from the frame's start.
    pub(crate) mac: u16,
    pub(crate) captured: u32,
    pub(crate) len: u32,
    pub(crate) stamp: Stamp,
    pub(crate) status: u32,
    pub(crate) tci: u16,
    pub(crate) tpid: u16,
}

/// Value of `headroom` for a frame in a BPF program's record. Such a frame is an Ethernet frame and
/// has all its VLAN tags in its bytes.
const OF_RECORD: u32 = u32::MAX;

/// Value of `headroom` for a frame that a library has returned, which is such a frame without a
/// record's header.
const OF_CALL: u32 = OF_RECORD - 1;

/// Flag of a record: the host sends the frame.
pub const OUTGOING: u16 = 1;
/// Flag of a record: the kernel has kept the frame's first tag beside the frame.
pub const TAGGED: u16 = 2;
/// Flag of a record: another member also gets the packet.
pub const COPY: u16 = 4;

/// Length of the two addresses of an Ethernet frame. The protocol or the first tag follows them.
pub(crate) const ADDRESSES_LEN: usize = 12;

const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;
pub(crate) const VLAN_TAG_LEN: u32 = 4;
/// A value below this one in the protocol field of an Ethernet frame is a length.
const ETH_P_802_3_MIN: u16 = 0x0600;
const ETH_P_802_2: u16 = 4;

impl Frame<'_> {
    /// The frame at `base`, which has `room` bytes. Its `sockaddr_ll` ends at byte `head`.
    ///
    /// # Safety
    /// `base` has `room` bytes, which belong to the caller for as long as the frame lives. `head`
    /// is at most `room` and at least [`LINK_LEN`].
    #[inline(always)]
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        head: usize,
        room: usize,
        told: &FrameHeader,
    ) -> Result<Self, Corrupt> {
        let (mac, captured) = (usize::from(told.mac), told.captured as usize);
        if mac < head || mac + captured > room {
            return Err(corrupt(told.mac.into(), told.captured, room as u64));
        }
        Ok(Self {
            // SAFETY: the caller guarantees `head`.
            link: unsafe { base.add(head - LINK_LEN) },
            // SAFETY: checked above.
            data: unsafe { base.add(mac) },
            captured: told.captured,
            headroom: u32::from(told.mac) - u32::try_from(head).unwrap_or(u32::from(told.mac)),
            len: told.len,
            stamp: told.stamp,
            vlan: vlan(told),
            ring: PhantomData,
        })
    }

    /// The frame in a BPF program's record whose `captured` bytes begin at `data`. The protocol in
    /// the `sockaddr_ll` at `link` has no meaning.
    ///
    /// # Safety
    /// These are valid for as long as the frame lives: `captured` bytes at `data`, the
    /// `sockaddr_ll`, and the 6 bytes before `data`. The 6 bytes are aligned. They have the
    /// record's flags, and the number of the filter that was run on the frame.
    #[inline(always)]
    pub(crate) unsafe fn of_record(
        data: NonNull<u8>,
        captured: u32,
        len: u32,
        link: NonNull<u8>,
        stamp: Stamp,
    ) -> Self {
        Self {
            link,
            data,
            captured,
            headroom: OF_RECORD,
            len,
            stamp,
            vlan: None,
            ring: PhantomData,
        }
    }

    /// The Ethernet frame that a library has returned, whose `captured` bytes begin at `data`. All
    /// VLAN tags are in its bytes. The protocol in the `sockaddr_ll` at `link` has no meaning.
    ///
    /// # Safety
    /// The bytes and the `sockaddr_ll` at `link` are valid for as long as the frame lives.
    pub(crate) unsafe fn of_call(
        data: NonNull<u8>,
        captured: u32,
        len: u32,
        link: NonNull<u8>,
        stamp: Stamp,
    ) -> Self {
        Self {
            link,
            data,
            captured,
            headroom: OF_CALL,
            len,
            stamp,
            vlan: None,
            ring: PhantomData,
        }
    }

    /// Returns a second value for the same frame.
    #[inline(always)]
    pub fn again(&self) -> Frame<'_> {
        Frame { ..*self }
    }

    /// The number of the application's filter that the kernel has run on the frame. 0 if the kernel
    /// ran no filter, or if the frame is in a packet socket's ring, which does not have the number.
    #[inline]
    pub fn filter(&self) -> u32 {
        // SAFETY: the caller of of_record() guarantees these bytes.
        self.field(4).map_or(0, |filter| unsafe { filter.read() })
    }

    /// The address of the field of the record's header that begins `back` bytes before the frame's
    /// bytes. `None` for a frame that is in no record.
    #[inline]
    fn field<T>(&self, back: usize) -> Option<NonNull<T>> {
        debug_assert!(back <= 6);
        // SAFETY: the caller of of_record() guarantees these bytes.
        (self.headroom == OF_RECORD).then(|| unsafe { self.data.sub(back) }.cast())
    }

    /// The VLAN tag in the frame's bytes, at byte 12, that packet sockets have beside the frame. Of
    /// a received frame, this is the first tag. Of a sent frame, it is the tag that the kernel has
    /// kept beside the frame. A library does not say which tag this is, so it is the first one, as
    /// for a VLAN device. `None` if the frame has no such tag, or is in a packet socket's ring.
    pub fn tag_inside(&self) -> Option<Vlan> {
        let is_tag = |tpid: &u16| matches!(*tpid, ETH_P_8021Q | ETH_P_8021AD);
        let tpid = self.word_inside(ADDRESSES_LEN).filter(is_tag)?;
        if self.record_flags() & (OUTGOING | TAGGED) == OUTGOING {
            return None;
        }
        let tci = self.word_inside(ADDRESSES_LEN + 2)?;
        Some(Vlan { tpid, tci })
    }

    /// The flags of the record; 0 for a frame that is in no record.
    pub fn record_flags(&self) -> u16 {
        // SAFETY: the caller of of_record() guarantees these bytes.
        self.field(6).map_or(0, |flags| unsafe { flags.read() })
    }

    /// Whether the bytes have all tags: the frame is in no packet socket's ring.
    #[inline]
    fn has_all_tags(&self) -> bool {
        self.headroom >= OF_CALL
    }

    /// The 16 bits at byte `at` of a frame with all tags. `None` for a frame in a packet socket's
    /// ring.
    fn word_inside(&self, at: usize) -> Option<u16> {
        let word = self
            .data()
            .get(at..at + 2)
            .filter(|_| self.has_all_tags())?;
        Some(u16::from_be_bytes([word[0], word[1]]))
    }

    /// The protocol of a frame with all tags, after the first one.
    fn protocol_inside(&self) -> u16 {
        let tag_len = self.tag_inside().map_or(0, |_| VLAN_TAG_LEN as usize);
        match self.word_inside(ADDRESSES_LEN + tag_len) {
            Some(protocol @ ETH_P_802_3_MIN..) => protocol,
            // The frame has a length in place of a protocol. The kernel's `eth_type_trans` returns
            // this protocol for such frames.
            Some(_) => ETH_P_802_2,
            None => 0,
        }
    }

    /// The packet's arrival time.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The packet's length on the wire, in bytes.
    #[inline]
    pub fn wire_len(&self) -> u32 {
        self.len
    }

    /// The captured bytes.
    #[inline]
    pub fn data(&self) -> &[u8] {
        // SAFETY: the range was checked when the frame was made.
        unsafe { slice::from_raw_parts(self.data.as_ptr(), self.captured as usize) }
    }

    /// The number of captured bytes.
    #[inline]
    pub fn captured(&self) -> u32 {
        self.captured
    }

    /// Keeps at most so many bytes of the packet. A tag among them that packet sockets have beside
    /// the frame does not count. If fewer bytes are kept than those before the tag, the tag is
    /// lost, as libpcap then does not re-insert it.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn cut(mut self, bytes: u32) -> Self {
        let tag_len = self.tag_inside().map_or(0, |_| VLAN_TAG_LEN);
        let kept = match bytes as usize >= ADDRESSES_LEN {
            true => bytes.saturating_add(tag_len),
            false => {
                self.len = self.len.saturating_sub(tag_len);
                bytes
            }
        };
        self.captured = self.captured.min(kept);
        self
    }

    /// The VLAN tag that the kernel has removed from the frame.
    #[inline]
    pub fn vlan(&self) -> Option<Vlan> {
        self.vlan
    }

    /// The packet's interface, direction and protocol.
    #[inline]
    pub fn link(&self) -> LinkInfo {
        LinkInfo {
            protocol: match self.has_all_tags() {
                true => self.protocol_inside(),
                false => u16::from_be_bytes(self.link_bytes(2)),
            },
            ifindex: u32::from_ne_bytes(self.link_bytes(4)),
            hatype: u16::from_ne_bytes(self.link_bytes(8)),
            pkttype: self.link_bytes::<1>(10)[0],
        }
    }

    #[inline(always)]
    fn link_bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        debug_assert!(at + N <= LINK_LEN);
        // SAFETY: the field is in the LINK_LEN bytes of the sockaddr_ll.
        let field = unsafe { self.link.add(at) };
        // SAFETY: as above, and bytes have no alignment.
        unsafe { field.cast::<[u8; N]>().read() }
    }

    /// Re-inserts the tag that the kernel has removed, `at` bytes into the packet. Like the
    /// system's libpcap, moves the first `at` bytes down into the room that the ring has before the
    /// packet. A packet of which fewer than `at` bytes are captured stays as it is.
    ///
    /// # Errors
    /// The ring has fewer than 4 bytes of room before the packet. `PACKET_RESERVE` makes this room.
    pub fn reinsert_tag(&mut self, at: usize) -> Result<(), Corrupt> {
        let Some(vlan) = self.vlan.filter(|_| self.captured as usize >= at) else {
            return Ok(());
        };
        if self.headroom < VLAN_TAG_LEN {
            return Err(corrupt(self.headroom, self.captured, 0));
        }
        self.vlan = None;
        self.headroom -= VLAN_TAG_LEN;
        self.captured += VLAN_TAG_LEN;
        self.len = self.len.saturating_add(VLAN_TAG_LEN);
        // SAFETY: the headroom is part of the frame.
        self.data = unsafe { self.data.sub(VLAN_TAG_LEN as usize) };
        let ([a, b], [c, d]) = (vlan.tpid.to_be_bytes(), vlan.tci.to_be_bytes());
        // SAFETY: the headroom and the captured bytes are one part of the frame, and belong to the
        // reader.
        let bytes =
            unsafe { slice::from_raw_parts_mut(self.data.as_ptr(), self.captured as usize) };
        bytes.copy_within(4..4 + at, 0);
        bytes[at..at + 4].copy_from_slice(&[a, b, c, d]);
        Ok(())
    }
}

#[inline(always)]
fn vlan(told: &FrameHeader) -> Option<Vlan> {
    if told.tci == 0 && told.status & TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let has_tpid = told.tpid != 0 || told.status & TP_STATUS_VLAN_TPID_VALID != 0;
    Some(Vlan {
        tpid: if has_tpid { told.tpid } else { ETH_P_8021Q },
        tci: told.tci,
    })
}

#[cold]
pub(crate) fn corrupt(mac: u32, captured: u32, room: u64) -> Corrupt {
    let room = u32::try_from(room).unwrap_or(u32::MAX);
    Corrupt {
        mac,
        captured,
        room,
    }
}
