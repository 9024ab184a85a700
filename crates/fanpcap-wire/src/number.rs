//! Ethernet types, protocol numbers and ports (IANA): those that the walk reads, and those that it
//! only names in messages about content that it does not read.

/// Ethernet type of IPv4.
pub const ETHER_IPV4: u16 = 0x0800;
/// Ethernet type of ARP.
pub const ETHER_ARP: u16 = 0x0806;
/// Ethernet type of a bridged Ethernet frame, in GRE and Geneve.
pub const ETHER_ETHERNET: u16 = 0x6558;
/// Ethernet type of an 802.1Q tag.
pub const ETHER_TAG: u16 = 0x8100;
/// Ethernet type of an 802.1ad tag (service tag).
pub const ETHER_TAG_SERVICE: u16 = 0x88a8;
/// Ethernet type of the outer tag of old switches.
pub const ETHER_TAG_OLD: u16 = 0x9100;
/// Ethernet type of an 802.1Q tag from some carriers' switches.
pub const ETHER_TAG_9200: u16 = 0x9200;
/// Ethernet type of an 802.1Q tag from some carriers' switches.
pub const ETHER_TAG_9300: u16 = 0x9300;
/// Ethernet type of Cisco's VN-Tag (802.1BR's predecessor).
pub const ETHER_VN_TAG: u16 = 0x8926;
/// Ethernet type of the time tag of Cisco's fabrics.
pub const ETHER_TIME_TAG: u16 = 0x8988;
/// Ethernet type of Arista's tags, of which the time stamp is one.
pub const ETHER_ARISTA: u16 = 0xd28b;
/// Ethernet type of MACsec (802.1AE).
pub const ETHER_MACSEC: u16 = 0x88e5;
/// Ethernet type of the network service header.
pub const ETHER_NSH: u16 = 0x894f;
/// Ethernet type of IPv6.
pub const ETHER_IPV6: u16 = 0x86dd;
/// Ethernet type of MPLS.
pub const ETHER_MPLS: u16 = 0x8847;
/// Ethernet type of MPLS multicast.
pub const ETHER_MPLS_MULTICAST: u16 = 0x8848;
/// Ethernet type of a PPPoE session.
pub const ETHER_PPPOE: u16 = 0x8864;
/// GRE's type of ERSPAN I and II.
pub const ETHER_ERSPAN: u16 = 0x88be;
/// GRE's type of ERSPAN III.
pub const ETHER_ERSPAN_III: u16 = 0x22eb;
/// Ethernet type of a provider's frame with a customer's frame inside (802.1ah).
pub const ETHER_PROVIDER: u16 = 0x88e7;

/// ICMP.
pub const ICMP: u8 = 1;
/// An IPv4 packet in IP.
pub const IPV4: u8 = 4;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// DCCP.
pub const DCCP: u8 = 33;
/// An IPv6 packet in IP.
pub const IPV6: u8 = 41;
/// GRE.
pub const GRE: u8 = 47;
/// IPsec's encrypted payload.
pub const ESP: u8 = 50;
/// ICMPv6.
pub const ICMPV6: u8 = 58;
/// L2TP version 3 without UDP.
pub const L2TP: u8 = 115;
/// MPLS in IP.
pub const MPLS: u8 = 137;
/// An Ethernet frame in IP, as in segment routing.
pub const ETHERNET: u8 = 143;
/// EtherIP (RFC 3378).
pub const ETHER_IP: u8 = 97;
/// SCTP.
pub const SCTP: u8 = 132;
/// UDP-Lite.
pub const UDP_LITE: u8 = 136;

/// IPv6 extension header: hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// IPv6 extension header: routing.
pub const ROUTING: u8 = 43;
/// IPv6 extension header: fragment.
pub const FRAGMENT: u8 = 44;
/// IPv6 extension header: authentication.
pub const AUTHENTICATION: u8 = 51;
/// IPv6 extension header: destination options.
pub const DESTINATION_OPTIONS: u8 = 60;

/// VXLAN's port.
pub const PORT_VXLAN: u16 = 4789;
/// VXLAN's port before IANA assigned one; still Linux's default.
pub const PORT_VXLAN_OLD: u16 = 8472;
/// VXLAN-GPE's port.
pub const PORT_VXLAN_GPE: u16 = 4790;
/// TZSP's port.
pub const PORT_TZSP: u16 = 37_008;
/// The controller's port for CAPWAP's data.
pub const PORT_CAPWAP: u16 = 5247;
/// L2TP's port.
pub const PORT_L2TP: u16 = 1701;
/// Geneve's port.
pub const PORT_GENEVE: u16 = 6081;
/// GTP-C's port.
pub const PORT_GTP_CONTROL: u16 = 2123;
/// GTP-U's port.
pub const PORT_GTP_USER: u16 = 2152;
/// The port of MPLS in UDP (RFC 7510).
pub const PORT_MPLS: u16 = 6635;
/// The port of LISP's data (RFC 9300).
pub const PORT_LISP: u16 = 4341;
