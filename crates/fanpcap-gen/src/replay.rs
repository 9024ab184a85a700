//! Replay: the packets of a capture file as pools, once or in loops, as they are or moved to other
//! addresses in each loop.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use pcap_file::PcapError;

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
    turn: u32,
    /// Read already, for the next pool.
    ahead: Option<Record>,
    /// In this turn.
    packets: u64,
    first: u64,
    last: u64,
}

/// Why a file can't be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// It can't be opened or read.
    Open(PathBuf, io::Error),
    /// It is no capture file, or is broken.
    Format(PathBuf, PcapError),
    /// Its packets have this link type, not Ethernet's.
    Link(PathBuf, u32),
    /// It has no packet.
    Empty(PathBuf),
    /// It has one that is too short to be a frame, after so many others.
    Short(PathBuf, u64),
    /// It has one of so many bytes, more than any device takes.
    Long(PathBuf, usize),
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Format(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Link(path, link) => write!(
                f,
                "{}: packets of link type {link}, only Ethernet's (1) can be sent",
                path.display()
            ),
            Self::Empty(path) => write!(f, "{}: no packets", path.display()),
            Self::Short(path, before) => write!(
                f,
                "{}: packet {} is shorter than an Ethernet header",
                path.display(),
                before + 1
            ),
            Self::Long(path, len) => write!(f, "{}: a packet of {len} bytes", path.display()),
        }
    }
}

impl std::error::Error for ReplayError {}

impl Pool {
    /// All packets of a file, pcap or pcapng, byte for byte; none when they take more than
    /// [`crate::POOL_LIMIT`]. Also the number of packets of which the file has only the beginning.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn replay(path: &Path) -> Result<Option<(Self, u64)>, ReplayError> {
        let mut pool = Captured::default();
        let mut shortened = 0;
        let mut before = None;
        for record in Records::open(path)? {
            let record = checked(record?, path, pool.len() as u64)?;
            let gap = record.time.saturating_sub(before.unwrap_or(record.time));
            before = Some(record.time);
            shortened += u64::from(record.shortened);
            if pool.push(&record.bytes, gap).is_err() {
                return Ok(None);
            }
        }
        if pool.len() == 0 {
            return Err(ReplayError::Empty(path.to_owned()));
        }
        Ok(Some((pool.finish(None), shortened)))
    }
}

fn checked(record: Record, path: &Path, before: u64) -> Result<Record, ReplayError> {
    if record.bytes.len() < SHORTEST {
        return Err(ReplayError::Short(path.to_owned(), before));
    }
    Ok(record)
}

impl Replay {
    /// Opens a file for so many loops, without an end if none is said. With `moving`, each loop but the
    /// first has other addresses, see [`move_addresses`].
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn open(path: &Path, loops: Option<u32>, moving: bool) -> Result<Self, ReplayError> {
        Ok(Self {
            path: path.to_owned(),
            loops,
            moving,
            records: Records::open(path)?,
            turn: 0,
            ahead: None,
            packets: 0,
            first: 0,
            last: 0,
        })
    }

    /// The next packets, some MiB of them; none when all loops are over.
    ///
    /// # Errors
    /// See [`ReplayError`].
    pub fn next_pool(&mut self) -> Result<Option<Pool>, ReplayError> {
        let mut pool = Captured::default();
        let mut gap = 0;
        while pool.used() < CHUNK {
            let Some((record, time)) = self.next_record()? else {
                break;
            };
            let pushed = pool.push(&record.bytes, gap);
            pushed.map_err(|_| ReplayError::Long(self.path.clone(), record.bytes.len()))?;
            gap = time;
        }
        Ok((pool.len() > 0).then(|| pool.finish(Some(gap))))
    }

    /// The next packet of this loop or the one after it, and the time from it to its successor.
    fn next_record(&mut self) -> Result<Option<(Record, u64)>, ReplayError> {
        let record = match self.ahead.take() {
            Some(record) => record,
            None => match self.read()? {
                Some(record) => record,
                None => return Ok(None),
            },
        };
        self.ahead = self.records.next().transpose()?;
        if let Some(next) = self.ahead.take() {
            let next = self.taken(next)?;
            let gap = next.time.saturating_sub(record.time);
            self.ahead = Some(next);
            return Ok(Some((record, gap)));
        }
        let span = self.last.saturating_sub(self.first);
        let average = span.checked_div(self.packets - 1).unwrap_or(0);
        self.turn = self.turn.saturating_add(1);
        if self.loops.is_none_or(|loops| self.turn < loops) {
            self.records = Records::open(&self.path)?;
            self.packets = 0;
        }
        Ok(Some((record, average)))
    }

    /// The first packet of a loop; none when there are no more loops.
    fn read(&mut self) -> Result<Option<Record>, ReplayError> {
        if self.loops.is_some_and(|loops| self.turn >= loops) {
            return Ok(None);
        }
        match self.records.next().transpose()? {
            Some(record) => self.taken(record).map(Some),
            None => Err(ReplayError::Empty(self.path.clone())),
        }
    }

    /// Counts a packet of this loop, and moves its addresses.
    fn taken(&mut self, record: Record) -> Result<Record, ReplayError> {
        let mut record = checked(record, &self.path, self.packets)?;
        if self.packets == 0 {
            self.first = record.time;
        }
        self.last = record.time;
        self.packets += 1;
        if self.moving && self.turn > 0 {
            move_addresses(&mut record.bytes, self.turn);
        }
        Ok(record)
    }
}

/// An Ethernet header; a device takes nothing shorter.
const SHORTEST: usize = 14;

/// Bytes of one pool of several. While it is read nothing is sent, so it is not too large.
const CHUNK: usize = 16 << 20;
