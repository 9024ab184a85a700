//! Replay: the packets of a capture file as pools, once or in loops. Each loop may have other
//! addresses.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::device::Device;
use crate::pool::Pool;
use crate::record::{Record, Records};
use crate::rewrite::move_addresses;

/// A replayed file, pool by pool.
pub struct Replay {
    path: PathBuf,
    loops: Option<u32>,
    moving: bool,
    records: Records,
    limit: Option<Limit>,
    faults: Faults,
    turn: u32,
    /// A packet that was read ahead, for the next pool.
    ahead: Option<Record>,
    /// Packets read in this loop so far, including those left out.
    number: u64,
    /// Packets read in this loop so far, without those left out.
    packets: u64,
    first: u64,
    last: u64,
}

/// The length limit for a file's packets.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The device with the limit.
    pub device: Device,
    /// Whether longer packets are left out. If false, a longer packet is an error.
    pub skip: bool,
}

/// Defects of a replayed file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Packets of which the file has only the first bytes. These bytes are sent.
    pub shortened: u64,
    /// Packets that were left out because the device does not accept their length.
    pub skipped: u64,
    /// Whether the file ends within a packet. This packet is left out.
    pub cut: bool,
}

impl Pool {
    /// All packets of a file, pcap or pcapng, byte for byte; `None` if they need more than
    /// [`crate::POOL_LIMIT`].
    ///
    /// # Errors
    /// The file can't be read, or has packets that can't be sent.
    pub fn replay(path: &Path, limit: Option<&Limit>) -> Result<Option<(Self, Faults)>> {
        let mut pool = Pool::default();
        let mut faults = Faults::default();
        let mut before = None;
        let mut records = Records::open(path)?;
        let mut number = 0;
        for record in records.by_ref() {
            number += 1;
            let Some(record) = checked(record?, path, number, limit, &mut faults)? else {
                continue;
            };
            let gap = record.time.saturating_sub(before.unwrap_or(record.time));
            before = Some(record.time);
            if pool.push_captured(&record.bytes, gap).is_err() {
                return Ok(None);
            }
        }
        faults.cut = records.is_cut();
        ensure!(!pool.is_empty(), "{}: no packets", path.display());
        Ok(Some((pool.of_captured(None), faults)))
    }
}

/// Returns `record`, the file's packet number `packet`, or `None` if the packet is left out.
fn checked(
    record: Record,
    path: &Path,
    packet: u64,
    limit: Option<&Limit>,
    faults: &mut Faults,
) -> Result<Option<Record>> {
    let len = record.bytes.len();
    let path = path.display();
    ensure!(
        len >= SHORTEST,
        "{path}: packet {packet} is shorter than an Ethernet header"
    );
    if let Some(limit) = limit {
        let most = limit.device.longest(&record.bytes);
        if len > most && limit.skip {
            faults.skipped += 1;
            return Ok(None);
        }
        ensure!(
            len <= most,
            "{path}: packet {packet} has {len} bytes, the device takes {most} at most; raise its MTU, or \
             leave out such packets with --skip-long"
        );
    }
    faults.shortened += u64::from(record.is_shortened());
    Ok(Some(record))
}

impl Replay {
    /// Opens a file for a number of loops; `None` means endless loops. With `moving`, each loop
    /// after the first has other addresses, see [`move_addresses`].
    ///
    /// # Errors
    /// The file can't be read, or has packets that can't be sent.
    pub fn open(
        path: &Path,
        loops: Option<u32>,
        moving: bool,
        limit: Option<Limit>,
    ) -> Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            loops,
            moving,
            records: Records::open(path)?,
            limit,
            faults: Faults::default(),
            turn: 0,
            ahead: None,
            number: 0,
            packets: 0,
            first: 0,
            last: 0,
        })
    }

    /// The next packets, up to 16 MiB; `None` after the last loop.
    ///
    /// # Errors
    /// The file can't be read, or has packets that can't be sent.
    pub fn next_pool(&mut self) -> Result<Option<Pool>> {
        let mut pool = Pool::default();
        let mut gap = 0;
        while pool.used() < CHUNK {
            let Some((record, time)) = self.next_record()? else {
                break;
            };
            let pushed = pool.push_captured(&record.bytes, gap);
            let (path, len) = (self.path.display(), record.bytes.len());
            ensure!(pushed.is_ok(), "{path}: a packet of {len} bytes");
            gap = time;
        }
        Ok((!pool.is_empty()).then(|| pool.of_captured(Some(gap))))
    }

    /// The next packet, of this loop or of the next loop, and the time until the packet after it.
    fn next_record(&mut self) -> Result<Option<(Record, u64)>> {
        let record = match self.ahead.take() {
            Some(record) => record,
            None => match self.read()? {
                Some(record) => record,
                None => return Ok(None),
            },
        };
        self.ahead = self.taken()?;
        if let Some(next) = &self.ahead {
            let gap = next.time.saturating_sub(record.time);
            return Ok(Some((record, gap)));
        }
        let span = self.last.saturating_sub(self.first);
        let average = span
            .checked_div(self.packets.saturating_sub(1))
            .unwrap_or(0);
        self.turn = self.turn.saturating_add(1);
        if self.loops.is_none_or(|loops| self.turn < loops) {
            self.records = Records::open(&self.path)?;
            (self.number, self.packets) = (0, 0);
        }
        Ok(Some((record, average)))
    }

    /// The first packet of a loop; `None` after the last loop.
    fn read(&mut self) -> Result<Option<Record>> {
        if self.loops.is_some_and(|loops| self.turn >= loops) {
            return Ok(None);
        }
        let record = self.taken()?;
        ensure!(record.is_some(), "{}: no packets", self.path.display());
        Ok(record)
    }

    /// The next packet of this loop that is not left out, with its addresses moved.
    fn taken(&mut self) -> Result<Option<Record>> {
        for record in self.records.by_ref() {
            self.number += 1;
            let limit = self.limit.as_ref();
            let record = checked(record?, &self.path, self.number, limit, &mut self.faults)?;
            let Some(mut record) = record else {
                continue;
            };
            if self.packets == 0 {
                self.first = record.time;
            }
            self.last = record.time;
            self.packets += 1;
            if self.moving && self.turn > 0 {
                move_addresses(&mut record.bytes, self.turn);
            }
            return Ok(Some(record));
        }
        self.faults.cut |= self.records.is_cut();
        Ok(None)
    }

    /// Defects found in the file so far, over all loops.
    pub fn faults(&self) -> Faults {
        self.faults
    }
}

/// Length of an Ethernet header. A device accepts no shorter frame.
const SHORTEST: usize = 14;

/// Size in bytes of each pool of a replay. The sender pauses while a pool is read, so pools must be
/// small.
const CHUNK: usize = 16 << 20;
