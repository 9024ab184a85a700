//! Why a message between a node and an analyzer is not believed.

use std::fmt;

use crate::control::OpenError;
use crate::record::MessageError;

/// Why a message is not believed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// It is no message of this cluster, or cut off.
    Foreign = 0,
    /// It has no seal, and this side has a key.
    Unsealed = 1,
    /// It is sealed with a key that is not valid here, or this side has no key.
    Key = 2,
    /// Its seal is wrong: forged or changed.
    Seal = 3,
    /// It lacks the token: it was recorded, or its sender has no token yet.
    Stale = 4,
    /// It came before.
    Replay = 5,
    /// It is of a version that this side does not read.
    Version = 6,
}

impl Refusal {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Foreign,
        Self::Unsealed,
        Self::Key,
        Self::Seal,
        Self::Stale,
        Self::Replay,
        Self::Version,
    ];

    /// Its name in metrics and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Foreign => "foreign",
            Self::Unsealed => "unsealed",
            Self::Key => "key",
            Self::Seal => "seal",
            Self::Stale => "stale",
            Self::Replay => "replay",
            Self::Version => "version",
        }
    }

    /// Why a message with such a head is not believed.
    pub fn of_head(error: MessageError) -> Self {
        match error {
            MessageError::Version(_) => Self::Version,
            MessageError::Magic
            | MessageError::Kind(_)
            | MessageError::Length(_)
            | MessageError::Body => Self::Foreign,
        }
    }

    pub(super) fn of(error: OpenError) -> Self {
        match error {
            OpenError::Key => Self::Key,
            OpenError::Seal => Self::Seal,
            OpenError::Shape | OpenError::Cluster | OpenError::Role | OpenError::Frame(_) => {
                Self::Foreign
            }
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Foreign => "not a message of this cluster",
            Self::Unsealed => {
                "the message has no seal: give its sender the cluster's 'key_file' in cluster.conf"
            }
            Self::Key => {
                "the message is sealed with a key that is unknown here: compare 'key_file' in \
                 cluster.conf on both sides"
            }
            Self::Seal => "the seal of the message is wrong: it was forged or changed",
            Self::Stale => "the message lacks the token that the receiver gives",
            Self::Replay => "the message came before",
            Self::Version => {
                "the message is of another version of fanpcap: update the analyzers, then the nodes"
            }
        })
    }
}

impl std::error::Error for Refusal {}
