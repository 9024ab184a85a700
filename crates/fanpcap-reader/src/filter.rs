//! A filter's view of a packet in the ring. The reader uses this view for packets that came before
//! their filter was set, and for filters that the kernel does not accept.
//!
//! libpcap's compiler uses the kernel's ancillary loads (linux/filter.h, `SKF_AD_*`) for VLAN tags,
//! direction and interface. A filter that reads values known only to the kernel, such as the mark,
//! rejects the packet.

use fanpcap_bpf::classic::ancillary::*;
use fanpcap_bpf::{self as bpf, Classic, Shifts};
use fanpcap_ring::Frame;
pub use fanpcap_ring::LinkInfo;

/// A packet as a filter reads it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The captured bytes, from the link-layer header on, without the VLAN tag that the kernel
    /// removed.
    pub data: &'a [u8],
    /// Whether the VLAN tag is among the captured bytes, after the addresses. The filter does not
    /// read the tag there: it reads the packet as if the kernel had removed the tag.
    pub is_tag_inside: bool,
    /// The packet's length on the wire, without a VLAN tag that is among the captured bytes.
    pub wire_len: u32,
    /// The packet's interface, direction and protocol.
    pub link: LinkInfo,
    /// The VLAN tag that the kernel removed: its protocol and control information.
    pub vlan: Option<(u16, u16)>,
}

impl<'a> View<'a> {
    /// Returns how many bytes of the packet `filter` keeps, by libpcap's rules; 0 if `filter`
    /// rejects the packet.
    #[inline]
    pub fn filtered(&self, filter: &[Classic]) -> u32 {
        bpf::run(filter, self, Shifts::Zero)
    }

    /// The view of a packet in a ring.
    pub fn of(frame: &'a Frame<'_>) -> Self {
        let inside = frame.tag_inside();
        let tag_len = inside.map_or(0, |_| 4);
        Self {
            data: frame.data(),
            is_tag_inside: inside.is_some(),
            wire_len: frame.wire_len().saturating_sub(tag_len),
            link: frame.link(),
            vlan: frame.vlan().or(inside).map(|vlan| (vlan.tpid, vlan.tci)),
        }
    }

    /// The bytes at `at`, counted as if the tag inside the packet were removed.
    #[cold]
    #[inline(never)]
    fn around_tag<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (byte, at) in bytes.iter_mut().zip(at..at.checked_add(N)?) {
            let at = if at < TAG_AT { at } else { at + 4 };
            *byte = *self.data.get(at)?;
        }
        Some(bytes)
    }
}

/// The offset of the first VLAN tag in an Ethernet frame.
const TAG_AT: usize = 12;

impl bpf::Packet for View<'_> {
    #[inline]
    fn wire_len(&self) -> u32 {
        self.wire_len
    }

    #[inline]
    fn bytes<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        let at = usize::try_from(at).ok()?;
        if self.is_tag_inside {
            return self.around_tag(at);
        }
        self.data.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    #[inline]
    fn ancillary(&self, offset: u32, a: u32, x: u32) -> Option<u32> {
        let tag = |of: fn((u16, u16)) -> u16| u32::from(self.vlan.map_or(0, of));
        Some(match offset {
            SKF_AD_PROTOCOL => self.link.protocol.into(),
            SKF_AD_PKTTYPE => self.link.pkttype.into(),
            SKF_AD_IFINDEX => self.link.ifindex,
            SKF_AD_HATYPE => self.link.hatype.into(),
            SKF_AD_ALU_XOR_X => a ^ x,
            // The whole control information, as the kernel loads it. libpcap's compiler emits code
            // that masks the bits.
            SKF_AD_VLAN_TAG => tag(|(_, tci)| tci),
            SKF_AD_VLAN_TAG_PRESENT => self.vlan.is_some().into(),
            SKF_AD_VLAN_TPID => tag(|(tpid, _)| tpid),
            _ => return None,
        })
    }
}
