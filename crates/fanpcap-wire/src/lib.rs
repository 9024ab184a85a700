//! Where a frame's headers are and what they say, and the key of its flow.
//!
//! A frame is walked once, from outside to inside; what was not captured is not there, and no bytes
//! make it panic. The walk is the one that the eBPF back ends of `fanpcap-steer` do in the kernel,
//! step by step and with the same limits, so that both come to the same for each frame:
//!
//! 1. **Link**: 14 bytes of Ethernet; with fewer there is nothing at all, nor a tag beside it.
//! 2. **Tags**: 802.1Q (0x8100), 802.1ad (0x88a8) and 0x9100, 4 bytes each, at most [`TAGS_MAX`]
//!    with the one that the kernel keeps beside the frame, which counts as the outermost. One of
//!    which fewer are captured is not there. The type behind them is the Ethernet type: behind a
//!    tag that is cut off there is none, and behind [`TAGS_MAX`] tags it may be one more tag's,
//!    which is then not a network header.
//! 3. **PPPoE** session (0x8864): byte 0 is 0x11, byte 1 is 0, 8 bytes with the PPP protocol:
//!    0x0021 is IPv4, 0x0057 IPv6.
//! 4. **MPLS** (0x8847, 0x8848): at most [`LABELS_MAX`] labels until the bottom of the stack; then
//!    the first nibble says IPv4 or IPv6.
//! 5. **IPv4**: 20 bytes, version 4, header length at least 20. Header length tells where the
//!    transport header is, whether or not the options were captured. Total length is not looked at.
//! 6. **IPv6**: 40 bytes, version 6; then at most [`EXTENSIONS_MAX`] of hop-by-hop options (0),
//!    routing (43), fragment (44), authentication (51) and destination options (60), of which 8
//!    bytes each must be there. The fragment header that comes last counts. Behind a header that is
//!    cut off, behind the last that is allowed and in a later fragment there is no transport
//!    header, and no further extension header; the protocol is the last number read.
//! 7. **Transport**: not in a fragment whose offset is not 0. Ports are those of TCP (6), UDP (17),
//!    DCCP (33), SCTP (132) and UDP-Lite (136), where 4 bytes are there.
//! 8. **Inside** (one level): IPIP (protocols 4 and 41); GRE version 0 (47; checksum, key and
//!    sequence number skipped; routing: none) with IPv4, IPv6, MPLS, Ethernet (0x6558), ERSPAN I
//!    (0x88be without sequence number), II (0x88be with: 8 bytes) or III (0x22eb: 12 bytes, 8 more
//!    with flag O); by UDP destination port VXLAN (4789, 8472; flag I), Geneve (6081; version 0;
//!    Ethernet, IPv4, IPv6), GTP-U (2152; version 1, PT, type 255; with any of E, S, PN four bytes
//!    more, then, with E, at most [`GTP_EXTENSIONS_MAX`] extension headers). An Ethernet frame
//!    inside is walked from step 2 (there is none beside it), an IP packet from step 5 or 6. There
//!    is an inner packet only if that finds IPv4 or IPv6.
//!
//! What a captured part of a frame says, the whole frame says too, but for two things: the protocol
//! and the fragmentation of an IPv6 packet whose extension headers are cut off, and the ports of a
//! [`FlowKey`], which are 0 where none were captured.

mod arp;
mod flow;
mod ipv4;
mod shim;
pub mod number;
mod ipv6;
mod link;
mod layers;
mod transport;
mod tunnel;

pub use arp::Arp;
pub use flow::{Endpoint, FlowKey};
pub use ip::{Header, Ip};
pub use ipv4::Ipv4;
pub use ipv6::{Extension, Extensions, Ipv6};
pub use layers::{Frame, Layers};
pub use link::{Link, Tag};
pub use shim::{Label, Labels, Pppoe};
pub use transport::{Icmp, Ports, Rtcp, Rtp, Sctp, Tcp, Udp};
pub use tunnel::{Erspan, Geneve, Gre, Gtp, Vxlan};

mod ip;

/// VLAN tags that are passed over.
pub const TAGS_MAX: usize = 4;
/// MPLS labels that are passed over.
pub const LABELS_MAX: usize = 6;
/// Extension headers of IPv6 that are passed over.
pub const EXTENSIONS_MAX: usize = 6;
/// Extension headers of GTP-U that are passed over.
pub const GTP_EXTENSIONS_MAX: usize = 4;
