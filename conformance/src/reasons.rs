//! Intended differences from the system's library, each with its reason.

use crate::Variant;

/// Behaviour, variant, and why it differs there.
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
        "the handle is a member already: the kernel says so",
    ),
    (
        "handles/two",
        Variant::Group,
        "the two are members of one group: each packet goes to one",
    ),
    (
        "handles/unprivileged",
        Variant::Group,
        "the error goes on with what joining a group needs",
    ),
    ("reading/longjump", Variant::Tpacket, LEFT_IS_READ),
    ("reading/longjump", Variant::Group, LEFT_IS_READ),
    ("contents/promisc", Variant::Xdp, FALLS_BACK),
    ("contents/stamp_types", Variant::Xdp, FALLS_BACK),
    ("contents/vlan_cut", Variant::Xdp, WHOLE_FRAME),
    ("filters/kernel_metadata", Variant::Xdp, SENT_TAGS),
    ("filters/matches", Variant::Xdp, SENT_TAGS),
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
        "a filter that is too long for the kernel cuts packets too, as the kernel would have it",
    ),
    (
        "handles/buffers",
        Variant::Xdp,
        "ring buffers have a least size, and the warnings of devices without a driver are told",
    ),
    ("handles/defaults", Variant::Xdp, FALLS_BACK),
    (
        "handles/many",
        Variant::Xdp,
        "a handle has more descriptors: its rings, those of its device and of its group",
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
         the first read looks after the handle's group",
    ),
    (
        "reading/stalled",
        Variant::Xdp,
        "ring buffers have a least size, which holds all of these packets",
    ),
    ("reading/timeouts", Variant::Xdp, NO_BLOCKS),
];

const KNOWS_DIRECTION: &str = "packets that were queued are filtered again as the kernel does it; \
    the system's library doesn't know their direction there, and loses them";
const LEFT_IS_READ: &str = "a packet whose callback leaves by longjmp() has been read; \
    the system's library delivers it again";

const FALLS_BACK: &str = "packet sockets are read on devices without a driver that receives, \
    and a warning says so";
const WHOLE_FRAME: &str = "the tag is in the frame already when it is cut, and its length counts; \
    the system's library cuts before it puts the tag back";
const SENT_TAGS: &str = "filters see the first tag of a sent packet beside it too, whoever put it \
    there; they run on sent packets in the reader, and what they reject was received";
const NO_SOCKET: &str = "pcap_fileno() is an epoll descriptor, and no socket: packets do not come \
    by one";
const NO_BLOCKS: &str = "there are no blocks: packets can be read as soon as they are there";
const BROKEN_BEFORE: &str = "a loop that was broken before the call delivers nothing; \
    the system's library delivers one packet first";

/// Why this behaviour differs in this variant, if it may.
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
