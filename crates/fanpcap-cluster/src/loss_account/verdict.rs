//! The verdict on a node's port, by the other nodes' counts.

use std::fmt;

/// The verdict on a node's port, by the counts of other nodes in the last five minutes. The
/// variants are in order from the best port to the worst port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The port sees the same traffic as the other ports.
    Sound,
    /// The port lost this many of a million packets in the last five minutes.
    Lossy(u32),
    /// The port sees more packets than the other ports, perhaps each packet twice.
    Surplus,
    /// The port sees other traffic than the other ports: it may be the wrong port.
    Different,
    /// The port sees no packets while the others do, or it sees no beacon.
    Blind,
}

impl Verdict {
    /// Whether the account may use the node's counts.
    pub fn is_believed(self) -> bool {
        !matches!(self, Self::Different | Self::Surplus)
    }

    /// How many of a million packets the port loses, if it is lossy.
    pub fn lost_parts(self) -> u32 {
        match self {
            Self::Lossy(parts) => parts,
            Self::Sound | Self::Surplus | Self::Different | Self::Blind => 0,
        }
    }

    /// The verdict as one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Lossy(_) => "lossy",
            Self::Surplus => "surplus",
            Self::Different => "different",
            Self::Blind => "blind",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound => f.write_str("sound"),
            Self::Blind => f.write_str("blind: it sees no traffic, or no beacon"),
            Self::Lossy(parts) => write!(f, "its port loses {parts} of a million packets"),
            Self::Different => f.write_str("sees other traffic than other nodes: a wrong port?"),
            Self::Surplus => f.write_str("sees more packets than other nodes: mirrored twice?"),
        }
    }
}
