//! What a member's page says, and how it is laid out.

use crate::mode::Mode;

/// First bytes of a page; the digit is the layout's version.
const MAGIC: [u8; 8] = *b"FANPCAP1";

/// Bytes of a page: magic, pid, mode, flags, program, its file's device and inode, then the time of
/// reading, received, dropped, and the time again.
pub(crate) const LEN: usize = 80;

/// Bytes of a program's name, padded with zeros (the kernel's TASK_COMM_LEN).
const NAME_LEN: usize = 16;

/// Packets that a member was given, and lost, since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that passed the member's filter, dropped ones included.
    pub received: u64,
    /// Of these, packets lost because the member's ring was full.
    pub dropped: u64,
}

/// What a page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Process that opened the member.
    pub pid: u32,
    /// The group's mode, with options.
    pub mode: Mode,
    /// Name of the program.
    pub program: String,
    /// Device and inode of the program's file.
    pub executable: (u64, u64),
    /// When the counters were read, nanoseconds of `CLOCK_MONOTONIC`; 0: never yet.
    pub read_ns: u64,
    /// The member's counters.
    pub counters: Counters,
    /// Packets that our reader has taken from the ring; none where the system's library reads.
    pub taken: Option<u64>,
}

impl Record {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut name = [0; NAME_LEN];
        for (to, from) in name.iter_mut().zip(self.program.bytes()) {
            *to = from;
        }
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.pid.to_le_bytes());
        bytes[12..14].copy_from_slice(&u16::from(self.mode.kind.kernel_type()).to_le_bytes());
        bytes[14..16].copy_from_slice(&self.mode.kernel_flags().to_le_bytes());
        bytes[16..32].copy_from_slice(&name);
        let ((device, inode), counters) = (self.executable, self.counters);
        let (read, received, dropped) = (self.read_ns, counters.received, counters.dropped);
        let words = [device, inode, read, received, dropped, read];
        for (to, word) in bytes[32..].chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// None for bytes that are no page, or one caught while it was being written: its times differ.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        if bytes.get(..8)? != MAGIC || word(48)? != word(72)? {
            return None;
        }
        let name = bytes.get(16..32)?.split(|&byte| byte == 0).next()?;
        Some(Self {
            pid: u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?),
            mode: Mode::from_kernel(u8::try_from(half(12)?).ok()?, half(14)?)?,
            program: String::from_utf8_lossy(name).into_owned(),
            executable: (word(32)?, word(40)?),
            read_ns: word(48)?,
            counters: Counters {
                received: word(56)?,
                dropped: word(64)?,
            },
            taken: None,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record() -> Record {
        Record {
            pid: 4711,
            mode: Mode::parse("hash+defrag").unwrap(),
            program: "tcpdump".to_owned(),
            executable: (8, 15),
            read_ns: 77,
            counters: Counters {
                received: 10,
                dropped: 3,
            },
            taken: None,
        }
    }

    #[test]
    fn records_survive_the_page() {
        assert_eq!(Record::decode(&record().encode()), Some(record()));
    }

    #[test]
    fn foreign_bytes_are_no_record() {
        let whole = record().encode();
        for len in 0..LEN {
            assert_eq!(Record::decode(&whole[..len]), None);
        }
        let mut torn = whole;
        torn[48] ^= 1;
        assert_eq!(Record::decode(&torn), None);
    }
}
