//! The filter of a policy: which packets of a device the groups of a user may have.

use crate::burst::Packet;
use fanpcap_bpf::Classic;
use fanpcap_reader::filter::{LinkInfo, View};
use std::sync::Arc;

/// A pcap filter of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The expression.
    pub text: String,
    /// The expression as libpcap compiles it for a handle on an Ethernet device. It reads the
    /// outermost VLAN tag beside the frame, where the kernel has it for such a handle.
    pub code: Vec<Classic>,
}

/// The filter of a group on a device.
#[derive(Clone, Debug)]
pub struct DeviceFilter {
    /// The policy's filter.
    pub filter: Arc<Filter>,
    /// The device's index.
    pub ifindex: u32,
}

impl DeviceFilter {
    /// The bytes of a frame that members may have. `None` if they may not have the packet. The
    /// filter reads the packet as members' own filters do ([`View`]), wherever the source has put
    /// the tag. So a user sees the same packets as by this filter on the device.
    pub(crate) fn allowed<'a>(&self, packet: &Packet<'a>) -> Option<&'a [u8]> {
        let bytes = packet.frame.bytes;
        let inside = match packet.tag() {
            // Another tag stays in the frame, as in the kernel.
            Some(_) => None,
            // The kernel leaves a tag that the host has written to the frame there.
            None if packet.is_sent => None,
            None => tag_inside(bytes),
        };
        let beside = packet.tag().map(|tag| (tag.tpid, tag.tci));
        let tag_len = if inside.is_some() { TAG_LEN } else { 0 };
        let view = View {
            data: bytes,
            is_tag_inside: inside.is_some(),
            wire_len: packet.wire_len.saturating_sub(tag_len),
            link: LinkInfo {
                protocol: protocol(bytes, tag_len as usize),
                ifindex: self.ifindex,
                hatype: ARPHRD_ETHER,
                pkttype: if packet.is_sent {
                    PACKET_OUTGOING
                } else {
                    PACKET_HOST
                },
            },
            vlan: beside.or(inside),
        };
        let kept = match view.filtered(&self.filter.code) as usize {
            0 => return None,
            // The filter does not count the tag, which comes after the addresses.
            kept if kept >= ADDRESSES_LEN => kept.saturating_add(tag_len as usize),
            kept => kept,
        };
        Some(bytes.get(..kept).unwrap_or(bytes))
    }
}

/// The protocol and the control information of the tag in a frame, which the kernel would have
/// removed from a received frame.
fn tag_inside(bytes: &[u8]) -> Option<(u16, u16)> {
    let tpid = word(bytes, ADDRESSES_LEN).filter(|it| [ETH_P_8021Q, ETH_P_8021AD].contains(it))?;
    Some((tpid, word(bytes, ADDRESSES_LEN + 2)?))
}

/// The protocol of a frame, as the kernel's `eth_type_trans` returns it.
fn protocol(bytes: &[u8], tag_len: usize) -> u16 {
    match word(bytes, ADDRESSES_LEN + tag_len) {
        Some(protocol @ ETH_P_802_3_MIN..) => protocol,
        // The frame has a length in place of a protocol.
        Some(_) => ETH_P_802_2,
        None => 0,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*word))
}

/// Bytes of a frame before its first tag.
const ADDRESSES_LEN: usize = 12;
const TAG_LEN: u32 = 4;

// linux/if_ether.h, linux/if_arp.h, linux/if_packet.h.
const ETH_P_8021Q: u16 = 0x8100;
const ETH_P_8021AD: u16 = 0x88a8;
const ETH_P_802_3_MIN: u16 = 0x600;
const ETH_P_802_2: u16 = 4;
const ARPHRD_ETHER: u16 = 1;
const PACKET_HOST: u8 = 0;
const PACKET_OUTGOING: u8 = 4;

#[cfg(test)]
mod tests;
