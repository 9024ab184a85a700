//! Finds and reads a frame's headers, and computes the key of its flow.
//!
//! A frame is walked once, from outside to inside. Bytes that were not captured are missing; no
//! bytes cause a panic. The eBPF back ends of `fanpcap-steer` do the same walk in the kernel. Both
//! walks have these steps and limits, so that they find the same headers:
//!
//! 1. **Link**: an Ethernet header of 14 bytes. A shorter frame has no layers; the tag that the
//!    kernel keeps beside the frame is ignored too.
//! 2. **Tags**: 802.1Q (0x8100), 802.1ad (0x88a8), 0x9100, 0x9200 and 0x9300, 4 bytes each. The
//!    walk reads at most [`TAGS_MAX`] tags. The tag that the kernel keeps beside the frame counts
//!    as the outermost of these tags. The type after the tags is the Ethernet type. If a tag is cut
//!    off, the walk ignores this tag, and the frame has no Ethernet type. If the type after
//!    [`TAGS_MAX`] tags is the type of one more tag, the walk finds no network header.
//! 3. **A maker's tag**: VN-Tag (0x8926, 4 bytes), the time tag of a fabric (0x8988, 6 bytes), or
//!    Arista's time stamp (0xd28b, subtype 1, of 64 or 48 bits). After the maker's tag come the
//!    next Ethernet type and at most [`TAGS_BEHIND_MAX`] more tags of step 2. The walk skips all
//!    tags of this step and reads nothing from them.
//! 4. One of three headers, if the Ethernet type announces it:
//!    - **PPPoE** session (0x8864): a header of 8 bytes, including the PPP protocol. Byte 0 is
//!      0x11, byte 1 is 0. PPP protocol 0x0021 is IPv4, 0x0057 is IPv6.
//!    - **MPLS** (0x8847, 0x8848): at most [`LABELS_MAX`] labels, up to the bottom of the stack.
//!      The labels do not give the payload's type, so step 8 applies.
//!    - **NSH** (0x894f): version 0, flag O clear, at most [`NSH_MAX`] bytes. After the header
//!      comes IPv4, IPv6, or a frame. Step 8 applies to the frame.
//! 5. **IPv4**: 20 bytes, version 4, header length at least 20. The header length says where the
//!    transport header begins, whether or not the options were captured. The total length is
//!    ignored.
//! 6. **IPv6**: 40 bytes, version 6. Then at most [`EXTENSIONS_MAX`] extension headers: hop-by-hop
//!    options (0), routing (43), fragment (44), authentication (51) and destination options (60).
//!    At least 8 bytes of each must be captured. If there are several fragment headers, the last
//!    one counts. The walk finds no transport header and no further extension header in three
//!    cases: after a header that is cut off, after the last allowed header, and in a later
//!    fragment. The protocol is then the last number read.
//! 7. **Transport**: a fragment whose offset is not 0 has no transport header. TCP (6), UDP (17),
//!    DCCP (33), SCTP (132) and UDP-Lite (136) have ports, if the header's first 4 bytes were
//!    captured.
//! 8. **Untyped payload**. No type announces this payload, so the walk makes these tests in turn.
//!    "Long enough" means that the payload (or the frame) had on the wire at least as many bytes as
//!    the total length in the IP header.
//!    - The payload is IPv4, if the first nibble is 4, the header's checksum is right, and the
//!      payload is long enough. The options must be captured too. The total length must not be less
//!      than the header.
//!    - Else it is a frame, if steps 1 to 4 find an IP packet in it for which the frame is long
//!      enough. If the packet is IPv4, its checksum must be right. If the first nibble is 0, the
//!      walk first looks for the frame after a control word of 4 bytes, and then at the payload's
//!      start.
//!    - Else it is IPv6, if the first nibble is 6 and the payload is long enough.
//!
//!    If the payload of a frame is a frame, the walk treats this frame as a carried one of step 9.
//! 9. **Inside** (one level): the packet that the IP packet carries.
//!
//!    By IP protocol:
//!    - 4 and 41: IPIP. 137: MPLS. 143: Ethernet.
//!    - 115: L2TP version 3, if the session is not 0. The walk assumes that there is no cookie, and
//!      continues with step 8.
//!    - 47: GRE version 0 without the routing flag. The walk skips the checksum, the key and the
//!      sequence number. The content is IPv4, IPv6, MPLS, Ethernet (0x6558) or ERSPAN.
//!    - The frame in ERSPAN follows ERSPAN's header. Version I (0x88be, GRE without a sequence
//!      number) has no header. Version II (0x88be, GRE with a sequence number) has a header of 8
//!      bytes. Version III (0x22eb) has a header of 12 bytes, or of 20 bytes with flag O.
//!
//!    By UDP destination port:
//!    - 4789 and 8472: VXLAN with flag I.
//!    - 4790: VXLAN-GPE of version 0, flag O clear. The content is IPv4, IPv6, Ethernet or NSH.
//!    - 6081: Geneve of version 0. The content is Ethernet, IPv4 or IPv6.
//!    - 2152: GTP-U of version 1 with flag PT, message type 255. With any of the flags E, S and PN
//!      the header has four more bytes. With flag E, at most [`GTP_EXTENSIONS_MAX`] extension
//!      headers follow. Then step 8 applies.
//!    - 37008: TZSP of version 1 with an Ethernet frame, after at most [`TZSP_FIELDS_MAX`] fields.
//!
//!    By the source or destination port, if the destination port is none of the ports above:
//!    - 5247: CAPWAP's data. The content is an Ethernet frame that is neither a fragment nor
//!      encrypted (DTLS).
//!    - 1701: L2TP. Version 2 must have no offset field; its content is IPv4 or IPv6 in PPP.
//!      Version 3 may have any session; as over IP, the walk assumes that there is no cookie, and
//!      continues with step 8.
//!
//!    The walk of a carried Ethernet frame begins at step 1, without a tag beside the frame. The
//!    walk of a carried IP packet begins at step 5 or 6. There is an inner packet only if the walk
//!    of the content finds IPv4 or IPv6.
//!
//! In a frame of which only a part was captured, the walk finds the same values as in the whole
//! frame, with three exceptions:
//! - the protocol and the fragmentation of an IPv6 packet whose extension headers are cut off;
//! - the ports of a [`FlowKey`], which are 0 if they were not captured;
//! - in step 8, a payload that is taken for IPv6, because the bytes that would show that it is a
//!   frame are cut off.

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
/// The longest network service header that the walk skips, in bytes. Headers of type 1 have this
/// length; headers of type 2 may be longer.
pub const NSH_MAX: usize = 24;
/// The most TZSP fields that the walk skips before the end field.
pub const TZSP_FIELDS_MAX: usize = 4;
