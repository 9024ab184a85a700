//! Metadata that an absolute load reads at an offset beyond any packet (linux/filter.h).

/// The offset from which on absolute loads read metadata: -0x1000 as an unsigned number.
pub const SKF_AD_OFF: u32 = 0xffff_f000;

/// The frame's protocol.
pub const SKF_AD_PROTOCOL: u32 = 0;
/// The kind of the frame's destination: `PACKET_HOST` or another `PACKET_*` of linux/if_packet.h.
pub const SKF_AD_PKTTYPE: u32 = 4;
/// The device's index.
pub const SKF_AD_IFINDEX: u32 = 8;
/// The socket buffer's mark.
pub const SKF_AD_MARK: u32 = 20;
/// The receive queue's number, from 1.
pub const SKF_AD_QUEUE: u32 = 24;
/// The device's type: `ARPHRD_ETHER` or another `ARPHRD_*` of linux/if_arp.h.
pub const SKF_AD_HATYPE: u32 = 28;
/// The flow's hash.
pub const SKF_AD_RXHASH: u32 = 32;
/// The number of the CPU.
pub const SKF_AD_CPU: u32 = 36;
/// A ^ X.
pub const SKF_AD_ALU_XOR_X: u32 = 40;
/// Control information of the VLAN tag beside the frame.
pub const SKF_AD_VLAN_TAG: u32 = 44;
/// 1 if a VLAN tag is beside the frame.
pub const SKF_AD_VLAN_TAG_PRESENT: u32 = 48;
/// The offset at which the payload begins.
pub const SKF_AD_PAY_OFFSET: u32 = 52;
/// A random number.
pub const SKF_AD_RANDOM: u32 = 56;
/// Protocol of the VLAN tag beside the frame.
pub const SKF_AD_VLAN_TPID: u32 = 60;
