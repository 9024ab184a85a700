//! The figures of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The figures of one run.
pub(crate) type Sample = BTreeMap<Figure, f64>;

/// Kinds of figures, in printing order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// Frames that the generator sent.
    Sent,
    /// Frames that the reader's device counted.
    LinkReceived,
    /// Frames that the device counted as dropped.
    InterfaceDropped,
    /// Packets that reached the callback.
    ApplicationReceived,
    /// `ps_drop`.
    ApplicationDropped,
    /// Packets that reached the callback, per second of sending; for a BPF program without a
    /// reader, the frames that the program received.
    CapturedPps,
    /// Captured packets as a percentage of the frames sent.
    CapturedShare,
    /// Frames that were sent and whose header the analyzer has not counted, in percent of the
    /// frames sent.
    LostShare,
    /// Packets that the application has handled, by its own count.
    Handled,
    /// Handled packets per second of sending.
    HandledPps,
    /// Frames that the generator sent, per second of sending.
    SentPps,
    /// The reader's CPU time per captured packet.
    ReaderNs,
    /// The generator's CPU time per frame, which includes the device and the kernel's receive path.
    GeneratorNs,
    /// CPU time of the threads that poll the devices, per captured packet.
    PollingNs,
    /// The poller's CPU time per captured packet.
    PollerNs,
    /// The CPU time of a poller that gets no packets, in percent of a CPU.
    IdleShare,
    /// The packets of the first link that reached the callback, per second of sending.
    FirstLinkPps,
    /// The packets of the second link that reached the callback, per second of sending.
    SecondLinkPps,
    /// Median age of single packets in the callback.
    LatencyP50Us,
    /// The 99th percentile of the age of single packets in the callback.
    LatencyP99Us,
    /// The greatest age of single packets in the callback.
    LatencyMaxUs,
    /// Time to open a handle, including the time to set its filter.
    OpenUs,
    /// Time from the start of opening to the first packet.
    FirstUs,
    /// Time of `pcap_close`.
    CloseUs,
    /// The sum of `OpenUs` and `CloseUs`.
    OpenCloseUs,
    /// Memory of a process as ps(1) shows it (RSS): pages that are mapped twice count twice.
    RssMb,
    /// A process's share of memory (PSS): a page counts once, divided by the number of mappings.
    PssMb,
    /// `RssMb` divided by `PssMb`.
    ResidentByShare,
    /// Memory of the BPF maps that a process has open.
    MapsMb,
    /// Time from a steering program's text to the BPF programs.
    CompileUs,
    /// Time from the BPF programs until the kernel has loaded them.
    LoadUs,
    /// The sum of `CompileUs` and `LoadUs`.
    CompileAndLoadMs,
    /// The sum of `CompileUs` and `LoadUs` for the first steering program of a process.
    FirstProgramMs,
    /// Flows that a join moved, in percent.
    JoinMoved,
    /// Flows that the death of a member moved, in percent.
    DeathMoved,
    /// The share of the other members' flows that the death moved, in percent.
    SurvivorsMoved,
    /// Frames that no member has got.
    Lost,
    /// Time from a member's death to the first packet of its flows at another member.
    ServedMs,
    /// Size of the library's file.
    SizeMb,
    /// The packets by which parts of a histogram exceed the average part, in percent of all
    /// packets.
    OutsideUniform,
    /// How far the busiest node is above its share, in percent.
    Imbalance,
}

/// Which values are better. `None`: the figure is only for information.
const TOLD: Option<&str> = None;
const HIGHER: Option<&str> = Some("higher is better");
const LOWER: Option<&str> = Some("lower is better");

impl Figure {
    /// The name, the better direction, and the number of decimals.
    fn told(self) -> (&'static str, Option<&'static str>, usize) {
        match self {
            Self::Sent => ("sent", TOLD, 0),
            Self::LinkReceived => ("link received", TOLD, 0),
            Self::InterfaceDropped => ("interface dropped", LOWER, 0),
            Self::ApplicationReceived => ("application received", TOLD, 0),
            Self::ApplicationDropped => ("application dropped", LOWER, 0),
            Self::CapturedPps => ("captured, packets/s", HIGHER, 0),
            Self::CapturedShare => ("captured, % of sent", HIGHER, 2),
            Self::LostShare => ("lost, % of sent", LOWER, 2),
            Self::Handled => ("handled by the program", TOLD, 0),
            Self::HandledPps => ("handled, packets/s", HIGHER, 0),
            Self::SentPps => ("sent, frames/s", HIGHER, 0),
            Self::ReaderNs => ("reader CPU, ns/packet", LOWER, 1),
            Self::GeneratorNs => ("generator and kernel CPU, ns/frame", LOWER, 0),
            Self::PollingNs => ("polling threads' CPU, ns/packet", LOWER, 0),
            Self::PollerNs => ("poller's CPU, ns/packet", LOWER, 1),
            Self::IdleShare => ("CPU of an idle poller, %", LOWER, 2),
            Self::FirstLinkPps => ("captured of link 1, packets/s", HIGHER, 0),
            Self::SecondLinkPps => ("captured of link 2, packets/s", HIGHER, 0),
            Self::LatencyP50Us => ("latency p50, us", LOWER, 0),
            Self::LatencyP99Us => ("latency p99, us", LOWER, 0),
            Self::LatencyMaxUs => ("latency max, us", LOWER, 0),
            Self::OpenUs => ("open, us", LOWER, 0),
            Self::FirstUs => ("open to first packet, us", LOWER, 0),
            Self::CloseUs => ("close, us", LOWER, 0),
            Self::OpenCloseUs => ("open and close, us", LOWER, 0),
            Self::RssMb => ("memory that ps shows (RSS), MB", LOWER, 1),
            Self::PssMb => ("share of memory (PSS), MB", LOWER, 1),
            Self::ResidentByShare => ("RSS, ratio to PSS", LOWER, 2),
            Self::MapsMb => ("its open BPF maps, MB", LOWER, 1),
            Self::CompileUs => ("compile, us", LOWER, 0),
            Self::LoadUs => ("load, us", LOWER, 0),
            Self::CompileAndLoadMs => ("compile and load, ms", LOWER, 3),
            Self::FirstProgramMs => ("the first in a process, ms", LOWER, 3),
            Self::JoinMoved => ("flows moved by a join, %", LOWER, 2),
            Self::DeathMoved => ("flows moved by kill -9, %", TOLD, 2),
            Self::SurvivorsMoved => ("survivors' flows moved by it, %", LOWER, 2),
            Self::Lost => ("packets lost", LOWER, 0),
            Self::ServedMs => ("its flows at others after, ms", LOWER, 1),
            Self::SizeMb => ("size, MB", LOWER, 3),
            Self::OutsideUniform => ("outside of uniform, %", LOWER, 2),
            Self::Imbalance => ("busiest node above its share, %", LOWER, 2),
        }
    }

    /// The name in the table.
    pub(crate) fn name(self) -> &'static str {
        self.told().0
    }

    /// Which values are better; `None` if the figure is only for information.
    pub(crate) fn direction(self) -> Option<&'static str> {
        self.told().1
    }

    /// Number of decimals.
    pub(crate) fn digits(self) -> usize {
        self.told().2
    }
}
