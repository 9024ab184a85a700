//! The paper's control message (DiCAP, Fig. 2): a type, a count, and so many AVPs.

use super::avp::Avp;

/// Most AVPs of a message: its count has 8 bits.
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
    /// The coordinator takes a node in.
    Accept = 2,
    /// The nodes, and which node captures which packets.
    TopologyUpdate = 3,
    /// A node is alive. From here on the types are not the paper's.
    Heartbeat = 16,
    /// The coordinator does not take a node in.
    Refuse = 17,
    /// Names the active coordinator.
    Announce = 18,
    /// The sender of a message must show that the message is not an old one.
    Challenge = 19,
    /// The sender has received a message or a topology.
    Acknowledge = 20,
    /// A node leaves.
    Leave = 21,
    /// The receiver is to send its topology.
    Fetch = 22,
    /// The active coordinator is alive.
    Pulse = 23,
    /// The state that a standby needs to become the active coordinator.
    Synchronise = 24,
    /// A standby wants to become the active coordinator.
    Elect = 25,
    /// A change by the operator. Number 26 was a node's counts, which go to analyzers now.
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

    /// Whether it describes its sender's present state, so that a later message replaces it. The
    /// window of sequence numbers alone would accept a delayed heartbeat with an old weight.
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
    /// Its type.
    pub kind: Kind,
    /// Its contents: at most 255 AVPs.
    pub avps: Vec<Avp>,
}

impl Message {
    /// A message without AVPs.
    pub fn bare(kind: Kind) -> Self {
        let avps = Vec::new();
        Self { kind, avps }
    }

    /// Writes the message to `out`. AVPs from the 256th on are left out.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let avps = &self.avps[..self.avps.len().min(AVPS)];
        out.push(self.kind as u8);
        out.push(u8::try_from(avps.len()).unwrap_or(u8::MAX));
        avps.iter().for_each(|avp| avp.write(out));
    }

    /// Reads a message that is all of `bytes`; `None`: they are no message of this version.
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
