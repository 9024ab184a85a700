//! The layout of a member page: which word is where.

use fanpcap_steer::ir::COUNTERS;
use std::os::fd::RawFd;

/// The first bytes of a page. The digit is the version of the layout and of the locks, as in
/// [`fanpcap_engine::root`].
pub(crate) const MAGIC: [u8; 8] = *b"FANPCAP7";

/// The number of 64-bit words of a page. The words are in native byte order. The words before
/// [`at::READ_NS`] are constant:
///
/// - one word: magic
/// - one word: pid, mode, class and flags
/// - two words: the application's name
/// - two words: device and inode of the application's executable
/// - two words: packets received and dropped that the socket had counted before the member joined
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
    /// `u64::MAX`: the reader waits for packets now. While another member reads the ring because
    /// the application has never looked for packets: the number of frames that the other member has
    /// claimed (`fanpcap_reader::borrowed`).
    pub(crate) const LOOKED_NS: usize = 15;
    /// Frames that our reader has taken from the ring since activation. The word changes with each
    /// packet, so it is not in the cache line of the words before it.
    pub(crate) const TAKEN: usize = 16;
    /// One more than the device's packet counter when the member began to join; 0: the member has
    /// not begun to join. See [`crate::rejecting`], also for the next two words.
    pub(crate) const JOINED_AT: usize = 17;
    /// Packets that the device counted while the member rejected all packets.
    pub(crate) const REJECTED: usize = 18;
    /// One more than the device's packet counter when the member began to reject all packets; 0:
    /// the member does not reject.
    pub(crate) const REJECTING_SINCE: usize = 19;
    /// How many reads of the kernel's counters are in progress. The kernel clears its counters when
    /// they are read, so a member killed during the read loses them.
    pub(crate) const READING: usize = 20;
    /// The block of the ring at which our reader is (`fanpcap_ring::Mark`). After the member's
    /// death another reader continues there.
    pub(crate) const BLOCK: usize = 21;
    /// One more than the value that [`TAKEN`] had when another member first took over this dead
    /// member's ring; 0: no member has taken over the ring. See [`crate::takeover_status`], also
    /// for the next word.
    pub(crate) const OWN_TAKEN: usize = 22;
    /// 1: the counters are final, and no member takes packets from the ring any more.
    pub(crate) const IS_FINAL: usize = 23;
    /// The digest of the group's steering program; 0: none. The member that replaces the steering
    /// program writes this word and [`TITLE`] on all pages.
    pub(crate) const DIGEST: usize = 24;
    /// 1 on the page of the member that attached the steering program to the group, else 0. The
    /// member that replaces the steering program clears the word on the page of the member that had
    /// attached the former one.
    pub(crate) const HAS_SET: usize = 25;
    /// When the counters of the steering program were last read; [`super::UNCHANGING`] if the
    /// counters can't change.
    pub(crate) const COUNTED_NS: usize = 26;
    /// Fragments that this member's copy of the steering program has read before the first fragment
    /// of the same datagram.
    pub(crate) const LATE: usize = 27;
    /// When the member joined, nanoseconds of `CLOCK_MONOTONIC`. Constant; 0 on pages of older
    /// libraries.
    pub(crate) const JOINED_NS: usize = 28;
    /// The numbers that the descriptors of the shared objects have in the member's process: the
    /// table, both ends of the descriptor store, and the rendezvous, 15 bits each; 0: not known.
    pub(crate) const SHARED: usize = 29;
    /// The numbers that the descriptors of the device's registry have in the member's process: both
    /// ends of the registry's descriptor store; 0 if the device has no registry. One more bit of
    /// the word is [`super::STEALS`].
    pub(crate) const REGISTRY: usize = 30;
    /// Bytes of the rings that an engine fills for the member; 0: the socket has the ring. One more
    /// bit of the word is [`super::SENT`].
    pub(crate) const RING_BYTES: usize = 31;
    /// Packets that other members took from the ring before the application looked for the first
    /// time. Until then [`LOOKED_NS`] has their number.
    pub(crate) const BORROWED: usize = 32;
    /// The title of the steering program: its name, or the beginning of its text. Under mode `hash`
    /// the first word says why the member began the group without `flow`
    /// ([`super::super::NoFlow`]), or is 0.
    pub(crate) const TITLE: usize = 33;
    /// This member's counters of the steering program.
    pub(crate) const COUNTERS: usize = TITLE + super::TITLE_WORDS;
}

/// The number of descriptors that the members of a group share: first without the descriptors of a
/// registry, then with them.
pub(crate) const DESCRIPTORS: usize = 4;
pub(crate) const WITH_REGISTRY: usize = 6;

/// The words of [`at::SHARED`] and [`at::REGISTRY`]. Both are 0 if a descriptor's number is too
/// large for its bits, or if there are too few or too many descriptors.
pub(crate) fn shared_words(numbers: &[RawFd]) -> [u64; 2] {
    let word = |numbers: &[RawFd]| numbers.iter().copied().try_fold(1, put_beside);
    let words = match numbers.split_at_checked(DESCRIPTORS) {
        Some((own, [])) => word(own).map(|own| [own, 0]),
        Some((own, registry @ [_, _])) => word(own)
            .zip(word(registry))
            .map(|(own, registry)| [own, registry]),
        Some(_) | None => None,
    };
    words.unwrap_or_default()
}

fn put_beside(word: u64, number: RawFd) -> Option<u64> {
    let number = u64::try_from(number).ok()?;
    (number < SHARED_END).then_some((word << SHARED_BITS) | number)
}

/// The numbers of the descriptors in these two words; `None` if the numbers are not known.
pub(super) fn shared_numbers(own: u64, registry: u64) -> Option<Vec<RawFd>> {
    let number = |word: u64, at: u32| {
        let number = (word >> (at * SHARED_BITS)) & (SHARED_END - 1);
        RawFd::try_from(number).unwrap_or(0)
    };
    let mut numbers: Vec<RawFd> = [3, 2, 1, 0].map(|at| number(own, at)).to_vec();
    if registry != 0 {
        numbers.extend([1, 0].map(|at| number(registry, at)));
    }
    (own != 0).then_some(numbers)
}

/// A bit of [`at::REGISTRY`]: the host does not get the device's packets, because of the setting
/// `steal = yes`. The numbers of the two descriptors are in the lower half of the word.
pub(crate) const STEALS: u64 = 1 << 32;

/// A bit of [`at::REGISTRY`]: the page is that of the group's founder, which is no member
/// ([`crate::founder`]).
pub(crate) const FOUNDS: u64 = 1 << 33;

/// A bit of [`at::RING_BYTES`]: the engine also captures packets that the host sends.
pub(crate) const SENT: u64 = 1 << 63;

const SHARED_BITS: u32 = 15;
const SHARED_END: u64 = 1 << SHARED_BITS;

/// Value of [`at::COUNTED_NS`]: this member's counters can't change, so they are always current.
pub(crate) const UNCHANGING: u64 = u64::MAX;

/// Words of a steering program's title.
pub(crate) const TITLE_WORDS: usize = 8;

pub(super) const PROCESS: usize = 1;
pub(super) const NAME: usize = 2;
pub(super) const EXECUTABLE: usize = 4;
pub(crate) const BEFORE: [usize; 2] = [6, 7];

/// Value of [`at::TAKEN`]: the system's library reads the member, so the packets taken are unknown.
pub(crate) const NOT_READ_BY_US: u64 = u64::MAX;
