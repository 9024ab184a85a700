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
];

const KNOWS_DIRECTION: &str = "packets that were queued are filtered again as the kernel does it; \
    the system's library doesn't know their direction there, and loses them";
const LEFT_IS_READ: &str = "a packet whose callback leaves by longjmp() has been read; \
    the system's library delivers it again";

/// Why this behaviour differs in this variant, if it may.
pub fn reason(name: &str, variant: Variant) -> Option<&'static str> {
    let listed = REASONS
        .iter()
        .find(|(have, on, _)| *have == name && *on == variant);
    listed.map(|&(_, _, why)| why)
}

/// What is wrong with a comparison: a difference without a reason, or a reason without a
/// difference.
pub fn objection(name: &str, variant: Variant, difference: Option<&str>) -> Option<String> {
    let on = variant.name();
    match (difference, reason(name, variant)) {
        (Some(text), None) => Some(format!("{name} on {on}:\n{text}")),
        (None, Some(_)) => Some(format!("{name} on {on} no longer differs\n")),
        (Some(_), Some(_)) | (None, None) => None,
    }
}
