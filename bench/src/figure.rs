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
    /// The generator's CPU time for each frame: with it go the device and the kernel's receive path.
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

impl Figure {
    /// For people.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::LinkReceived => "link received",
            Self::InterfaceDropped => "interface dropped",
            Self::ApplicationReceived => "application received",
            Self::ApplicationDropped => "application dropped",
            Self::CapturedPps => "captured, packets/s",
            Self::CapturedShare => "captured, % of sent",
            Self::Handled => "handled by the program",
            Self::HandledPps => "handled, packets/s",
            Self::SentPps => "sent, frames/s",
            Self::ReaderNs => "reader CPU, ns/packet",
            Self::GeneratorNs => "generator and kernel CPU, ns/frame",
            Self::LatencyP50Us => "latency p50, us",
            Self::LatencyP99Us => "latency p99, us",
            Self::OpenUs => "open, us",
            Self::FirstUs => "open to first packet, us",
            Self::CloseUs => "close, us",
            Self::CompileUs => "compile, us",
            Self::LoadUs => "load, us",
            Self::CompileAndLoadMs => "compile and load, ms",
            Self::FirstProgramMs => "the first in a process, ms",
            Self::SizeMb => "size, MB",
        }
    }

    /// Which way is the better one; none for what is only told.
    pub(crate) fn direction(self) -> Option<&'static str> {
        match self {
            Self::Sent | Self::LinkReceived | Self::ApplicationReceived | Self::Handled => None,
            Self::CapturedPps | Self::CapturedShare | Self::HandledPps | Self::SentPps => {
                Some("higher is better")
            }
            Self::InterfaceDropped
            | Self::ApplicationDropped
            | Self::ReaderNs
            | Self::GeneratorNs
            | Self::LatencyP50Us
            | Self::LatencyP99Us
            | Self::OpenUs
            | Self::FirstUs
            | Self::CloseUs
            | Self::CompileUs
            | Self::LoadUs
            | Self::CompileAndLoadMs
            | Self::FirstProgramMs
            | Self::SizeMb => Some("lower is better"),
        }
    }

    /// Whether thousandths matter.
    pub(crate) fn is_fine(self) -> bool {
        self.digits() == 3
    }

    /// A value with as many digits as it deserves.
    pub(crate) fn format(self, value: f64) -> String {
        let digits = self.digits();
        format!("{value:.digits$}")
    }

    fn digits(self) -> usize {
        match self {
            Self::SizeMb | Self::CompileAndLoadMs | Self::FirstProgramMs => 3,
            Self::CapturedShare => 2,
            Self::ReaderNs => 1,
            Self::Sent
            | Self::LinkReceived
            | Self::InterfaceDropped
            | Self::ApplicationReceived
            | Self::ApplicationDropped
            | Self::CapturedPps
            | Self::Handled
            | Self::HandledPps
            | Self::SentPps
            | Self::GeneratorNs
            | Self::LatencyP50Us
            | Self::LatencyP99Us
            | Self::OpenUs
            | Self::FirstUs
            | Self::CloseUs
            | Self::CompileUs
            | Self::LoadUs => 0,
        }
    }
}
