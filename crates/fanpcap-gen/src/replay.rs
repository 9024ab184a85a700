//! Replay: the packets of a capture file as pools, once or in loops, as they are or moved to other
//! addresses in each loop.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::device::Device;
use crate::pool::{Captured, Pool};
use crate::record::{Record, Records};
use crate::rewrite::move_addresses;

/// A file that is replayed, pool by pool.
#[derive(Debug)]
pub struct Replay {
    path: PathBuf,
    loops: Option<u32>,
    moving: bool,
    records: Records,
    limit: Option<Limit>,
    faults: Faults,
    turn: u32,
    /// Read already, for the next pool.
    ahead: Option<Record>,
    /// Packets read in this turn.
    number: u64,
    /// Packets to be sent in this turn.
    packets: u64,
    first: u64,
    last: u64,
}

/// How long packets of a file may be, and what becomes of longer ones.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The device has it.
    pub device: Device,
    /// Longer ones are left out, rather than an error.
    pub skip: bool,
}

/// What is not as it should be with a file that was replayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Faults {
    /// Packets of which the file has only the beginning, which is sent.
    pub shortened: u64,
    /// Packets that were left out as they are too long for the device.
    pub skipped: u64,
    /// The file ends within a packet, which is left out.
    pub cut: bool,
}

impl Pool {
    /// All packets of a file, pcap or pcapng, byte for byte; none when they take more than
    /// [`crate::POOL_LIMIT`].
    ///
    /// # Errors
    /// When the file can't be read, or has packets that can't be sent.
    pub fn replay(path: &Path, limit: Option<&Limit>) -> Result<Option<(Self, Faults)>> {
        let mut pool = Captured::default();
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
            if pool.push(&record.bytes, gap).is_err() {
                return Ok(None);
            }
        }
        faults.cut = records.is_cut();
        ensure!(pool.len() > 0, "{}: no packets", path.display());
        Ok(Some((pool.finish(None), faults)))
    }
}

/// The packet with that number, if it is to be sent.
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
    /// Opens a file for so many loops, without an end if none is said. With `moving`, each loop but
    /// the first has other addresses, see [`move_addresses`].
    ///
    /// # Errors
    /// When the file can't be read, or has packets that can't be sent.
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

    /// The next packets, some MiB of them; none when all loops are over.
    ///
    /// # Errors
    /// When the file can't be read, or has packets that can't be sent.
    pub fn next_pool(&mut self) -> Result<Option<Pool>> {
        let mut pool = Captured::default();
        let mut gap = 0;
        while pool.used() < CHUNK {
            let Some((record, time)) = self.next_record()? else {
                break;
            };
            let pushed = pool.push(&record.bytes, gap);
            let (path, len) = (self.path.display(), record.bytes.len());
            ensure!(pushed.is_ok(), "{path}: a packet of {len} bytes");
            gap = time;
        }
        Ok((pool.len() > 0).then(|| pool.finish(Some(gap))))
    }

    /// The next packet of this loop or the one after it, and the time from it to its successor.
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

    /// The first packet of a loop; none when there are no more loops.
    fn read(&mut self) -> Result<Option<Record>> {
        if self.loops.is_some_and(|loops| self.turn >= loops) {
            return Ok(None);
        }
        let record = self.taken()?;
        ensure!(record.is_some(), "{}: no packets", self.path.display());
        Ok(record)
    }

    /// The next packet of this loop that is to be sent, with its addresses moved.
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

    /// What was found to be wrong with the file so far, in all loops together.
    pub fn faults(&self) -> Faults {
        self.faults
    }
}

/// An Ethernet header; a device takes nothing shorter.
const SHORTEST: usize = 14;

/// Bytes of one pool of several. While it is read nothing is sent, so it is not too large.
const CHUNK: usize = 16 << 20;
