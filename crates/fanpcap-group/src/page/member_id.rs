//! The identity of a member within a network namespace.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A member of a group, identified by the inode of its packet socket. The name of its page also has
/// the inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(u64);

impl MemberId {
    /// The member whose socket has this inode.
    pub fn of_socket(inode: u64) -> Self {
        Self(inode)
    }

    /// The inode of the member's socket.
    pub fn socket(self) -> u64 {
        self.0
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for MemberId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}
