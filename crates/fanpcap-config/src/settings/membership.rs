//! The group that a handle is to join, and how.

use crate::fanout::Fanout;
use crate::mode::{Mode, described};
use crate::steering::Steering;
use std::fmt;
use std::sync::Arc;

/// The group that a handle joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The group of this number.
    Number(u16),
    /// One that the kernel picks because nobody uses it (PCAP_FANOUT_NEW).
    New,
}

/// The application's own pcap_fanout().
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The group.
    pub group: Group,
    /// The mode or program, unless the call leaves it to the settings.
    pub fanout: Option<Fanout>,
}

/// The group that a handle joins, how, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The group.
    pub group: Group,
    /// The mode.
    pub mode: Mode,
    /// The program, where that is the mode.
    pub steering: Option<Arc<Steering>>,
    /// Where the group comes from: `PCAP_GROUP=7`, `/etc/pcap.conf:3`, `pcap_fanout()`.
    pub origin: String,
}

impl Membership {
    /// The mode as messages show it.
    pub fn shown_mode(&self) -> String {
        described(self.mode, self.steering.as_ref().map(|it| it.title()))
    }

    /// Why the group can't be joined, and who wanted it, unless that is the application.
    pub fn blame(&self, error: &dyn fmt::Display) -> String {
        match self.origin.as_str() {
            CALL => error.to_string(),
            origin => format!("{error} (set by {origin})"),
        }
    }
}

/// The origin of what the application asks for itself.
pub(super) const CALL: &str = "pcap_fanout()";
