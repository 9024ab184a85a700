//! The columns of measures: libraries, applications, settings.

use serde::Deserialize;

use crate::libraries::Side;
use crate::reader::{Seat, Work};
use crate::verdict::Verdict;
use crate::wire::QUEUES;

/// What a measure compares with others. Only runs of the same round are compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Column {
    /// Name in JSON.
    pub(crate) key: &'static str,
    /// Name in the table.
    pub(crate) name: &'static str,
    /// Without these it can't be measured here.
    #[serde(default)]
    pub(crate) needs: Vec<Need>,
    /// Whether the measure makes sense without it: other projects' software may not work here.
    #[serde(default)]
    pub(crate) dispensable: bool,
    /// What receives the frames.
    #[serde(default)]
    pub(crate) receivers: Receivers,
    /// The library of readers, unless the key says it.
    pub(crate) side: Option<Side>,
    /// What readers do, if not the same as in other columns.
    pub(crate) work: Option<Work>,
    /// One reader for each; one alone if empty.
    #[serde(default)]
    pub(crate) seats: Vec<Seat>,
}

/// What may be missing on a machine.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Need {
    /// The device takes frames that a BPF program sends.
    LiveFrames,
    /// Each CPU of the bench has its receive queue.
    OwnQueues,
    /// Shares of a CPU.
    Quota,
    /// A program of a package.
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
    /// The generator is alone.
    Nothing,
    /// Links whose queues threads poll.
    Links(Vec<Layout>),
}

/// Where the threads that poll a link's queues run, and its readers. CPUs are those of the bench: 0
/// is the generator's, 1 is the reader's.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layout {
    /// The scheduler chooses. The link has so many readers.
    Unplaced(usize),
    /// pcap.conf says so of the threads (`napi@DEV.N`), taskset(1) of the readers.
    Placed {
        /// The CPU of the thread that polls the queue of each CPU's generator.
        threads: [usize; QUEUES],
        /// The CPU of each reader.
        readers: Vec<usize>,
    },
    /// `fanpcap tune DEV --threads` plans it. The link has one reader.
    Tuned,
}
