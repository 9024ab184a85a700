//! The paper's control message (DiCAP, Fig. 2): a type, a count of AVPs, and the AVPs.

use super::avp::Avp;

/// The maximum number of AVPs in a message, because the count has 8 bits.
pub(super) const AVPS: usize = 255;

/// Declares the types of messages with their numbers.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// The type of a message.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            /// All types.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

kinds! {
    /// A node wants to join the cluster.
    Join = 1,
    /// The coordinator accepts a node.
    Accept = 2,
    /// The nodes, and which node owns which buckets.
    TopologyUpdate = 3,
    /// A node is alive. The paper defines no message types with numbers from 16 on.
    Heartbeat = 16,
    /// The coordinator refuses a node.
    Refuse = 17,
    /// Names the active coordinator.
    Announce = 18,
    /// The receiver of a message asks its sender to prove that the message is not an old one.
    Challenge = 19,
    /// The sender has applied an operator's change, or captures by a topology.
    Acknowledge = 20,
    /// A node leaves.
    Leave = 21,
    /// The receiver must send its topology.
    Fetch = 22,
    /// The active coordinator is alive.
    Pulse = 23,
    /// The state that a standby needs to become the active coordinator.
    Synchronise = 24,
    /// A standby wants to become the active coordinator.
    Elect = 25,
    /// A change by the operator. Number 26 once stood for a node's counts: do not use it again.
    OperatorChange = 27,
    /// The operator asks for the cluster's status.
    Query = 28,
    /// The cluster's status.
    Status = 29,
    /// A standby is alive.
    Standby = 30,
}

impl Kind {
    fn of(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| *kind as u8 == number)
    }

    /// Whether a message of this type shows its sender's present state, and so replaces older
    /// messages of the type. Otherwise a delayed heartbeat could restore a node's old weight.
    pub(super) fn is_condition(self) -> bool {
        matches!(
            self,
            Self::Join | Self::Heartbeat | Self::Leave | Self::Accept | Self::Pulse
        )
    }
}

/// A control message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The message's type.
    pub kind: Kind,
    /// The message's contents: at most 255 AVPs.
    pub avps: Vec<Avp>,
}

impl Message {
    /// A message without AVPs.
    pub fn bare(kind: Kind) -> Self {
        let avps = Vec::new();
        Self { kind, avps }
    }

    /// Writes the message to `out`. Leaves out AVPs from the 256th on.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let avps = &self.avps[..self.avps.len().min(AVPS)];
        out.push(self.kind as u8);
        out.push(u8::try_from(avps.len()).unwrap_or(u8::MAX));
        avps.iter().for_each(|avp| avp.write(out));
    }

    /// Reads a message that fills `bytes`. `None` if the bytes are not a message of this version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[kind, count], avps) = bytes.split_first_chunk()?;
        let kind = Kind::of(kind)?;
        let is_whole = avps.len() == usize::from(count) * Avp::BYTES;
        is_whole.then(|| Self {
            kind,
            avps: Avp::read_all(avps).collect(),
        })
    }
}
