//! What a run tells in numbers.

use std::collections::BTreeMap;

use serde::Serialize;

/// One run's figures.
pub(crate) type Sample = BTreeMap<Figure, f64>;

/// Their kinds, in the order in which they are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// Frames that the generator sent.
    Sent,
    /// Frames that the reader's device counted.
    LinkReceived,
    /// Frames that it counted as dropped.
    InterfaceDropped,
    /// Packets that reached the callback.
    ApplicationReceived,
    /// `ps_drop`.
    ApplicationDropped,
    /// Packets that reached the callback, per second of sending.
    CapturedPps,
    /// The same as a share of what was sent, in hundredths.
    CapturedShare,
    /// Packets that the program itself says it has handled.
    Handled,
    /// The same, per second of sending.
    HandledPps,
    /// Frames that the generator sent, per second of sending.
    SentPps,
    /// The reader's CPU time for each of them.
    ReaderNs,
    /// The generator's CPU time for each frame: with it go the device and the kernel's receive
    /// path.
    GeneratorNs,
    /// Age of a single packet in the callback.
    LatencyP50Us,
    /// The same, of the slowest hundredth.
    LatencyP99Us,
    /// `pcap_open_live`, with the filter if there is one.
    OpenUs,
    /// The same, up to the first packet.
    FirstUs,
    /// `pcap_close`.
    CloseUs,
    /// From a program's text to what the kernel is given.
    CompileUs,
    /// From there to what the kernel has taken.
    LoadUs,
    /// Both.
    CompileAndLoadMs,
    /// Both, the first time in a process.
    FirstProgramMs,
    /// The library's file.
    SizeMb,
}

/// Which way is the better one; what is only told has none.
const TOLD: Option<&str> = None;
const HIGHER: Option<&str> = Some("higher is better");
const LOWER: Option<&str> = Some("lower is better");

impl Figure {
    /// Its name for people, its better direction, and as many digits behind the point as it
    /// deserves.
    fn told(self) -> (&'static str, Option<&'static str>, usize) {
        match self {
            Self::Sent => ("sent", TOLD, 0),
            Self::LinkReceived => ("link received", TOLD, 0),
            Self::InterfaceDropped => ("interface dropped", LOWER, 0),
            Self::ApplicationReceived => ("application received", TOLD, 0),
            Self::ApplicationDropped => ("application dropped", LOWER, 0),
            Self::CapturedPps => ("captured, packets/s", HIGHER, 0),
            Self::CapturedShare => ("captured, % of sent", HIGHER, 2),
            Self::Handled => ("handled by the program", TOLD, 0),
            Self::HandledPps => ("handled, packets/s", HIGHER, 0),
            Self::SentPps => ("sent, frames/s", HIGHER, 0),
            Self::ReaderNs => ("reader CPU, ns/packet", LOWER, 1),
            Self::GeneratorNs => ("generator and kernel CPU, ns/frame", LOWER, 0),
            Self::LatencyP50Us => ("latency p50, us", LOWER, 0),
            Self::LatencyP99Us => ("latency p99, us", LOWER, 0),
            Self::OpenUs => ("open, us", LOWER, 0),
            Self::FirstUs => ("open to first packet, us", LOWER, 0),
            Self::CloseUs => ("close, us", LOWER, 0),
            Self::CompileUs => ("compile, us", LOWER, 0),
            Self::LoadUs => ("load, us", LOWER, 0),
            Self::CompileAndLoadMs => ("compile and load, ms", LOWER, 3),
            Self::FirstProgramMs => ("the first in a process, ms", LOWER, 3),
            Self::SizeMb => ("size, MB", LOWER, 3),
        }
    }

    /// For people.
    pub(crate) fn name(self) -> &'static str {
        self.told().0
    }

    /// Which way is the better one; none for what is only told.
    pub(crate) fn direction(self) -> Option<&'static str> {
        self.told().1
    }

    /// Whether thousandths matter.
    pub(crate) fn is_fine(self) -> bool {
        self.told().2 == 3
    }

    /// A value with as many digits as it deserves.
    pub(crate) fn format(self, value: f64) -> String {
        let digits = self.told().2;
        format!("{value:.digits$}")
    }
}
