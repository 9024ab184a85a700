//! One source of a merge: a capture whose packets are sorted within a window.

use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::interface::Interface;
use crate::reader::{Next, Packet, Reader};

/// Maximum packets of one source in the window.
const WINDOW_PACKETS: usize = 4096;

/// If the packets in the window have at least this many bytes, no further packet is read into it.
const WINDOW_BYTES: usize = 4 << 20;

/// A capture that is being read.
pub(crate) struct Source {
    path: PathBuf,
    /// Number of the source in the given order.
    number: usize,
    reader: Reader,
    window: BinaryHeap<Held>,
    bytes: usize,
    packets: u64,
    ended: bool,
    cut: bool,
}

/// A packet with its position in the file, which decides the order if timestamps are equal.
struct Held(Packet, u64);

// The heap pops its greatest element, which must be the earliest packet.
impl Ord for Held {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0.stamp, other.1).cmp(&(self.0.stamp, self.1))
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}

impl Source {
    /// Opens a capture and fills its window, so that most interfaces are known. `None` if the file
    /// ends within its header.
    ///
    /// # Errors
    /// The file can't be read, or is not a capture.
    pub(crate) fn open(path: &Path, number: usize) -> Result<Option<Self>> {
        let opened = Reader::open(path).with_context(|| place(path))?;
        let Some(reader) = opened else {
            return Ok(None);
        };
        let mut source = Self {
            path: path.to_owned(),
            number,
            reader,
            window: BinaryHeap::new(),
            bytes: 0,
            packets: 0,
            ended: false,
            cut: false,
        };
        source.fill()?;
        Ok(Some(source))
    }

    /// Number of the source in the given order.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// The interfaces described so far.
    pub(crate) fn interfaces(&self) -> &[Interface] {
        self.reader.interfaces()
    }

    /// Whether the capture turned out to be cut.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Timestamp of the next packet.
    pub(crate) fn stamp(&self) -> Option<u64> {
        self.window.peek().map(|held| held.0.stamp)
    }

    /// Removes and returns the next packet.
    ///
    /// # Errors
    /// The next packets of the file can't be read.
    pub(crate) fn take(&mut self) -> Result<Option<Packet>> {
        let Some(Held(packet, _)) = self.window.pop() else {
            return Ok(None);
        };
        self.bytes -= packet.data.len();
        self.fill()?;
        Ok(Some(packet))
    }

    fn fill(&mut self) -> Result<()> {
        let full =
            |source: &Self| source.window.len() >= WINDOW_PACKETS || source.bytes >= WINDOW_BYTES;
        while !self.ended && !full(self) {
            match self.reader.next().with_context(|| place(&self.path))? {
                Next::Packet(packet) => {
                    self.bytes += packet.data.len();
                    self.window.push(Held(packet, self.packets));
                    self.packets += 1;
                }
                Next::End => self.ended = true,
                Next::Cut => (self.ended, self.cut) = (true, true),
            }
        }
        Ok(())
    }
}

fn place(path: &Path) -> String {
    format!("merging {}", path.display())
}
