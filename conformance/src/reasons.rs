//! Intended differences from the system's library, each with its reason.

use crate::Variant;

/// Each entry has a behaviour, a variant, and the reason why the behaviour differs in this variant.
pub const REASONS: &[(&str, Variant, &str)] = &[
    (
        "filters/queued_direction",
        Variant::Tpacket,
        KNOWS_DIRECTION,
    ),
    ("filters/queued_direction", Variant::Group, KNOWS_DIRECTION),
    (
        "handles/own_fanout",
        Variant::Group,
        "the handle is a member already, so the kernel refuses to add its socket to a group",
    ),
    (
        "handles/two",
        Variant::Group,
        "both handles are members of one group, so each packet goes to only one of them",
    ),
    (
        "handles/unprivileged",
        Variant::Group,
        "the error also names the rights that joining a group needs",
    ),
    ("reading/longjump", Variant::Tpacket, LEFT_IS_READ),
    ("reading/longjump", Variant::Group, LEFT_IS_READ),
    ("contents/promisc", Variant::Xdp, FALLS_BACK),
    ("contents/stamp_types", Variant::Xdp, FALLS_BACK),
    ("contents/vlan_cut", Variant::Xdp, WHOLE_FRAME),
    (
        "filters/no_memory",
        Variant::Xdp,
        "the filter needs no memory of the socket: the kernel runs it before the packet is counted",
    ),
    ("filters/queued_direction", Variant::Xdp, KNOWS_DIRECTION),
    ("filters/queued_metadata", Variant::Xdp, SENT_TAGS),
    ("filters/too_long", Variant::Xdp, TOO_LONG_CUTS),
    (
        "handles/buffers",
        Variant::Xdp,
        "ring buffers have a minimum size, and devices without a driver cause warnings",
    ),
    ("handles/defaults", Variant::Xdp, FALLS_BACK),
    (
        "handles/many",
        Variant::Xdp,
        "a handle has more descriptors: for its rings, its device and its group",
    ),
    ("handles/open_live", Variant::Xdp, FALLS_BACK),
    ("handles/own_fanout", Variant::Xdp, NO_SOCKET),
    ("handles/setters", Variant::Xdp, FALLS_BACK),
    ("handles/sockets", Variant::Xdp, NO_SOCKET),
    ("reading/blocks", Variant::Xdp, NO_BLOCKS),
    ("reading/breakloop", Variant::Xdp, BROKEN_BEFORE),
    ("reading/longjump", Variant::Xdp, LEFT_IS_READ),
    ("reading/nonblock", Variant::Xdp, BROKEN_BEFORE),
    ("reading/selectable", Variant::Xdp, FIRST_READ),
    (
        "reading/stalled",
        Variant::Xdp,
        "ring buffers have a minimum size, which holds all of these packets",
    ),
    ("reading/timeouts", Variant::Xdp, NO_BLOCKS),
    ("contents/giant", Variant::Packet, ONCE_ON_LOOPBACK),
    ("contents/loopback", Variant::Packet, ONCE_ON_LOOPBACK),
    ("contents/promisc", Variant::Packet, PROMISCUOUS),
    ("contents/vlan_cut", Variant::Packet, WHOLE_FRAME),
    ("devices/down_up", Variant::Packet, STAYS_USABLE),
    ("devices/list", Variant::Packet, LISTED),
    ("filters/no_memory", Variant::Packet, WHEN_READ),
    ("filters/queued", Variant::Packet, WHEN_READ),
    ("filters/queued_direction", Variant::Packet, KNOWS_DIRECTION),
    ("filters/queued_half", Variant::Packet, WHEN_READ),
    ("filters/queued_metadata", Variant::Packet, WHEN_READ),
    ("filters/too_long", Variant::Packet, TOO_LONG_CUTS),
    ("handles/buffers", Variant::Packet, LEAST_POOL),
    ("handles/inject", Variant::Packet, SEES_OWN),
    ("handles/many", Variant::Packet, DESCRIPTORS),
    ("handles/own_fanout", Variant::Packet, NO_SOCKET),
    ("handles/protocol", Variant::Packet, ALL_PROTOCOLS),
    ("handles/setters", Variant::Packet, ALL_PROTOCOLS),
    ("handles/sockets", Variant::Packet, NO_SOCKET),
    ("handles/statistics", Variant::Packet, WHEN_READ),
    ("handles/unprivileged", Variant::Packet, NEEDS),
    ("reading/blocks", Variant::Packet, AS_SOON),
    ("reading/breakloop", Variant::Packet, BROKEN_BEFORE),
    ("reading/longjump", Variant::Packet, LEFT_IS_READ),
    ("reading/nonblock", Variant::Packet, BROKEN_BEFORE),
    ("reading/selectable", Variant::Packet, FIRST_READ),
    ("reading/stalled", Variant::Packet, LEAST_POOL),
    ("reading/timeouts", Variant::Packet, AS_SOON),
    ("contents/any", Variant::Afxdp, TAKEN),
    ("contents/direction", Variant::Afxdp, NO_SENT),
    ("contents/jumbo", Variant::Afxdp, LONG_FRAMES),
    ("contents/vlan", Variant::Afxdp, NO_SENT),
    ("contents/vlan_any", Variant::Afxdp, TAKEN),
    ("contents/vlan_cut", Variant::Afxdp, WHOLE_FRAME),
    ("devices/down_up", Variant::Afxdp, STAYS_USABLE),
    ("devices/list", Variant::Afxdp, LISTED),
    ("devices/renamed", Variant::Afxdp, TAKEN),
    ("files/dumped", Variant::Afxdp, TAKEN),
    ("filters/kernel_metadata", Variant::Afxdp, TAKEN),
    ("filters/matches", Variant::Afxdp, NO_SENT),
    ("filters/no_memory", Variant::Afxdp, WHEN_READ),
    ("filters/queued", Variant::Afxdp, WHEN_READ),
    ("filters/queued_cooked", Variant::Afxdp, TAKEN),
    ("filters/queued_direction", Variant::Afxdp, NO_SENT),
    ("filters/queued_half", Variant::Afxdp, WHEN_READ),
    ("filters/queued_metadata", Variant::Afxdp, WHEN_READ),
    ("filters/too_long", Variant::Afxdp, TOO_LONG_CUTS),
    ("handles/buffers", Variant::Afxdp, LEAST_POOL),
    ("handles/forked_twice", Variant::Afxdp, NO_SENT),
    ("handles/links", Variant::Afxdp, TAKEN),
    ("handles/many", Variant::Afxdp, DESCRIPTORS),
    ("handles/own_fanout", Variant::Afxdp, NO_SOCKET),
    ("handles/protocol", Variant::Afxdp, ALL_PROTOCOLS),
    ("handles/setters", Variant::Afxdp, ALL_PROTOCOLS),
    ("handles/sockets", Variant::Afxdp, NO_SOCKET),
    ("handles/statistics", Variant::Afxdp, WHEN_READ),
    ("handles/threads", Variant::Afxdp, NO_SENT),
    ("handles/unprivileged", Variant::Afxdp, NEEDS),
    ("reading/blocks", Variant::Afxdp, AS_SOON),
    ("reading/breakloop", Variant::Afxdp, BROKEN_BEFORE),
    ("reading/longjump", Variant::Afxdp, LEFT_IS_READ),
    ("reading/nested", Variant::Afxdp, NO_SENT),
    ("reading/nonblock", Variant::Afxdp, BROKEN_BEFORE),
    ("reading/nothing_passes", Variant::Afxdp, NO_SENT),
    ("reading/selectable", Variant::Afxdp, FIRST_READ),
    ("reading/stalled", Variant::Afxdp, LEAST_POOL),
    ("reading/timeouts", Variant::Afxdp, AS_SOON),
    ("contents/direction", Variant::Dpdk, DPDK_RECEIVED),
    ("contents/jumbo", Variant::Dpdk, DPDK_CUT),
    ("contents/promisc", Variant::Dpdk, PROMISCUOUS),
    ("contents/vlan", Variant::Dpdk, DPDK_TAGS),
    ("contents/vlan_cut", Variant::Dpdk, WHOLE_FRAME),
    ("devices/down_up", Variant::Dpdk, STAYS_USABLE),
    ("devices/list", Variant::Dpdk, LISTED),
    ("files/dumped", Variant::Dpdk, DPDK_LINKS),
    ("filters/kernel_metadata", Variant::Dpdk, DPDK_RECEIVED),
    ("filters/matches", Variant::Dpdk, DPDK_RECEIVED),
    ("filters/no_memory", Variant::Dpdk, WHEN_READ),
    ("filters/queued", Variant::Dpdk, WHEN_READ),
    ("filters/queued_direction", Variant::Dpdk, DPDK_RECEIVED),
    ("filters/queued_half", Variant::Dpdk, WHEN_READ),
    ("filters/queued_metadata", Variant::Dpdk, DPDK_RECEIVED),
    ("filters/too_long", Variant::Dpdk, TOO_LONG_CUTS),
    ("handles/buffers", Variant::Dpdk, LEAST_POOL),
    ("handles/inject", Variant::Dpdk, DPDK_SENDS),
    ("handles/links", Variant::Dpdk, DPDK_LINKS),
    ("handles/many", Variant::Dpdk, DESCRIPTORS),
    ("handles/not_up", Variant::Dpdk, DPDK_IS_UP),
    ("handles/own_fanout", Variant::Dpdk, NO_SOCKET),
    ("handles/protocol", Variant::Dpdk, ALL_PROTOCOLS),
    ("handles/setters", Variant::Dpdk, ALL_PROTOCOLS),
    ("handles/sockets", Variant::Dpdk, NO_SOCKET),
    ("handles/statistics", Variant::Dpdk, WHEN_READ),
    ("handles/unprivileged", Variant::Dpdk, NEEDS),
    ("reading/blocks", Variant::Dpdk, AS_SOON),
    ("reading/breakloop", Variant::Dpdk, BROKEN_BEFORE),
    ("reading/in_callback", Variant::Dpdk, DPDK_SENDS),
    ("reading/longjump", Variant::Dpdk, LEFT_IS_READ),
    ("reading/nested", Variant::Dpdk, DPDK_RECEIVED),
    ("reading/nonblock", Variant::Dpdk, BROKEN_BEFORE),
    ("reading/nothing_passes", Variant::Dpdk, DPDK_RECEIVED),
    ("reading/selectable", Variant::Dpdk, FIRST_READ),
    ("reading/stalled", Variant::Dpdk, LEAST_POOL),
    ("reading/timeouts", Variant::Dpdk, AS_SOON),
    ("contents/promisc", Variant::Pfring, COUNTED),
    ("contents/vlan", Variant::Pfring, STAND_IN_TAGS),
    ("contents/vlan_cut", Variant::Pfring, STAND_IN_TAGS),
    ("devices/down_up", Variant::Pfring, STAYS_USABLE),
    ("devices/renamed", Variant::Pfring, COUNTED),
    ("filters/kernel_metadata", Variant::Pfring, STAND_IN_TAGS),
    ("filters/matches", Variant::Pfring, STAND_IN_TAGS),
    ("filters/no_memory", Variant::Pfring, WHEN_READ),
    ("filters/queued", Variant::Pfring, WHEN_READ),
    ("filters/queued_direction", Variant::Pfring, WHEN_READ),
    ("filters/queued_half", Variant::Pfring, WHEN_READ),
    ("filters/queued_metadata", Variant::Pfring, STAND_IN_TAGS),
    ("filters/too_long", Variant::Pfring, TOO_LONG_CUTS),
    ("filters/truncating", Variant::Pfring, STAND_IN_TAGS),
    ("handles/buffers", Variant::Pfring, RING_OF_MODULE),
    ("handles/inject", Variant::Pfring, PFRING_SEES_OWN),
    ("handles/many", Variant::Pfring, PFRING_DESCRIPTORS),
    ("handles/own_fanout", Variant::Pfring, NO_SOCKET),
    ("handles/protocol", Variant::Pfring, PFRING_PROTOCOLS),
    ("handles/setters", Variant::Pfring, PFRING_PROTOCOLS),
    ("handles/sockets", Variant::Pfring, NO_SOCKET),
    ("handles/statistics", Variant::Pfring, COUNTED),
    ("handles/unprivileged", Variant::Pfring, PFRING_NEEDS),
    ("reading/blocks", Variant::Pfring, PFRING_AS_SOON),
    ("reading/breakloop", Variant::Pfring, BROKEN_BEFORE),
    ("reading/in_callback", Variant::Pfring, COUNTED),
    ("reading/longjump", Variant::Pfring, LEFT_IS_READ),
    ("reading/nonblock", Variant::Pfring, BROKEN_BEFORE),
    ("reading/selectable", Variant::Pfring, FIRST_READ),
    ("reading/stalled", Variant::Pfring, STAND_IN_ROOM),
    ("reading/timeouts", Variant::Pfring, PFRING_AS_SOON),
];

const KNOWS_DIRECTION: &str = "our library filters queued packets again as the kernel does; \
    the system's library doesn't know the direction of these packets, and loses them";
const LEFT_IS_READ: &str = "our library does not deliver a packet again whose callback left by \
    longjmp(); the system's library does";

const FALLS_BACK: &str = "on devices without a driver that receives, our library reads packet \
    sockets and warns";
const WHOLE_FRAME: &str = "our library cuts the frame with the tag in it, so the snapshot length \
    includes the tag; the system's library cuts before it puts the tag back";
const SENT_TAGS: &str = "for filters, the first tag of a sent packet is always beside the packet, \
    even if the sender put it into the frame; sent packets that the filter rejects count as \
    received, because the reader filters them";
const NO_SOCKET: &str = "pcap_fileno() is an epoll descriptor, not a socket, because packets come \
    by no socket";
const NO_BLOCKS: &str = "the rings have no blocks: packets can be read as soon as they arrive";
const BROKEN_BEFORE: &str = "a loop that was broken before the call delivers nothing; \
    the system's library delivers one packet first";

const TOO_LONG_CUTS: &str = "a filter that is too long for the kernel also cuts packets, as the \
    kernel would";
const FIRST_READ: &str = "the descriptor is readable once after activation: the first read does \
    work for the handle's group";

// Handles of pollers.
const ONCE_ON_LOOPBACK: &str = "a poller takes each packet of the loopback device once, so the \
    statistics count it once; the system's library counts it as sent and as received";
const LISTED: &str = "the list also has the devices that pollers serve";
const PROMISCUOUS: &str = "the poller makes the device promiscuous, too";
const STAYS_USABLE: &str = "the descriptor stays usable when the device goes down, so select() \
    needs no timeout";
const WHEN_READ: &str = "the reader runs filters when packets are read: packets count as received \
    until a filter rejects them, and only the newest filter decides about a packet";
const LEAST_POOL: &str = "pools have a minimum size, which is more than these rings have";
const SEES_OWN: &str = "the poller captures the packets that the handle sends, too";
const DESCRIPTORS: &str = "a handle has more descriptors: for its pool, its bell and its poller";
const ALL_PROTOCOLS: &str = "a poller captures all protocols, so a handle for one protocol is \
    refused";
const NEEDS: &str = "the error also names what a member of a poller needs";
const AS_SOON: &str = "packets can be read as soon as the poller has them";
const NO_SENT: &str = "AF_XDP does not capture packets that the host sends";
const LONG_FRAMES: &str = "AF_XDP captures no packets of more than 3840 bytes";
const TAKEN: &str = "the poller takes the packets from the host, so handles on other devices, such \
    as the any device, do not get them";

// Handles of DPDK's driver net_af_packet.
const DPDK_RECEIVED: &str = "the driver net_af_packet captures packets that the host sends as \
    received ones, and takes tags out of all packets";
const DPDK_TAGS: &str = "the driver net_af_packet takes the first tag out of a packet and does not \
    say its type, so it comes back as a tag of 802.1Q";
const DPDK_CUT: &str = "the driver net_af_packet cuts packets to the size of its buffers, and the \
    poller sends frames of members only with --send";
const DPDK_LINKS: &str = "a device of DPDK has no other link type than Ethernet";
const DPDK_SENDS: &str = "a device of DPDK has no interface by which the handle could send: the \
    poller sends frames of members with --send";
const DPDK_IS_UP: &str = "a device of DPDK has no interface that could be down";

// Handles of PF_RING, by the stand-in for its library.
const COUNTED: &str = "PF_RING counts packets as received when they are read";
const STAND_IN_TAGS: &str = "the stand-in for PF_RING's library does not put back the tags that \
    the kernel takes out of packets";
const STAND_IN_ROOM: &str = "the stand-in for PF_RING's library has room for all of these packets";
const RING_OF_MODULE: &str = "PF_RING's module sets the size of a ring, and the library warns that \
    it has not the size asked for";
const PFRING_SEES_OWN: &str = "PF_RING captures the packets that the handle sends, too";
const PFRING_DESCRIPTORS: &str = "a handle has more descriptors: those of PF_RING's ring";
const PFRING_PROTOCOLS: &str = "PF_RING captures all protocols, so a handle for one protocol is \
    refused";
const PFRING_NEEDS: &str = "the error also names what a handle needs";
const PFRING_AS_SOON: &str = "packets can be read as soon as PF_RING has them";

/// The reason why this behaviour differs in this variant; `None` if it must not differ.
pub fn reason(name: &str, variant: Variant) -> Option<&'static str> {
    let listed = REASONS
        .iter()
        .find(|(have, on, _)| *have == name && *on == variant);
    listed.map(|&(_, _, why)| why)
}

/// An error of a comparison: a difference without a reason, or a reason without a difference.
pub fn objection(name: &str, variant: Variant, difference: Option<&str>) -> Option<String> {
    let on = variant.name();
    match (difference, reason(name, variant)) {
        (Some(text), None) => Some(format!("{name} on {on}:\n{text}")),
        (None, Some(_)) => Some(format!("{name} on {on} no longer differs\n")),
        (Some(_), Some(_)) | (None, None) => None,
    }
}
