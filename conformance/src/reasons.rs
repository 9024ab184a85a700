//! Intended differences from the system's library, each with its reason.

use crate::Variant::{self, Afxdp, Dpdk, Group, Netmap, Packet, Pfring, Tpacket, Xdp, Zc};

/// The variants with a poller.
const POLLERS: &[Variant] = &[Packet, Afxdp, Dpdk, Netmap, Zc];
/// Those whose poller takes only the packets that the device receives.
const RECEIVERS: &[Variant] = &[Afxdp, Netmap, Zc];
/// Those whose packets come by no socket of the handle.
const ENGINES: &[Variant] = &[Xdp, Packet, Afxdp, Dpdk, Netmap, Zc, Pfring];
/// Those of them whose filters run in the reader.
const POLLED: &[Variant] = &[Packet, Afxdp, Dpdk, Netmap, Zc, Pfring];

/// Each entry has a behaviour, variants, and the reason why the behaviour differs in them.
pub const REASONS: &[(&str, &[Variant], &str)] = &[
    ("contents/any", &[Afxdp], TAKEN),
    ("contents/direction", RECEIVERS, NO_SENT),
    ("contents/direction", &[Dpdk], DPDK_RECEIVED),
    ("contents/giant", &[Packet], ONCE_ON_LOOPBACK),
    ("contents/jumbo", &[Afxdp], LONG_FRAMES),
    ("contents/jumbo", &[Dpdk], DPDK_CUT),
    ("contents/loopback", &[Packet], ONCE_ON_LOOPBACK),
    ("contents/promisc", &[Xdp], FALLS_BACK),
    ("contents/promisc", &[Packet, Dpdk, Netmap, Zc], PROMISCUOUS),
    ("contents/promisc", &[Pfring], COUNTED),
    ("contents/stamp_types", &[Xdp], FALLS_BACK),
    ("contents/stamps", &[Netmap, Zc], MICROSECONDS),
    ("contents/vlan", RECEIVERS, NO_SENT),
    ("contents/vlan", &[Dpdk], DPDK_TAGS),
    ("contents/vlan_any", &[Afxdp], TAKEN),
    ("contents/vlan_cut", ENGINES, WHOLE_FRAME),
    ("devices/down_up", POLLED, STAYS_USABLE),
    ("devices/list", POLLERS, LISTED),
    ("devices/renamed", &[Afxdp], TAKEN),
    ("devices/renamed", &[Pfring], COUNTED),
    ("files/dumped", &[Afxdp], TAKEN),
    ("files/dumped", &[Dpdk], DPDK_LINKS),
    ("filters/kernel_metadata", &[Afxdp], TAKEN),
    ("filters/kernel_metadata", &[Dpdk], DPDK_RECEIVED),
    ("filters/kernel_metadata", &[Netmap, Zc], NO_SENT),
    ("filters/kernel_metadata", &[Pfring], PFRING_SENT_TAGS),
    ("filters/matches", RECEIVERS, NO_SENT),
    ("filters/matches", &[Dpdk], DPDK_RECEIVED),
    ("filters/matches", &[Pfring], PFRING_SENT_TAGS),
    (
        "filters/no_memory",
        &[Xdp],
        "the filter needs no memory of the socket: the kernel runs it before the packet is counted",
    ),
    ("filters/no_memory", POLLED, WHEN_READ),
    ("filters/queued", POLLED, WHEN_READ),
    ("filters/queued_cooked", &[Afxdp], TAKEN),
    (
        "filters/queued_direction",
        &[Tpacket, Group, Xdp, Packet],
        KNOWS_DIRECTION,
    ),
    ("filters/queued_direction", RECEIVERS, NO_SENT),
    ("filters/queued_direction", &[Dpdk], DPDK_RECEIVED),
    ("filters/queued_direction", &[Pfring], WHEN_READ),
    ("filters/queued_half", POLLED, WHEN_READ),
    ("filters/queued_metadata", &[Xdp], SENT_TAGS),
    (
        "filters/queued_metadata",
        &[Packet, Afxdp, Netmap, Zc, Pfring],
        WHEN_READ,
    ),
    ("filters/queued_metadata", &[Dpdk], DPDK_RECEIVED),
    ("filters/too_long", ENGINES, TOO_LONG_CUTS),
    (
        "handles/buffers",
        &[Xdp],
        "ring buffers have a minimum size, and devices without a driver cause warnings",
    ),
    ("handles/buffers", POLLERS, LEAST_POOL),
    ("handles/buffers", &[Pfring], RING_OF_MODULE),
    ("handles/defaults", &[Xdp], FALLS_BACK),
    ("handles/forked_twice", RECEIVERS, NO_SENT),
    ("handles/inject", &[Packet], SEES_OWN),
    ("handles/inject", &[Dpdk], DPDK_SENDS),
    ("handles/inject", &[Pfring], PFRING_SEES_OWN),
    ("handles/links", &[Afxdp], TAKEN),
    ("handles/links", &[Dpdk], DPDK_LINKS),
    (
        "handles/many",
        &[Xdp],
        "a handle has more descriptors: for its rings, its device and its group",
    ),
    ("handles/many", POLLERS, DESCRIPTORS),
    ("handles/many", &[Pfring], PFRING_DESCRIPTORS),
    ("handles/not_up", &[Dpdk], DPDK_IS_UP),
    ("handles/open_live", &[Xdp], FALLS_BACK),
    (
        "handles/own_fanout",
        &[Group],
        "the handle is a member already, so the kernel refuses to add its socket to a group",
    ),
    ("handles/own_fanout", ENGINES, NO_SOCKET),
    ("handles/protocol", POLLERS, ALL_PROTOCOLS),
    ("handles/protocol", &[Pfring], PFRING_PROTOCOLS),
    ("handles/setters", &[Xdp], FALLS_BACK),
    ("handles/setters", POLLERS, ALL_PROTOCOLS),
    ("handles/setters", &[Pfring], PFRING_PROTOCOLS),
    ("handles/sockets", ENGINES, NO_SOCKET),
    ("handles/statistics", POLLERS, WHEN_READ),
    ("handles/statistics", &[Pfring], COUNTED),
    ("handles/threads", RECEIVERS, NO_SENT),
    (
        "handles/two",
        &[Group],
        "both handles are members of one group, so each packet goes to only one of them",
    ),
    (
        "handles/unprivileged",
        &[Group],
        "the error also names the rights that joining a group needs",
    ),
    ("handles/unprivileged", POLLERS, NEEDS),
    ("handles/unprivileged", &[Pfring], PFRING_NEEDS),
    ("reading/blocks", &[Xdp], NO_BLOCKS),
    ("reading/blocks", POLLERS, AS_SOON),
    ("reading/blocks", &[Pfring], PFRING_AS_SOON),
    ("reading/breakloop", ENGINES, BROKEN_BEFORE),
    ("reading/in_callback", &[Dpdk], DPDK_SENDS),
    ("reading/in_callback", &[Pfring], COUNTED),
    (
        "reading/longjump",
        &[Tpacket, Group, Xdp, Packet, Afxdp, Dpdk, Netmap, Zc, Pfring],
        LEFT_IS_READ,
    ),
    ("reading/nested", RECEIVERS, NO_SENT),
    ("reading/nested", &[Dpdk], DPDK_RECEIVED),
    ("reading/nonblock", ENGINES, BROKEN_BEFORE),
    ("reading/nothing_passes", RECEIVERS, NO_SENT),
    ("reading/nothing_passes", &[Dpdk], DPDK_RECEIVED),
    ("reading/selectable", ENGINES, FIRST_READ),
    (
        "reading/stalled",
        &[Xdp],
        "ring buffers have a minimum size, which holds all of these packets",
    ),
    ("reading/stalled", POLLERS, LEAST_POOL),
    ("reading/stalled", &[Pfring], STAND_IN_ROOM),
    ("reading/timeouts", &[Xdp], NO_BLOCKS),
    ("reading/timeouts", POLLERS, AS_SOON),
    ("reading/timeouts", &[Pfring], PFRING_AS_SOON),
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
const NO_SENT: &str = "the poller captures only packets that the device receives, not those that \
    the host sends";
const LONG_FRAMES: &str = "AF_XDP captures no packets of more than 3840 bytes";
const TAKEN: &str = "the poller takes the packets from the host, so handles on other devices, such \
    as the any device, do not get them";

const MICROSECONDS: &str = "netmap's rings and PF_RING's bursts have time stamps in microseconds";

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
const PFRING_SENT_TAGS: &str = "for filters, the first tag of a sent packet is always beside the \
    packet, even if the sender put it into the frame";
const STAND_IN_ROOM: &str = "the stand-in for PF_RING's library has room for all of these packets";
const RING_OF_MODULE: &str = "PF_RING's module sets the size of a ring, whatever the application \
    asks for";
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
        .find(|(have, on, _)| *have == name && on.contains(&variant));
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
