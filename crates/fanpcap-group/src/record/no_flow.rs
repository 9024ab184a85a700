//! Why a member began its group with mode `hash`, although `flow` is the default.

use std::fmt;

/// The reason, as a member page has it. It is a number, because any member may have written the
/// page: the readers' own words stand in their warnings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoFlow {
    /// The member may not load BPF programs.
    NotPermitted = 1,
    /// The device has no Ethernet frames, or the handle is on all devices.
    NotEthernet = 2,
    /// The kernel could not load `flow`.
    NotLoaded = 3,
}

impl NoFlow {
    /// Decodes the reason; `None` for a word that is none.
    pub(super) fn decode(word: u64) -> Option<Self> {
        let all = [Self::NotPermitted, Self::NotEthernet, Self::NotLoaded];
        all.into_iter().find(|reason| *reason as u64 == word)
    }
}

/// A phrase whose subject is the member.
impl fmt::Display for NoFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPermitted => "has no CAP_BPF for flow",
            Self::NotEthernet => "reads other frames than Ethernet",
            Self::NotLoaded => "could not load flow",
        })
    }
}
