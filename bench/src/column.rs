//! The columns of measures. A column is a library, an application, or a set of settings.

use serde::Deserialize;

use crate::libraries::Side;
use crate::reader::{Seat, Work};
use crate::verdict::Verdict;
use crate::wire::QUEUES;

/// A column: a measure compares the runs of its columns, within the same round only.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    /// Name in JSON.
    pub(crate) key: &'static str,
    /// Name in the table.
    pub(crate) name: &'static str,
    /// What must be available for the column to be measured.
    #[serde(default)]
    pub(crate) needs: Vec<Need>,
    /// Whether the measure is useful without the column: other projects' software may not work
    /// here.
    #[serde(default)]
    pub(crate) dispensable: bool,
    /// What receives the frames.
    #[serde(default)]
    pub(crate) receivers: Receivers,
    /// The library of the readers; `None` if the column's key names the library.
    pub(crate) side: Option<Side>,
    /// What the readers do, if their work differs from that in the other columns.
    pub(crate) work: Option<Work>,
    /// A reader for each seat: its core and its group. Without seats, the column has a single
    /// reader.
    #[serde(default)]
    pub(crate) seats: Vec<Seat>,
}

impl Column {
    /// Whether the column needs another build of our library.
    pub(crate) fn is_of_other(&self) -> bool {
        self.needs.contains(&Need::Other)
    }
}

/// What may be missing on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Need {
    /// The device takes frames that a BPF program sends.
    LiveFrames,
    /// The user names another build of our library.
    Other,
    /// Each CPU of the bench has its own receive queue.
    OwnQueues,
    /// The command `fanpcap`, which runs pollers, is beside our library.
    Command,
    /// The plugin for DPDK is where that command finds it.
    DpdkPlugin,
    /// Processes can be limited to a share of a CPU.
    Quota,
    /// The program with the first name is installed. The second name is the program's package.
    Installed(&'static str, &'static str),
    /// testpmd starts on net_af_packet.
    TestpmdOnPacket,
    /// testpmd starts on net_af_xdp.
    TestpmdOnXdp,
}

/// What receives frames.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Receivers {
    /// Readers on the column's seats.
    #[default]
    Readers,
    /// A BPF program of the bench.
    Program(Verdict),
    /// No program receives the frames.
    Nothing,
    /// Links with queues that are polled by threads.
    Links(Vec<Layout>),
}

/// The CPUs of a link's readers, and of the threads that poll the link's queues. In these fields, 0
/// is the generator's CPU and 1 is the reader's.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layout {
    /// The scheduler chooses the CPUs. The link has this many readers.
    Unplaced(usize),
    /// pcap.conf places the threads (`napi@DEV.N`), and taskset(1) places the readers.
    Placed {
        /// For each CPU's generator, the CPU of the thread that polls the generator's queue.
        threads: [usize; QUEUES],
        /// The CPU of each reader.
        readers: Vec<usize>,
    },
    /// The plan of `fanpcap tune DEV --threads` chooses the CPUs. The link has one reader.
    Tuned,
}
