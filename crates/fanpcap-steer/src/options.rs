//! The options of a group that change its BPF program.

/// Options of a group. All members of the group have the same options.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupOptions {
    /// Number of flows that the BPF program remembers, so that these flows keep their member
    /// (`+sticky`).
    pub flows: Option<u32>,
    /// The buckets that may move to level the members' loads (`+balance`). If this is set, the BPF
    /// program counts the packets of each bucket.
    pub balance: Option<Balance>,
}

/// The buckets of a balanced group that may move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Balance {
    /// Buckets without live flows.
    Idle,
    /// All buckets, and the flows in them.
    All,
}

impl GroupOptions {
    /// The options of a sticky group that remembers `flows` flows.
    pub const fn sticky(flows: u32) -> Self {
        Self {
            flows: Some(flows),
            balance: None,
        }
    }

    /// The options of a balanced group.
    pub const fn balanced(balance: Balance) -> Self {
        Self {
            flows: None,
            balance: Some(balance),
        }
    }
}
