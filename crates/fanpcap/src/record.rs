//! What a member's page says, and how it is laid out.

use crate::mode::Mode;

/// First bytes of a page; the digit is the layout's version.
const MAGIC: [u8; 8] = *b"FANPCAP2";

/// A page is of 64-bit words in the machine's order of bytes. Up to the counters they are constant: magic;
/// pid, mode and flags; the program's name in two, its file's device and inode; what the socket had
/// counted before it joined, received and dropped.
pub(crate) const WORDS: usize = 24;

/// The words that change, updated in place by whoever has the member.
pub(crate) mod at {
    /// When the counters were read last.
    pub(crate) const READ_NS: usize = 8;
    /// Packets received, and dropped, that the system's library has counted.
    pub(crate) const TOLD: [usize; 2] = [9, 10];
    /// The same that were read from the socket past that library.
    pub(crate) const PAST: [usize; 2] = [11, 12];
    /// What had been taken when the counters were read last.
    pub(crate) const READ_TAKEN: usize = 13;
    /// What had been taken when the reader last began to wait at an empty ring with nothing left to tell.
    pub(crate) const IDLE_TAKEN: usize = 14;
    /// Frames that our reader has taken from the ring since the handle was activated: in a cache line of its
    /// own, as it changes with each packet.
    pub(crate) const TAKEN: usize = 16;
}

const PROCESS: usize = 1;
const NAME: usize = 2;
const EXECUTABLE: usize = 4;
const BEFORE: [usize; 2] = [6, 7];

/// In the place of what was taken: the system's library reads.
pub(crate) const NOT_READ_BY_US: u64 = u64::MAX;

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
    /// Packets that our reader has taken from the ring; none where the system's library reads. It is of now,
    /// not of `read_ns`.
    pub taken: Option<u64>,
    /// The same at `read_ns`, so that it goes with the counters.
    pub read_taken: Option<u64>,
    /// Whether the reader waits at an empty ring and has told all that it was given: the counters are of now,
    /// however old `read_ns` is.
    pub waits: bool,
}

impl Record {
    /// The page of a member whose socket had counted `before` when it joined.
    pub(crate) fn encode(&self, before: Counters) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let [a, b, c, d] = self.pid.to_ne_bytes();
        let [e, f] = u16::from(self.mode.kind.kernel_type()).to_ne_bytes();
        let [g, h] = self.mode.kernel_flags().to_ne_bytes();
        let mut name = [[0; 8]; 2];
        for (to, from) in name.as_flattened_mut().iter_mut().zip(self.program.bytes()) {
            *to = from;
        }
        words[0] = u64::from_ne_bytes(MAGIC);
        words[PROCESS] = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        words[NAME] = u64::from_ne_bytes(name[0]);
        words[NAME + 1] = u64::from_ne_bytes(name[1]);
        (words[EXECUTABLE], words[EXECUTABLE + 1]) = self.executable;
        words[BEFORE[0]] = before.received;
        words[BEFORE[1]] = before.dropped;
        words[at::READ_NS] = self.read_ns;
        words[at::TOLD[0]] = before.received + self.counters.received;
        words[at::TOLD[1]] = before.dropped + self.counters.dropped;
        let earlier = before.received.saturating_sub(before.dropped);
        let taken = |taken: Option<u64>| taken.map(|taken| taken.saturating_add(earlier));
        words[at::TAKEN] = taken(self.taken).unwrap_or(NOT_READ_BY_US);
        words[at::READ_TAKEN] = taken(self.read_taken).unwrap_or_default();
        words[at::IDLE_TAKEN] = if self.waits {
            words[at::TAKEN]
        } else {
            NOT_READ_BY_US
        };
        words
    }

    /// None for words that are no page.
    pub(crate) fn decode(words: &[u64; WORDS]) -> Option<Self> {
        if words[0].to_ne_bytes() != MAGIC {
            return None;
        }
        let [a, b, c, d, e, f, g, h] = words[PROCESS].to_ne_bytes();
        let kind = u8::try_from(u16::from_ne_bytes([e, f])).ok()?;
        let name = [words[NAME].to_ne_bytes(), words[NAME + 1].to_ne_bytes()];
        let name = name.as_flattened().split(|&byte| byte == 0).next()?;
        let since = |which: usize| {
            let total = words[at::TOLD[which]].checked_add(words[at::PAST[which]])?;
            total.checked_sub(words[BEFORE[which]])
        };
        let taken = Some(words[at::TAKEN]).filter(|&taken| taken != NOT_READ_BY_US);
        // What was in the ring when the member joined is read first.
        let earlier = words[BEFORE[0]].saturating_sub(words[BEFORE[1]]);
        let read_ns = words[at::READ_NS];
        let read_taken = taken.filter(|_| read_ns > 0).map(|_| words[at::READ_TAKEN]);
        let is_idle = taken.is_some_and(|taken| taken == words[at::IDLE_TAKEN]);
        Some(Self {
            pid: u32::from_ne_bytes([a, b, c, d]),
            mode: Mode::from_kernel(kind, u16::from_ne_bytes([g, h]))?,
            program: String::from_utf8_lossy(name).into_owned(),
            executable: (words[EXECUTABLE], words[EXECUTABLE + 1]),
            read_ns,
            counters: Counters {
                received: since(0)?,
                dropped: since(1)?,
            },
            taken: taken.map(|taken| taken.saturating_sub(earlier)),
            read_taken: read_taken.map(|taken| taken.saturating_sub(earlier)),
            waits: is_idle && read_taken == taken,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

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
            read_taken: None,
            waits: false,
        }
    }

    const NOTHING: Counters = Counters {
        received: 0,
        dropped: 0,
    };

    fn garbage() -> impl Strategy<Value = [u64; WORDS]> {
        let word = prop_oneof![any::<u64>(), 0..100_u64, u64::MAX - 9..=u64::MAX];
        proptest::collection::vec(word, WORDS).prop_map(|words| {
            let mut page = [0; WORDS];
            page.copy_from_slice(&words);
            page
        })
    }

    #[test]
    fn foreign_words_are_no_record() {
        let mut words = record().encode(NOTHING);
        words[0] = u64::from_ne_bytes(*b"FANPCAP1");
        assert_eq!(Record::decode(&words), None);
        assert_eq!(Record::decode(&[0; WORDS]), None);
    }

    #[test]
    fn counters_that_would_be_negative_are_no_record() {
        let before = Counters {
            received: 5,
            dropped: 0,
        };
        let mut words = record().encode(before);
        words[at::TOLD[0]] = 4;
        assert_eq!(Record::decode(&words), None);
        words[at::PAST[0]] = 1;
        assert_eq!(Record::decode(&words).unwrap().counters.received, 0);
    }

    proptest! {
        #[test]
        fn records_survive_the_page(
            pid: u32,
            read_ns: u64,
            received in 0..1_u64 << 60,
            dropped in 0..1_u64 << 60,
            earlier in 0..1_u64 << 60,
            taken in proptest::option::of(0..1_u64 << 60),
            read in 0..1_u64 << 60,
            waits: bool,
        ) {
            let counters = Counters { received, dropped };
            let known = taken.filter(|_| read_ns > 0);
            let waits = waits && known.is_some();
            let read_taken = known.map(|taken| if waits { taken } else { read });
            let record = Record { pid, read_ns, counters, taken, read_taken, waits, ..record() };
            let before = Counters { received: earlier, dropped: earlier / 3 };
            prop_assert_eq!(Record::decode(&record.encode(before)), Some(record));
        }

        #[test]
        fn no_garbage_makes_the_decoder_fail(mut words in garbage(), like_a_page: bool) {
            if like_a_page {
                let own = record().encode(NOTHING);
                words[..2].copy_from_slice(&own[..2]);
            }
            if let Some(record) = Record::decode(&words) {
                prop_assert!(record.program.len() <= 48 && like_a_page);
            }
        }
    }
}
