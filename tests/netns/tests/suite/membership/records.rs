//! A member's records (`c/records.c`).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;

/// A packet that a member has recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Got {
    pub(super) number: u32,
    /// Arrival in microseconds since 1970.
    pub(super) arrived_us: u64,
    /// Time between arrival and recording.
    pub(super) waited_us: u32,
}

impl Got {
    pub(super) fn at_us(&self) -> u64 {
        self.arrived_us + u64::from(self.waited_us)
    }
}

/// The number of packets that a member has recorded.
pub(super) fn count(file: &Path) -> Result<u64> {
    let mut count = [0; 8];
    File::open(file)?.read_exact(&mut count)?;
    Ok(u64::from_ne_bytes(count))
}

/// The arrival time of the last recorded packet, in microseconds since 1970; 0 if no packet was
/// recorded.
pub(super) fn last_arrived_us(file: &Path) -> Result<u64> {
    let Some(last) = count(file)?.checked_sub(1) else {
        return Ok(0);
    };
    let mut record = [0; 16];
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(8 + 16 * last))?;
    file.read_exact(&mut record)?;
    Ok(decode(&record)?.arrived_us)
}

/// All packets that a member has recorded, including a packet in whose callback the member was
/// killed. The record of this packet follows those that the file's count includes.
pub(super) fn read(file: &Path) -> Result<Vec<Got>> {
    let count = usize::try_from(count(file)?)?;
    let mut bytes = vec![0; 8 + 16 * (count + 1)];
    File::open(file)?.read_exact(&mut bytes)?;
    let all = bytes[8..].chunks_exact(16).map(decode);
    let mut all = all.collect::<Result<Vec<Got>>>()?;
    all.retain(|got| got.arrived_us != 0);
    Ok(all)
}

/// The packets that a member has recorded after its first `from` packets.
pub(super) fn read_from(file: &Path, from: u64) -> Result<Vec<Got>> {
    let new = usize::try_from(count(file)?.saturating_sub(from))?;
    let mut bytes = vec![0; 16 * new];
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(8 + 16 * from))?;
    file.read_exact(&mut bytes)?;
    bytes.chunks_exact(16).map(decode).collect()
}

fn decode(record: &[u8]) -> Result<Got> {
    Ok(Got {
        arrived_us: u64::from_ne_bytes(record[..8].try_into()?),
        number: u32::from_ne_bytes(record[8..12].try_into()?),
        waited_us: u32::from_ne_bytes(record[12..].try_into()?),
    })
}

/// The time in microseconds since 1970.
pub(super) fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(0))
}
