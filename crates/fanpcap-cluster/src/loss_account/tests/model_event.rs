//! Events in the model's cluster.

use proptest::prelude::*;

/// An event in the model's cluster.
#[derive(Clone, Copy, Debug)]
pub(super) enum ModelEvent {
    Join,
    /// A node's counters begin again at 0.
    Restart(u8),
    /// A node dies; its buckets go to another node.
    Die(u8),
    /// All buckets of a node go to another node, through a union.
    Move(u8, u8),
    Rest,
    /// A node sends no reports for a while, and continues to capture.
    Pause(u8),
    /// The analyzer does not hear a node for this many seconds. The coordinator hears the node.
    Unheard(u8, u8),
    /// A node's agent hangs for this many seconds: it neither reports nor follows topologies.
    Hang(u8, u8),
    /// A node's port delivers nothing for this many seconds.
    Blind(u8, u8),
    /// For this many seconds a node follows another coordinator than the other nodes do. Each
    /// coordinator gives all buckets to the nodes that it reaches.
    Fork(u8, u8),
}

impl ModelEvent {
    /// An event that concerns only a node's port or its reports.
    pub(super) fn of_ports() -> impl Strategy<Value = Self> {
        prop_oneof![
            Just(Self::Rest),
            any::<u8>().prop_map(Self::Pause),
            (any::<u8>(), 1..25_u8).prop_map(|(node, seconds)| Self::Blind(node, seconds)),
        ]
    }

    pub(super) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![
            Just(Self::Join),
            any::<u8>().prop_map(Self::Restart),
            any::<u8>().prop_map(Self::Die),
            any::<(u8, u8)>().prop_map(|(from, to)| Self::Move(from, to)),
            any::<(u8, u8)>().prop_map(|(from, to)| Self::Move(from, to)),
            Just(Self::Rest),
            any::<u8>().prop_map(Self::Pause),
            (any::<u8>(), 5..20_u8).prop_map(|(node, seconds)| Self::Unheard(node, seconds)),
            (any::<u8>(), 1..12_u8).prop_map(|(node, seconds)| Self::Hang(node, seconds)),
            (any::<u8>(), 1..8_u8).prop_map(|(node, seconds)| Self::Blind(node, seconds)),
            (any::<u8>(), 1..12_u8).prop_map(|(node, seconds)| Self::Fork(node, seconds)),
        ]
    }
}
