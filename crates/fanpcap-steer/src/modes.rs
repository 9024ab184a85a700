//! Fan-out modes that are steering programs: `flow`, and PF_RING's cluster types.
//!
//! If a packet lacks the property by which a mode steers, the mode steers by the Ethernet
//! addresses. If the frame has no Ethernet header, the mode selects the first member. So no mode
//! drops packets. PF_RING's `flow` and `inner_flow` also distinguish flows by VLAN and protocol. So
//! one flow of this crate may be several flows of PF_RING.

/// Mode and steering program, sorted by name.
pub const MODES: [(&str, &str); 10] = [
    ("flow", INNER_FLOW),
    (
        "flow_2_tuple",
        "main = par3 steer_p2p steer_link (steer_to 0)",
    ),
    (
        "flow_4_tuple",
        "main = par3 steer_flow steer_link (steer_to 0)",
    ),
    (
        "flow_5_tuple",
        "main = par3 steer_flow_5_tuple steer_link (steer_to 0)",
    ),
    (
        "flow_tcp_5_tuple",
        "main = par3 steer_flow_tcp_5_tuple steer_link (steer_to 0)",
    ),
    ("inner_flow", INNER_FLOW),
    (
        "inner_flow_2_tuple",
        "main = par3 (inner steer_p2p) steer_link (steer_to 0)",
    ),
    (
        "inner_flow_4_tuple",
        "main = par3 (inner steer_flow) steer_link (steer_to 0)",
    ),
    (
        "inner_flow_5_tuple",
        "main = par3 (inner steer_flow_5_tuple) steer_link (steer_to 0)",
    ),
    (
        "inner_flow_tcp_5_tuple",
        "main = par3 (inner steer_flow_tcp_5_tuple) steer_link (steer_to 0)",
    ),
];

const INNER_FLOW: &str = "main = par3 (inner steer_flow) steer_link (steer_to 0)";

/// The name of the first mode that has this steering program.
pub fn name_of(source: &str) -> Option<&'static str> {
    let found = MODES.iter().find(|(_, program)| *program == source);
    found.map(|(mode, _)| *mode)
}

/// The steering program of the mode with this lower-case name.
pub fn source(name: &str) -> Option<&'static str> {
    let found = MODES.iter().find(|(mode, _)| *mode == name);
    found.map(|(_, program)| *program)
}
