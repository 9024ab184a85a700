//! What the analyzer doesn't take.

use std::fmt;

/// Why a batch was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is another cluster's.
    Cluster,
    /// The analyzer follows as many nodes or sessions as it can.
    Full,
    /// The batch came before.
    Again,
    /// It is too old to know whether it came before.
    Old,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "a batch of another cluster",
            Self::Full => "a batch of one session more than an analyzer can follow",
            Self::Again => "a batch that came before",
            Self::Old => "a batch that is too old",
        })
    }
}

impl std::error::Error for Refusal {}
