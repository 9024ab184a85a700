//! The content of a member page.

mod layout;
mod attention;
mod no_flow;

pub use attention::LastLook;
use fanpcap_config::mode::{Mode, ModeKind};
use fanpcap_config::report::harmless_text;
use fanpcap_config::steering::{Counts, Steering};
use fanpcap_steer::ir::COUNTERS;
pub(crate) use layout::TITLE_WORDS;
pub(crate) use layout::{BEFORE, DESCRIPTORS, MAGIC, NOT_READ_BY_US, UNCHANGING, WITH_REGISTRY};
use layout::{EXECUTABLE, NAME, PROCESS, shared_numbers};
pub(crate) use layout::{FOUNDS, SENT, STEALS, WORDS};
pub(crate) use layout::{at, shared_words};
pub use no_flow::NoFlow;
use std::os::fd::RawFd;

/// Packets that a member received and dropped since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Packets that passed the member's filter, dropped ones included.
    pub received: u64,
    /// How many of these packets were lost because the member's ring was full.
    pub dropped: u64,
}

/// The steering program on a member page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Identifies the steering program: equal digests mean equal programs.
    pub digest: u64,
    /// Its name, or the beginning of its text.
    pub title: String,
    /// Whether this member was the last to attach the steering program to the group. Only that
    /// member counts late fragments.
    pub has_set: bool,
    /// When the counters were read, nanoseconds of `CLOCK_MONOTONIC`. 0: never; `u64::MAX`: the
    /// counters can't change.
    pub counted_ns: u64,
    /// This member's counters of the steering program.
    pub counters: Counts,
    /// Fragments that this member's copy of the steering program has read before the first fragment
    /// of the same datagram.
    pub late: u64,
}

impl Running {
    /// The steering program of a new member's page.
    pub(crate) fn new(steering: &Steering) -> Self {
        Self {
            digest: steering.digest(),
            title: shortened(steering.title()),
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
        let running = Self {
            digest: words[at::DIGEST],
            title: title(words),
            has_set: words[at::HAS_SET] == 1,
            counted_ns: words[at::COUNTED_NS],
            counters: words[at::COUNTERS..].try_into().ok()?,
            late: words[at::LATE],
        };
        (running.digest != 0).then_some(running)
    }
}

/// The title as a page has it. A title that does not fit is cut, and ends with a mark.
pub(crate) fn shortened(title: &str) -> String {
    if title.len() <= TITLE_WORDS * 8 {
        return title.to_owned();
    }
    let ends = (0..=TITLE_WORDS * 8 - CUT.len()).rev();
    let end = ends.into_iter().find(|&end| title.is_char_boundary(end));
    title[..end.unwrap_or(0)].to_owned() + CUT
}

fn title(words: &[u64; WORDS]) -> String {
    let title = words[at::TITLE..at::COUNTERS].iter();
    let title = title.flat_map(|word| word.to_ne_bytes());
    let title: Vec<u8> = title.take_while(|&byte| byte != 0).collect();
    harmless_text(&String::from_utf8_lossy(&title))
}

/// The mark of a title that was cut.
const CUT: &str = "…";

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
    /// The process that opened the member's handle.
    pub pid: u32,
    /// The group's mode with its options.
    pub mode: Mode,
    /// The member's class, 0 to 63; 0 is the default class.
    pub class: u8,
    /// Name of the application, safe to print.
    pub program: String,
    /// Device and inode of the application's executable.
    pub executable: (u64, u64),
    /// When the counters were read, nanoseconds of `CLOCK_MONOTONIC`; 0: never.
    pub read_ns: u64,
    /// The member's counters.
    pub counters: MemberCounters,
    /// Packets that our reader has taken from the ring so far; `None` where the system's library
    /// reads. The reader updates this value at once, so it may be newer than `read_ns`.
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
    /// Whether an engine also captures packets that the host sends for the member.
    pub captures_sent: bool,
    /// The numbers that the descriptors of the shared objects have in the member's process. If the
    /// device has a registry, the numbers of the registry's descriptors follow. `None` if the
    /// numbers are not known.
    pub shared: Option<Vec<RawFd>>,
    /// Whether the host loses the device's packets because of the setting `steal = yes`. The
    /// library refuses this setting where the host or a container uses the device, and checks for
    /// such a use at the join.
    pub steals: bool,
    /// Whether the page is that of the group's founder, which is no member.
    pub is_founder: bool,
    /// When the application last looked for packets; see [`Record::unread_for`].
    pub last_look: LastLook,
    /// The group's steering program, if it has one.
    pub steering: Option<Running>,
    /// Why the member began its group with mode `hash`, although `flow` is the default; `None` if
    /// it did not.
    pub no_flow: Option<NoFlow>,
}

impl Record {
    /// Whether an engine other than packet sockets fills the member's rings.
    pub fn is_on_engine(&self) -> bool {
        let shared = self.shared.as_ref();
        shared.is_some_and(|numbers| numbers.len() == WITH_REGISTRY)
    }

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
        let [e, f] = [self.mode.kind.kernel_type(), self.class];
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
        words[at::RING_BYTES] = self.ring_bytes | (u64::from(self.captures_sent) * SENT);
        let shared = self.shared.as_deref().map(shared_words);
        [words[at::SHARED], words[at::REGISTRY]] = shared.unwrap_or_default();
        words[at::REGISTRY] |= u64::from(self.steals) * STEALS;
        words[at::REGISTRY] |= u64::from(self.is_founder) * FOUNDS;
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
        let [a, b, c, d, kind, class, g, h] = words[PROCESS].to_ne_bytes();
        let name = [words[NAME].to_ne_bytes(), words[NAME + 1].to_ne_bytes()];
        let name = name.as_flattened().split(|&byte| byte == 0).next()?;
        let since = |which: usize| {
            let total = words[at::BY_LIBRARY[which]].checked_add(words[at::BY_US[which]])?;
            total.checked_sub(words[BEFORE[which]])
        };
        let taken = Some(words[at::TAKEN]).filter(|&taken| taken != NOT_READ_BY_US);
        // The reader first takes the packets that were in the ring before the member joined. They
        // do not count for the member.
        let earlier = words[BEFORE[0]].saturating_sub(words[BEFORE[1]]);
        let read_ns = words[at::READ_NS];
        let read_taken = taken.filter(|_| read_ns > 0).map(|_| words[at::READ_TAKEN]);
        let is_idle = taken.is_some_and(|taken| taken == words[at::IDLE_TAKEN]);
        let mode = Mode::from_kernel(kind, u16::from_ne_bytes([g, h]))?;
        Some(Self {
            pid: u32::from_ne_bytes([a, b, c, d]),
            mode,
            class,
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
            ring_bytes: words[at::RING_BYTES] & !SENT,
            captures_sent: words[at::RING_BYTES] & SENT != 0,
            shared: shared_numbers(words[at::SHARED], words[at::REGISTRY] & !(STEALS | FOUNDS)),
            steals: words[at::REGISTRY] & STEALS != 0,
            is_founder: words[at::REGISTRY] & FOUNDS != 0,
            last_look: LastLook::decode(words, taken.is_some()),
            steering: Running::decode(words).filter(|_| mode.kind == ModeKind::Program),
            no_flow: NoFlow::decode(words[at::TITLE]).filter(|_| mode.kind == ModeKind::Hash),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
