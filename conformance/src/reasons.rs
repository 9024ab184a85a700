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
    (
        "filters/too_long",
        Variant::Xdp,
        "a filter that is too long for the kernel also cuts packets, as the kernel would",
    ),
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
    (
        "reading/selectable",
        Variant::Xdp,
        "the descriptor is readable once after activation: \
         the first read does work for the handle's group",
    ),
    (
        "reading/stalled",
        Variant::Xdp,
        "ring buffers have a minimum size, which holds all of these packets",
    ),
    ("reading/timeouts", Variant::Xdp, NO_BLOCKS),
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
