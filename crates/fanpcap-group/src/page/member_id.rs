//! What tells the members of a network namespace apart.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A member of a group: the inode of its packet socket, by which its page is named too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberId(u64);

impl MemberId {
    /// The member that has the socket of this inode.
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
