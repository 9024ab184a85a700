//! Finds and reads a frame's headers, and computes the key of its flow.
//!
//! A frame is walked once, from outside to inside. Bytes that were not captured are missing; no
//! bytes cause a panic. The eBPF back ends of `fanpcap-steer` do the same walk in the kernel, with
//! the same steps and limits, so that both have the same result:
//!
//! 1. **Link**: an Ethernet header of 14 bytes. A shorter frame has no layers, and no tag beside
//!    it.
//! 2. **Tags**: 802.1Q (0x8100), 802.1ad (0x88a8), 0x9100, 0x9200 and 0x9300, 4 bytes each. The
//!    walk reads at most [`TAGS_MAX`] tags, including the tag that the kernel keeps beside the
//!    frame, which counts as the outermost. A tag that is cut off does not count. The type after
//!    the tags is the Ethernet type. After a tag that is cut off there is no Ethernet type. After
//!    [`TAGS_MAX`] tags the type may be that of one more tag; the walk then finds no network
//!    header.
//! 3. **A maker's tag**: VN-Tag (0x8926, 4 bytes), the time tag of a fabric (0x8988, 6 bytes), or
//!    Arista's time stamp (0xd28b, subtype 1, of 64 or 48 bits). The next type follows each of
//!    them, then at most [`TAGS_BEHIND_MAX`] more tags of step 2. The walk skips these tags and
//!    reads nothing from them.
//! 4. **PPPoE** session (0x8864): a header of 8 bytes, including the PPP protocol. Byte 0 is 0x11,
//!    byte 1 is 0. PPP protocol 0x0021 is IPv4, 0x0057 is IPv6. **MPLS** (0x8847, 0x8848): at most
//!    [`LABELS_MAX`] labels, up to the bottom of the stack. No type announces the payload: step 8
//!    applies. **NSH** (0x894f): version 0, flag O clear, at most [`NSH_MAX`] bytes. Then comes
//!    IPv4, IPv6, or a frame, for which step 8 applies.
//! 5. **IPv4**: 20 bytes, version 4, header length at least 20. The header length says where the
//!    transport header begins, whether or not the options were captured. The total length is
//!    ignored.
//! 6. **IPv6**: 40 bytes, version 6. Then at most [`EXTENSIONS_MAX`] extension headers: hop-by-hop
//!    options (0), routing (43), fragment (44), authentication (51) and destination options (60).
//!    At least 8 bytes of each must be captured. Of several fragment headers, the last one counts.
//!    The walk finds no transport header and no further extension header in three cases: after a
//!    header that is cut off, after the last allowed header, and in a later fragment. The protocol
//!    is then the last number read.
//! 7. **Transport**: none in a fragment whose offset is not 0. TCP (6), UDP (17), DCCP (33), SCTP
//!    (132) and UDP-Lite (136) have ports, if 4 bytes were captured.
//! 8. **Untyped payload**. It is IPv4, if three things hold: the first nibble is 4; the header's
//!    checksum is right (the options must be captured too); the total length is not less than the
//!    header and not more than the bytes on the wire. Otherwise it is a frame, if steps 1 to 4 find
//!    an IP packet in it that is no longer than the bytes on the wire, and IPv4's checksum is
//!    right. If the first nibble is 0, the walk first tries the frame after a control word of 4
//!    bytes. Otherwise it is IPv6, if the first nibble is 6 and 40 bytes plus the payload are not
//!    more than the bytes on the wire. A frame in a frame is the outer frame's content, as in step
//!    9.
//! 9. **Inside** (one level): IPIP (protocols 4 and 41); MPLS (137); Ethernet (143); L2TP version 3
//!    (115: session not 0, no cookie, then step 8); GRE version 0 (47; checksum, key and sequence
//!    number are skipped; no routing) with IPv4, IPv6, MPLS, Ethernet (0x6558), ERSPAN I (0x88be
//!    without a sequence number), II (0x88be with a sequence number: 8 bytes) or III (0x22eb: 12
//!    bytes, 8 more with flag O). By UDP destination port: VXLAN (4789, 8472; flag I), VXLAN-GPE
//!    (4790; version 0, flag O clear; IPv4, IPv6, Ethernet, NSH), Geneve (6081; version 0;
//!    Ethernet, IPv4, IPv6), GTP-U (2152; version 1, PT, type 255; four more bytes with any of E,
//!    S, PN; with E also at most [`GTP_EXTENSIONS_MAX`] extension headers; then step 8), TZSP
//!    (37008; version 1, Ethernet, at most [`TZSP_FIELDS_MAX`] fields). By either UDP port:
//!    CAPWAP's data (5247; Ethernet, no fragment, no DTLS), otherwise L2TP (1701; version 2 without
//!    offset: IPv4 and IPv6 in PPP; version 3 as above). The walk of an Ethernet frame inside
//!    begins at step 2 (without a tag beside the frame), that of an IP packet at step 5 or 6. There
//!    is an inner packet only if that walk finds IPv4 or IPv6.
//!
//! A captured part of a frame has the same result as the whole frame, with three exceptions: the
//! protocol and the fragmentation of an IPv6 packet whose extension headers are cut off; the ports
//! of a [`FlowKey`], which are 0 if they were not captured; and in step 8, an IPv6 packet that
//! would also be a frame if its bytes were not cut off.

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

/// The most VLAN tags that the walk skips.
pub const TAGS_MAX: usize = 4;
/// The most VLAN tags that the walk skips after the tag of a switch's maker.
pub const TAGS_BEHIND_MAX: usize = 2;
/// The most MPLS labels that the walk skips.
pub const LABELS_MAX: usize = 6;
/// The most IPv6 extension headers that the walk skips.
pub const EXTENSIONS_MAX: usize = 6;
/// The most GTP-U extension headers that the walk skips.
pub const GTP_EXTENSIONS_MAX: usize = 4;
/// The longest network service header that the walk skips, in bytes: of type 1, or of type 2 with
/// as much context.
pub const NSH_MAX: usize = 24;
/// The most TZSP fields that the walk skips before the end field.
pub const TZSP_FIELDS_MAX: usize = 4;
