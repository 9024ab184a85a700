//! The content of a member page, and its layout in the file.

mod attention;

pub use attention::LastLook;
use fanpcap_config::mode::{Mode, ModeKind};
use fanpcap_config::report::harmless_text;
use fanpcap_config::steering::{Counts, Steering};
use fanpcap_steer::ir::COUNTERS;
use std::os::fd::RawFd;

/// The first bytes of a page. The digit is the version of the layout and of the locks, as in
/// [`crate::root`].
pub(crate) const MAGIC: [u8; 8] = *b"FANPCAP5";

/// 64-bit words of a page, in native byte order. The words before [`at::READ_NS`] are constant:
/// magic; pid, mode and flags; the application's name (two words); device and inode of its
/// executable; packets received and dropped that the socket had counted before it joined.
pub(crate) const WORDS: usize = at::COUNTERS + COUNTERS;

/// Indices of the words that change. The member's process updates them in place.
pub(crate) mod at {
    /// When the kernel's counters were last read, nanoseconds of `CLOCK_MONOTONIC`; 0: never.
    pub(crate) const READ_NS: usize = 8;
    /// Packets received and dropped, as the system's library has counted them.
    pub(crate) const BY_LIBRARY: [usize; 2] = [9, 10];
    /// Packets received and dropped that our code read from the socket without the system's
    /// library.
    pub(crate) const BY_US: [usize; 2] = [11, 12];
    /// The value of [`TAKEN`] when the kernel's counters were last read.
    pub(crate) const READ_TAKEN: usize = 13;
    /// The value of [`TAKEN`] when the reader last began to wait at an empty ring, with all
    /// counters published.
    pub(crate) const IDLE_TAKEN: usize = 14;
    /// When the application last looked for packets, nanoseconds of `CLOCK_MONOTONIC`; 0: never;
    /// `u64::MAX`: the reader waits for packets now.
    pub(crate) const LOOKED_NS: usize = 15;
    /// Frames that our reader has taken from the ring since activation. The word has a cache line
    /// of its own because it changes with each packet.
    pub(crate) const TAKEN: usize = 16;
    /// One more than the device's packet counter when the member began to join; 0: the member has
    /// not begun to join. See [`crate::rejecting`], also for the next two words.
    pub(crate) const JOINED_AT: usize = 17;
    /// Packets that the device counted while the member rejected all packets.
    pub(crate) const REJECTED: usize = 18;
    /// One more than the device's packet counter when the member began to reject all packets; 0:
    /// the member does not reject.
    pub(crate) const REJECTING_SINCE: usize = 19;
    /// Reads of the kernel's counters in progress. The kernel clears its counters when they are
    /// read, so a member killed during the read loses them.
    pub(crate) const READING: usize = 20;
    /// The block of its ring that our reader reads (`fanpcap_ring::Mark`). Another reader goes on
    /// from there when this one has died.
    pub(crate) const BLOCK: usize = 21;
    /// One more than [`TAKEN`] when the dead member's first heir came; 0: it has had none. See
    /// [`crate::epitaph`], also for the next word.
    pub(crate) const OWN_TAKEN: usize = 22;
    /// 1: the counters are the member's last, and nobody takes packets from its ring any more.
    pub(crate) const IS_FINAL: usize = 23;
    /// The digest of the group's steering program; 0: none. The member that replaces the steering
    /// program writes this word and [`TITLE`] on all pages.
    pub(crate) const DIGEST: usize = 24;
    /// 1 on the page of the member that attached the steering program to the group, else 0. The
    /// member that replaces the steering program clears the word on the page of its predecessor.
    pub(crate) const HAS_SET: usize = 25;
    /// When the counters of the steering program were last read; [`super::UNCHANGING`] where they
    /// can't change.
    pub(crate) const COUNTED_NS: usize = 26;
    /// Later fragments that this member's copy of the steering program has seen before the first
    /// fragment of their datagram.
    pub(crate) const LATE: usize = 27;
    /// When the member joined, nanoseconds of `CLOCK_MONOTONIC`. Constant; 0 on pages of older
    /// libraries.
    pub(crate) const JOINED_NS: usize = 28;
    /// Which descriptors of the process are what the group's members share: table, both ends of the
    /// locker and the door, in 15 bits each; 0: not known.
    pub(crate) const SHARED: usize = 29;
    /// The same of what all groups on the device share: both ends of the dock's locker. 0 where
    /// the group has no dock.
    pub(crate) const DOCK: usize = 30;
    /// Bytes of the rings that an engine fills for the member; 0: the socket has the ring.
    pub(crate) const RING_BYTES: usize = 31;
    /// The title of the steering program: its name, or the beginning of its text.
    pub(crate) const TITLE: usize = 32;
    /// This member's counters of the steering program.
    pub(crate) const COUNTERS: usize = TITLE + super::TITLE_WORDS;
}

/// How many descriptors the members of a group share, and with those of the dock where the group
/// has one.
pub(crate) const DESCRIPTORS: usize = 4;
pub(crate) const WITH_DOCK: usize = 6;

/// The words of [`at::SHARED`] and [`at::DOCK`]. Both are 0 where a number is too large for them,
/// or their count is none of a member's.
pub(crate) fn shared_words(numbers: &[RawFd]) -> [u64; 2] {
    let word = |numbers: &[RawFd]| numbers.iter().copied().try_fold(1, put_beside);
    let words = match numbers.split_at_checked(DESCRIPTORS) {
        Some((own, [])) => word(own).map(|own| [own, 0]),
        Some((own, dock @ [_, _])) => word(own).zip(word(dock)).map(|(own, dock)| [own, dock]),
        Some(_) | None => None,
    };
    words.unwrap_or_default()
}

fn put_beside(word: u64, number: RawFd) -> Option<u64> {
    let number = u64::try_from(number).ok()?;
    (number < SHARED_END).then_some((word << SHARED_BITS) | number)
}

fn shared_numbers(own: u64, dock: u64) -> Option<Vec<RawFd>> {
    let number = |word: u64, at: u32| {
        let number = (word >> (at * SHARED_BITS)) & (SHARED_END - 1);
        RawFd::try_from(number).unwrap_or(0)
    };
    let mut numbers: Vec<RawFd> = [3, 2, 1, 0].map(|at| number(own, at)).to_vec();
    if dock != 0 {
        numbers.extend([1, 0].map(|at| number(dock, at)));
    }
    (own != 0).then_some(numbers)
}

const SHARED_BITS: u32 = 15;
const SHARED_END: u64 = 1 << SHARED_BITS;

/// Value of [`at::COUNTED_NS`]: this member's counters can't change, so they are always current.
pub(crate) const UNCHANGING: u64 = u64::MAX;

/// Words of a steering program's title.
pub(crate) const TITLE_WORDS: usize = 8;

const PROCESS: usize = 1;
const NAME: usize = 2;
const EXECUTABLE: usize = 4;
pub(crate) const BEFORE: [usize; 2] = [6, 7];

/// Value of [`at::TAKEN`]: the system's library reads the member, so the packets taken are unknown.
pub(crate) const NOT_READ_BY_US: u64 = u64::MAX;

/// Packets that a member received and dropped since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Packets that passed the member's filter, dropped ones included.
    pub received: u64,
    /// Of these, packets lost because the member's ring was full.
    pub dropped: u64,
}

/// The steering program on a member page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Identifies the steering program: equal digests mean equal programs.
    pub digest: u64,
    /// Its name, or the beginning of its text.
    pub title: String,
    /// Whether this member is the last that attached the steering program to the group. Only that
    /// member counts late fragments.
    pub has_set: bool,
    /// When the counters were read, nanoseconds of `CLOCK_MONOTONIC`. 0: never; `u64::MAX`: they
    /// can't change.
    pub counted_ns: u64,
    /// This member's counters of the steering program.
    pub counters: Counts,
    /// Later fragments that this member's copy of the steering program has seen before the first
    /// fragment of their datagram.
    pub late: u64,
}

impl Running {
    /// The steering program of a new member's page.
    pub(crate) fn new(steering: &Steering) -> Self {
        Self {
            digest: steering.digest(),
            title: shortened(steering.title()).to_owned(),
            has_set: false,
            counted_ns: 0,
            counters: [0; COUNTERS],
            late: 0,
        }
    }

    fn encode(&self, words: &mut [u64; WORDS]) {
        words[at::DIGEST] = self.digest;
        words[at::HAS_SET] = self.has_set.into();
        words[at::COUNTED_NS] = self.counted_ns;
        words[at::LATE] = self.late;
        words[at::TITLE..at::COUNTERS].copy_from_slice(&title_words(&self.title));
        words[at::COUNTERS..].copy_from_slice(&self.counters);
    }

    fn decode(words: &[u64; WORDS]) -> Option<Self> {
        let title: Vec<u8> = words[at::TITLE..at::COUNTERS]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .take_while(|&byte| byte != 0)
            .collect();
        let running = Self {
            digest: words[at::DIGEST],
            title: harmless_text(&String::from_utf8_lossy(&title)),
            has_set: words[at::HAS_SET] == 1,
            counted_ns: words[at::COUNTED_NS],
            counters: words[at::COUNTERS..].try_into().ok()?,
            late: words[at::LATE],
        };
        (running.digest != 0).then_some(running)
    }
}

/// The beginning of a title that fits into a page.
fn shortened(title: &str) -> &str {
    let end = (0..=title.len().min(TITLE_WORDS * 8)).rev();
    let end = end.into_iter().find(|&end| title.is_char_boundary(end));
    &title[..end.unwrap_or(0)]
}

/// Encodes a title as words of a page.
pub(crate) fn title_words(title: &str) -> [u64; TITLE_WORDS] {
    let mut bytes = [[0; 8]; TITLE_WORDS];
    for (to, from) in bytes
        .as_flattened_mut()
        .iter_mut()
        .zip(shortened(title).bytes())
    {
        *to = from;
    }
    bytes.map(u64::from_ne_bytes)
}

/// The decoded content of a member page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The process that opened the member.
    pub pid: u32,
    /// The group's mode with its options.
    pub mode: Mode,
    /// Name of the application, safe to print.
    pub program: String,
    /// Device and inode of the application's executable.
    pub executable: (u64, u64),
    /// When the counters were read, nanoseconds of `CLOCK_MONOTONIC`; 0: never.
    pub read_ns: u64,
    /// The member's counters.
    pub counters: MemberCounters,
    /// Packets that our reader has taken from the ring so far; `None` where the system's library
    /// reads. This value is current: it may be newer than `read_ns`.
    pub taken: Option<u64>,
    /// The value of `taken` at `read_ns`, to compare with `counters`.
    pub read_taken: Option<u64>,
    /// Whether the reader waits at an empty ring and has published all its counters. The counters
    /// are then current, whatever `read_ns` is.
    pub waits: bool,
    /// When the member joined, nanoseconds of `CLOCK_MONOTONIC`; 0: unknown.
    pub joined_ns: u64,
    /// Bytes of the rings that an engine fills for the member; 0: the socket has the ring.
    pub ring_bytes: u64,
    /// Which descriptors of the process are what the members of its group share, and the dock's
    /// where the group has one.
    pub shared: Option<Vec<RawFd>>,
    /// When the application last looked for packets; see [`Record::unread_for`].
    pub last_look: LastLook,
    /// The group's steering program, if it has one.
    pub steering: Option<Running>,
}

impl Record {
    /// The title of the group's steering program, if it has one.
    pub fn title(&self) -> Option<&str> {
        self.steering.as_ref().map(|running| running.title.as_str())
    }

    /// The mode with its options. A steering program is shown by its title.
    pub fn shown_mode(&self) -> String {
        let mode = self.mode.to_string();
        let options = mode.strip_prefix(ModeKind::Program.name());
        match (&self.steering, options) {
            (Some(running), Some(options)) => format!("{}{options}", running.title),
            (Some(_), None) | (None, _) => mode,
        }
    }

    /// Encodes the page of a member whose socket had counted `before` when it joined.
    pub(crate) fn encode(&self, before: MemberCounters) -> [u64; WORDS] {
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
        words[at::BY_LIBRARY[0]] = before.received + self.counters.received;
        words[at::BY_LIBRARY[1]] = before.dropped + self.counters.dropped;
        let earlier = before.received.saturating_sub(before.dropped);
        let taken = |taken: Option<u64>| taken.map(|taken| taken.saturating_add(earlier));
        words[at::TAKEN] = taken(self.taken).unwrap_or(NOT_READ_BY_US);
        words[at::READ_TAKEN] = taken(self.read_taken).unwrap_or_default();
        words[at::IDLE_TAKEN] = if self.waits {
            words[at::TAKEN]
        } else {
            NOT_READ_BY_US
        };
        words[at::LOOKED_NS] = self.last_look.encode();
        words[at::JOINED_NS] = self.joined_ns;
        words[at::RING_BYTES] = self.ring_bytes;
        let shared = self.shared.as_deref().map(shared_words);
        [words[at::SHARED], words[at::DOCK]] = shared.unwrap_or_default();
        if let Some(running) = &self.steering {
            running.encode(&mut words);
        }
        words
    }

    /// Decodes the words of a page; `None` if they are not a page.
    pub(crate) fn decode(words: &[u64; WORDS]) -> Option<Self> {
        if words[0].to_ne_bytes() != MAGIC {
            return None;
        }
        let [a, b, c, d, e, f, g, h] = words[PROCESS].to_ne_bytes();
        let kind = u8::try_from(u16::from_ne_bytes([e, f])).ok()?;
        let name = [words[NAME].to_ne_bytes(), words[NAME + 1].to_ne_bytes()];
        let name = name.as_flattened().split(|&byte| byte == 0).next()?;
        let since = |which: usize| {
            let total = words[at::BY_LIBRARY[which]].checked_add(words[at::BY_US[which]])?;
            total.checked_sub(words[BEFORE[which]])
        };
        let taken = Some(words[at::TAKEN]).filter(|&taken| taken != NOT_READ_BY_US);
        // The reader first takes what was in the ring before the member joined.
        let earlier = words[BEFORE[0]].saturating_sub(words[BEFORE[1]]);
        let read_ns = words[at::READ_NS];
        let read_taken = taken.filter(|_| read_ns > 0).map(|_| words[at::READ_TAKEN]);
        let is_idle = taken.is_some_and(|taken| taken == words[at::IDLE_TAKEN]);
        let mode = Mode::from_kernel(kind, u16::from_ne_bytes([g, h]))?;
        Some(Self {
            pid: u32::from_ne_bytes([a, b, c, d]),
            mode,
            program: harmless_text(&String::from_utf8_lossy(name)),
            executable: (words[EXECUTABLE], words[EXECUTABLE + 1]),
            read_ns,
            counters: MemberCounters {
                received: since(0)?,
                dropped: since(1)?,
            },
            taken: taken.map(|taken| taken.saturating_sub(earlier)),
            read_taken: read_taken.map(|taken| taken.saturating_sub(earlier)),
            waits: is_idle && read_taken == taken,
            joined_ns: words[at::JOINED_NS],
            ring_bytes: words[at::RING_BYTES],
            shared: shared_numbers(words[at::SHARED], words[at::DOCK]),
            last_look: LastLook::decode(words, taken.is_some()),
            steering: Running::decode(words).filter(|_| mode.kind == ModeKind::Program),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
