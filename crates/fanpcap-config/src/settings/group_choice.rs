//! The group that a handle joins, with its mode.

use crate::fanout::{Fanout, Script};
use crate::mode::{Mode, described};
use crate::report::Report;
use crate::source::Source;
use crate::steering::{PcapCompiler, Steering};
use std::fmt;
use std::sync::Arc;

/// The group that a handle joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// The group with this number.
    Number(u16),
    /// An unused group that the kernel or the poller picks (PCAP_FANOUT_NEW).
    New,
}

/// The application's call of pcap_fanout().
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FanoutCall {
    /// The group.
    pub group: Group,
    /// The mode or steering program; `None` if the settings choose it.
    pub fanout: Option<Fanout>,
}

/// The group that a handle joins, with its mode and origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupChoice {
    /// The group.
    pub group: Group,
    /// The mode.
    pub mode: Mode,
    /// The steering program; `None` if the mode is a kernel mode.
    pub steering: Option<Arc<Steering>>,
    /// The member's weight, from 1 to 1000: its share compared with the other members' shares.
    /// `None`: 1.
    pub weight: Option<u16>,
    /// The member's class, 0 to 63; 0 is the default class.
    pub class: u8,
    /// Whether no mode was given. If so, `mode` and `steering` are the defaults of a new group.
    pub is_default: bool,
    /// The origin of the group: `PCAP_GROUP=7`, `/etc/pcap.conf:3`, `pcap_fanout()`.
    pub origin: String,
    /// The member's name; `None` if it has no name. A later member of this name is the successor:
    /// it gets this member's buckets and ring.
    pub name: Option<String>,
}

impl GroupChoice {
    /// The same group with this mode.
    #[must_use]
    pub fn in_mode(&self, mode: Mode, steering: Option<Arc<Steering>>) -> Self {
        Self {
            mode,
            steering,
            is_default: false,
            ..self.clone()
        }
    }

    /// The private group of a handle that is on an engine other than packet sockets and asks for no
    /// group.
    ///
    /// # Errors
    /// None in practice: the steering program is ours, and compiles.
    pub fn alone_on_engine(origin: &str, pcap: PcapCompiler<'_>) -> Result<Self, Report> {
        let script = Script::of_text(Source::new("fanpcap", "main = steer_to 0"));
        let steering = Steering::compile_for_engine(&script, pcap)?;
        Ok(Self {
            group: Group::New,
            mode: script.mode(),
            steering: Some(Arc::new(steering)),
            weight: None,
            class: 0,
            is_default: false,
            origin: origin.to_owned(),
            name: None,
        })
    }

    /// Whether the group is on an engine other than packet sockets.
    pub fn is_on_engine(&self) -> bool {
        let steering = self.steering.as_ref();
        steering.is_some_and(|steering| steering.for_engine().is_some())
    }

    /// The mode for messages.
    pub fn shown_mode(&self) -> String {
        described(self.mode, self.steering.as_ref().map(|it| it.title()))
    }

    /// The message that says why the group can't be joined. The message names the origin of the
    /// group, unless the origin is the application's call.
    pub fn blame(&self, error: &dyn fmt::Display) -> String {
        match self.origin.as_str() {
            CALL => error.to_string(),
            origin => format!("{error} (set by {origin})"),
        }
    }
}

/// The origin of the application's own request.
pub(super) const CALL: &str = "pcap_fanout()";
