//! Where a frame's headers are and what they say, and the key of its flow.
//!
//! A frame is walked once, from outside to inside; what was not captured is not there, and no bytes
//! make it panic. The walk is the one that the eBPF back ends of `fanpcap-steer` do in the kernel,
//! step by step and with the same limits, so that both come to the same for each frame:
//!
//! 1. **Link**: 14 bytes of Ethernet; with fewer there is nothing at all, nor a tag beside it.
//! 2. **Tags**: 802.1Q (0x8100), 802.1ad (0x88a8), 0x9100, 0x9200 and 0x9300, 4 bytes each, at most
//!    [`TAGS_MAX`] with the one that the kernel keeps beside the frame, which counts as the
//!    outermost. One of which fewer are captured is not there. The type behind them is the Ethernet
//!    type: behind a tag that is cut off there is none, and behind [`TAGS_MAX`] tags it may be one
//!    more tag's, which is then not a network header.
//! 3. **A maker's tag**: VN-Tag (0x8926, 4 bytes), a fabric's time tag (0x8988, 6 bytes), Arista's
//!    time stamp (0xd28b, subtype 1, of 64 or 48 bits), each with the next type behind it; then at
//!    most [`TAGS_BEHIND_MAX`] more of step 2. These are passed over, and say nothing.
//! 4. **PPPoE** session (0x8864): byte 0 is 0x11, byte 1 is 0, 8 bytes with the PPP protocol:
//!    0x0021 is IPv4, 0x0057 IPv6. **MPLS** (0x8847, 0x8848): at most [`LABELS_MAX`] labels until
//!    the bottom of the stack; what is behind has no type, see step 8. **NSH** (0x894f): version 0,
//!    no flag O, at most [`NSH_MAX`] bytes, then IPv4, IPv6, or a frame as in step 8.
//! 5. **IPv4**: 20 bytes, version 4, header length at least 20. Header length tells where the
//!    transport header is, whether or not the options were captured. Total length is not looked at.
//! 6. **IPv6**: 40 bytes, version 6; then at most [`EXTENSIONS_MAX`] of hop-by-hop options (0),
//!    routing (43), fragment (44), authentication (51) and destination options (60), of which 8
//!    bytes each must be there. The fragment header that comes last counts. Behind a header that is
//!    cut off, behind the last that is allowed and in a later fragment there is no transport
//!    header, and no further extension header; the protocol is the last number read.
//! 7. **Transport**: not in a fragment whose offset is not 0. Ports are those of TCP (6), UDP (17),
//!    DCCP (33), SCTP (132) and UDP-Lite (136), where 4 bytes are there.
//! 8. **What has no type**: IPv4 if the first nibble is 4, the header's checksum is right (with its
//!    options, which must be there), and total length is not less than the header and not more than
//!    what the frame has on the wire. Else a frame, if steps 1 to 4 lead in it to an IP packet of
//!    which the same holds; if the first nibble is 0, it is first looked for behind a control word
//!    of 4 bytes. Else IPv6, if the first nibble is 6 and 40 bytes with the payload are not more
//!    than what the frame has. A frame inside a frame is what that one carries, as in step 9.
//! 9. **Inside** (one level): IPIP (protocols 4 and 41); MPLS (137); Ethernet (143); L2TP version 3
//!    (115: session not 0, no cookie, as step 8); GRE version 0 (47; checksum, key and sequence
//!    number skipped; routing: none) with IPv4, IPv6, MPLS, Ethernet (0x6558), ERSPAN I (0x88be
//!    without sequence number), II (0x88be with: 8 bytes) or III (0x22eb: 12 bytes, 8 more with
//!    flag O); by UDP destination port VXLAN (4789, 8472; flag I), VXLAN-GPE (4790; version 0, no
//!    flag O; IPv4, IPv6, Ethernet, NSH), Geneve (6081; version 0; Ethernet, IPv4, IPv6), GTP-U
//!    (2152; version 1, PT, type 255; with any of E, S, PN four bytes more, then, with E, at most
//!    [`GTP_EXTENSIONS_MAX`] extension headers; as step 8), TZSP (37008; version 1, Ethernet, at
//!    most [`TZSP_FIELDS_MAX`] fields); by either UDP port CAPWAP's data (5247; Ethernet, whole, no
//!    DTLS), else L2TP (1701; version 2 without offset: PPP's IPv4 and IPv6; version 3 as above).
//!    An Ethernet frame inside is walked from step 2 (there is none beside it), an IP packet from
//!    step 5 or 6. There is an inner packet only if that finds IPv4 or IPv6.
//!
//! What a captured part of a frame says, the whole frame says too, but for three things: the
//! protocol and the fragmentation of an IPv6 packet whose extension headers are cut off, the ports
//! of a [`FlowKey`], which are 0 where none were captured, and in step 8 an IPv6 packet whose bytes
//! are also a frame that was cut off.

mod arp;
mod flow;
mod ipv4;
mod shim;
pub mod number;
mod ipv6;
mod link;
mod layers;
mod untyped;
mod transport;
mod tunnel;

pub use arp::Arp;
pub use flow::{Endpoint, FlowKey};
pub use ip::{Header, Ip};
pub use ipv4::Ipv4;
pub use ipv6::{Extension, Extensions, Ipv6};
pub use layers::{Frame, Layers};
pub use link::{Link, Tag};
pub use shim::{Label, Labels, Nsh, Pppoe};
pub use transport::{Icmp, Ports, Rtcp, Rtp, Sctp, Tcp, Udp};
pub use tunnel::{Erspan, Geneve, Gre, Gtp, Vxlan};

mod ip;
mod inside;

/// VLAN tags that are passed over.
pub const TAGS_MAX: usize = 4;
/// VLAN tags that are passed over behind the tag of a switch's maker.
pub const TAGS_BEHIND_MAX: usize = 2;
/// MPLS labels that are passed over.
pub const LABELS_MAX: usize = 6;
/// Extension headers of IPv6 that are passed over.
pub const EXTENSIONS_MAX: usize = 6;
/// Extension headers of GTP-U that are passed over.
pub const GTP_EXTENSIONS_MAX: usize = 4;
/// The longest network service header that is passed over, in bytes: of type 1, or of type 2 with
/// as much context.
pub const NSH_MAX: usize = 24;
/// Fields of TZSP that are passed over before the end.
pub const TZSP_FIELDS_MAX: usize = 4;
