//! What a member's page says, and how it is laid out.

mod attention;

pub use attention::LastLook;
use fanpcap_config::mode::{Kind, Mode};
use fanpcap_config::report::harmless_text;
use fanpcap_config::steering::{Counts, Steering};
use fanpcap_steer::ir::COUNTERS;

/// First bytes of a page; the digit is the version of the layout and of the locks, as in
/// [`crate::root`].
pub(crate) const MAGIC: [u8; 8] = *b"FANPCAP4";

/// A page is of 64-bit words in the machine's order of bytes. Up to the counters they are constant:
/// magic; pid, mode and flags; the program's name in two, its file's device and inode; what the
/// socket had counted before it joined, received and dropped.
pub(crate) const WORDS: usize = at::COUNTERS + COUNTERS;

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
    /// What had been taken when the reader last began to wait at an empty ring with nothing left to
    /// tell.
    pub(crate) const IDLE_TAKEN: usize = 14;
    /// When the application last looked for packets, nanoseconds of `CLOCK_MONOTONIC`; 0: never;
    /// `u64::MAX`: its reader waits for packets now.
    pub(crate) const LOOKED_NS: usize = 15;
    /// Frames that our reader has taken from the ring since the handle was activated: in a cache
    /// line of its own, as it changes with each packet.
    pub(crate) const TAKEN: usize = 16;
    /// What the device had counted when the member began to join, and one more; 0: it has not
    /// begun. This and the next two: [`crate::rejecting`].
    pub(crate) const JOINED_AT: usize = 17;
    /// Packets that the device has counted while the member rejected all.
    pub(crate) const REJECTED: usize = 18;
    /// What the device had counted when it began to do so, and one more; 0: it does not.
    pub(crate) const REJECTING_SINCE: usize = 19;
    /// How many readings of the kernel's counters are under way. The kernel clears its counters
    /// with the reading, so that a member that is killed meanwhile takes them with it.
    pub(crate) const READING: usize = 20;
    /// The digest of the group's steering program, 0 for none. It changes when the program is
    /// replaced, as does what follows; whoever replaces it writes both on all pages.
    pub(crate) const DIGEST: usize = 24;
    /// Whether the group is known to have that program: [`super::SET`], [`super::SET_BY_US`], else
    /// 0. Who gives the group another one makes it [`super::SET`] on the page that had
    /// [`super::SET_BY_US`].
    pub(crate) const IS_SET: usize = 25;
    /// When the program's counters were read last; [`super::UNCHANGING`] where they can't change.
    pub(crate) const COUNTED_NS: usize = 26;
    /// Later fragments that this member's copy of the program has met before the first of their
    /// datagram.
    pub(crate) const LATE: usize = 27;
    /// When the member joined, nanoseconds of `CLOCK_MONOTONIC`. Constant; 0 on pages of older
    /// libraries.
    pub(crate) const JOINED_NS: usize = 28;
    /// How the program begins.
    pub(crate) const TITLE: usize = 32;
    /// The program's counters, of this member.
    pub(crate) const COUNTERS: usize = TITLE + super::TITLE_WORDS;
}

/// The group has its program.
pub(crate) const SET: u64 = 1;

/// The same, by this member.
pub(crate) const SET_BY_US: u64 = 2;

/// In the place of when counters were read: the program has none here, so that they are of now.
pub(crate) const UNCHANGING: u64 = u64::MAX;

/// Words of a program's beginning.
pub(crate) const TITLE_WORDS: usize = 8;

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

/// The steering program that a page tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// What tells it from others.
    pub digest: u64,
    /// Its name, or how its text begins.
    pub title: String,
    /// Whether the group is known to have it.
    pub is_set: bool,
    /// Whether this member has set it, as the last that did: then it tells of late fragments.
    pub has_set: bool,
    /// When the counters were read, nanoseconds of `CLOCK_MONOTONIC`; 0: never yet; later than any
    /// other time where they can't change.
    pub counted_ns: u64,
    /// The program's counters, of this member.
    pub counters: Counts,
    /// Later fragments that came before the first of their datagram, as far as this member's copy
    /// of the program has met them.
    pub late: u64,
}

impl Running {
    /// The page of a new member.
    pub(crate) fn new(steering: &Steering) -> Self {
        Self {
            digest: steering.digest(),
            title: shortened(steering.title()).to_owned(),
            is_set: false,
            has_set: false,
            counted_ns: 0,
            counters: [0; COUNTERS],
            late: 0,
        }
    }

    fn encode(&self, words: &mut [u64; WORDS]) {
        words[at::DIGEST] = self.digest;
        words[at::IS_SET] = match (self.is_set, self.has_set) {
            (_, true) => SET_BY_US,
            (true, false) => SET,
            (false, false) => 0,
        };
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
            is_set: words[at::IS_SET] != 0,
            has_set: words[at::IS_SET] == SET_BY_US,
            counted_ns: words[at::COUNTED_NS],
            counters: words[at::COUNTERS..].try_into().ok()?,
            late: words[at::LATE],
        };
        (running.digest != 0).then_some(running)
    }
}

/// As much of a title as a page has room for.
fn shortened(title: &str) -> &str {
    let end = (0..=title.len().min(TITLE_WORDS * 8)).rev();
    let end = end.into_iter().find(|&end| title.is_char_boundary(end));
    &title[..end.unwrap_or(0)]
}

/// A title as a page has it.
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

/// What a page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Process that opened the member.
    pub pid: u32,
    /// The group's mode, with options.
    pub mode: Mode,
    /// Name of the program, safe to print.
    pub program: String,
    /// Device and inode of the program's file.
    pub executable: (u64, u64),
    /// When the counters were read, nanoseconds of `CLOCK_MONOTONIC`; 0: never yet.
    pub read_ns: u64,
    /// The member's counters.
    pub counters: Counters,
    /// Packets that our reader has taken from the ring; none where the system's library reads. It
    /// is of now, not of `read_ns`.
    pub taken: Option<u64>,
    /// The same at `read_ns`, so that it goes with the counters.
    pub read_taken: Option<u64>,
    /// Whether the reader waits at an empty ring and has told all that it was given: the counters
    /// are of now, however old `read_ns` is.
    pub waits: bool,
    /// When the member joined, nanoseconds of `CLOCK_MONOTONIC`; 0: unknown.
    pub joined_ns: u64,
    /// When the application last looked for packets; see [`Record::unread_for`].
    pub last_look: LastLook,
    /// The program that steers the group, where one does.
    pub steering: Option<Running>,
}

impl Record {
    /// How the steering program begins, where the group has one.
    pub fn title(&self) -> Option<&str> {
        self.steering.as_ref().map(|running| running.title.as_str())
    }

    /// The mode with its options; of a program, how that begins.
    pub fn shown_mode(&self) -> String {
        let mode = self.mode.to_string();
        let options = mode.strip_prefix(Kind::Program.name());
        match (&self.steering, options) {
            (Some(running), Some(options)) => format!("{}{options}", running.title),
            (Some(_), None) | (None, _) => mode,
        }
    }

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
        words[at::LOOKED_NS] = self.last_look.encode();
        words[at::JOINED_NS] = self.joined_ns;
        if let Some(running) = &self.steering {
            running.encode(&mut words);
        }
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
        let mode = Mode::from_kernel(kind, u16::from_ne_bytes([g, h]))?;
        Some(Self {
            pid: u32::from_ne_bytes([a, b, c, d]),
            mode,
            program: harmless_text(&String::from_utf8_lossy(name)),
            executable: (words[EXECUTABLE], words[EXECUTABLE + 1]),
            read_ns,
            counters: Counters {
                received: since(0)?,
                dropped: since(1)?,
            },
            taken: taken.map(|taken| taken.saturating_sub(earlier)),
            read_taken: read_taken.map(|taken| taken.saturating_sub(earlier)),
            waits: is_idle && read_taken == taken,
            joined_ns: words[at::JOINED_NS],
            last_look: LastLook::decode(words, taken.is_some()),
            steering: Running::decode(words).filter(|_| mode.kind == Kind::Program),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
