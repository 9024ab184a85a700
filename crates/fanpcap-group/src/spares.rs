//! Rings that a group's founder makes for newcomers on an engine. A newcomer that lacks the
//! privilege to make its own rings asks for them by words of the table, and takes them from the
//! descriptor store.
//!
//! A newcomer that finds no rings in the store asks once. The founder makes as many rings as
//! newcomers have asked for, and counts what it has put into the store. If nobody else waits, who
//! takes the last rings asks once more, so that the next newcomer need not wait. A founder makes no
//! rings before somebody asks: they take memory, and members with the privilege need none.
//!
//! The store has rings of one size only. A newcomer that waits writes the size that it wants to the
//! table, and the founder then removes rings of another size. So newcomers that want rings of
//! different sizes get them in turn.
//!
//! Rings that a newcomer has taken never come back into the store. So no process that has them
//! mapped can reach the rings of a later member.

use crate::engine_error::EngineError;
use crate::guard::{GroupGuard, GroupLock};
use crate::shared::Shared;
use crate::steered::SteerError;
use crate::table::{Table, at};
use fanpcap_engine::fd_store::StoredFd;
use fanpcap_engine::{Ask, Engine, MemberIo, OnDevice, Refusal, faults};
use fanpcap_linux::wait::clock;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// How long a newcomer waits while the founder puts no rings into the store, and how long in all:
/// the founder may make rings for many newcomers.
const MADE_WITHIN_NS: u64 = 3_000_000_000;
const ALL_MADE_WITHIN_NS: u64 = 30_000_000_000;

/// The pause between two looks of a newcomer that waits.
const STEP: Duration = Duration::from_millis(5);

/// How long a founder tries to take the group's lock, and the pause between two attempts.
const LOCKED_WITHIN: Duration = Duration::from_millis(50);
const LOCK_STEP: Duration = Duration::from_millis(1);

/// How long a founder makes rings at once, before it does its other work.
const MAKES_FOR: Duration = Duration::from_millis(100);

/// How long the last rings that were made stay, though newcomers now ask for another size: another
/// newcomer is about to take them.
const TAKEN_WITHIN: Duration = Duration::from_millis(100);

/// The most rings in the store, and the most bytes of these rings: any member can write to the
/// table.
pub(crate) const AHEAD_MAX: u64 = 16;
const AHEAD_BYTES: u64 = 1 << 30;

/// Why a founder can't make rings.
#[derive(Debug)]
pub enum SparesError {
    /// The group's lock.
    Lock(SteerError),
    /// The descriptor store.
    Store(io::Error),
    /// The engine.
    Rings(Refusal),
}

impl fmt::Display for SparesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Store(error) => write!(f, "the group's descriptor store: {error}"),
            Self::Rings(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for SparesError {}

/// The bytes of the rings that the engine makes if `asked` bytes are asked for: the store tells
/// rings apart by this size. `None` if the engine makes no rings on this machine.
pub(crate) fn size(engine: &dyn Engine, asked: Option<u32>) -> Option<u32> {
    let bytes = engine.ring_bytes(asked)?;
    u32::try_from(bytes).ok()
}

/// Adds to the number of rings that newcomers have asked for. The caller holds the group's lock.
fn ask(table: Table<'_>, more: i64) {
    let asked = table.get(at::ASKED_RINGS);
    table.set(at::ASKED_RINGS, asked.wrapping_add_signed(more));
}

/// Whether the founder has yet to make rings that newcomers have asked for, if it has made this
/// many. It may have made more, because a newcomer that gives up withdraws its request.
fn is_owed(table: Table<'_>, made: u64) -> bool {
    let owed = table.get(at::ASKED_RINGS).wrapping_sub(made);
    (1..1 << 63).contains(&owed)
}

/// Takes rings that the founder has made, of the size that is `asked`. If the group still has its
/// founder, waits until the founder makes some. `None` if there are none.
///
/// # Errors
/// The errors of the group's lock and of the descriptor store.
pub(crate) fn take(
    shared: &Shared,
    lock: &GroupLock,
    asked: Option<u32>,
    has_founder: bool,
) -> Result<Option<Vec<OwnedFd>>, EngineError> {
    let of_size = |engine| Some((engine, size(engine, asked)?));
    let Some((engine, bytes)) = shared.engine.and_then(of_size) else {
        return Ok(None);
    };
    let table = shared.table();
    let begin = clock::monotonic_ns();
    // The founder's count at the last look into the store, and when it changed.
    let mut looked: Option<(u64, u64)> = None;
    loop {
        let (made, now) = (table.get(at::MADE_RINGS), clock::monotonic_ns());
        let is_late = |(_, at)| now > at + MADE_WITHIN_NS || now > begin + ALL_MADE_WITHIN_NS;
        let is_over = looked.map_or(!has_founder, is_late);
        // Other newcomers may write another size meanwhile.
        table.set(at::ASKED_BYTES, bytes.into());
        // Looks only if there may be rings, because many newcomers may wait for the lock.
        if is_over || looked.is_none_or(|(it, _)| it != made) {
            let _guard = lock.take().map_err(EngineError::Lock)?;
            let rings = take_one(shared, bytes).map_err(EngineError::of_store(engine))?;
            if rings.is_none()
                && is_over
                && looked.is_some()
                && is_owed(table, table.get(at::MADE_RINGS))
            {
                ask(table, -1);
            }
            if rings.is_some() || is_over {
                return Ok(rings);
            }
            if looked.is_none() {
                ask(table, 1);
            }
            looked = Some((made, clock::monotonic_ns()));
        }
        thread::sleep(STEP);
    }
}

/// Takes rings of this size out of the store, if it has some. The caller holds the group's lock.
fn take_one(shared: &Shared, bytes: u32) -> io::Result<Option<Vec<OwnedFd>>> {
    let (mut found, mut are_last) = (None, true);
    shared.fd_store.visit(&mut |entry, rings| {
        if matches!(entry, StoredFd::Spare(number) if halves(number).1 == bytes) {
            are_last = found.is_none();
            found.get_or_insert((entry, rings));
        }
        are_last
    })?;
    let Some((entry, rings)) = found else {
        return Ok(None);
    };
    faults::step();
    shared.fd_store.remove(entry)?;
    let table = shared.table();
    if are_last && !is_owed(table, table.get(at::MADE_RINGS)) {
        ask(table, 1);
    }
    Ok(Some(rings))
}

/// A founder's part.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    /// How many rings the founder has put into the store, less those that it has removed. The table
    /// has a copy, which the founder does not read: any member can write to it.
    made: u64,
    /// The size in the table, when the founder last removed rings of other sizes.
    asked_bytes: u64,
    /// The upper half of the last entry's number.
    last: u32,
    /// When the last rings were put into the store.
    put_at: Option<Instant>,
    /// Rings that are made and not in the store yet, with their size.
    ready: Option<(u32, Box<dyn MemberIo>)>,
}

impl Spares {
    /// Makes the rings that newcomers have asked for, or some of them: the next call goes on. Does
    /// not hold the group's lock while it makes rings, because this takes a while. If another
    /// process keeps that lock, the next call tries again.
    ///
    /// # Errors
    /// [`SparesError`]. The next call tries again.
    pub(crate) fn provide(&mut self, shared: &Shared, lock: &GroupLock) -> Result<(), SparesError> {
        let Some(on_engine) = shared.engine.zip(shared.on_device.as_deref()) else {
            return Ok(());
        };
        let begin = Instant::now();
        while begin.elapsed() < MAKES_FOR && self.provide_one(on_engine, shared, lock)? {}
        Ok(())
    }

    /// Makes rings if newcomers have asked for some. Returns whether it has put them into the
    /// store.
    fn provide_one(
        &mut self,
        (engine, on_device): (&dyn Engine, &dyn OnDevice),
        shared: &Shared,
        lock: &GroupLock,
    ) -> Result<bool, SparesError> {
        let table = shared.table();
        let asked_bytes = table.get(at::ASKED_BYTES);
        if !is_owed(table, self.made) && asked_bytes == self.asked_bytes {
            return Ok(false);
        }
        // The engine has a largest size.
        let bytes = size(engine, Some(u32::try_from(asked_bytes).unwrap_or(u32::MAX)));
        let (Some(bytes), Some(guard)) = (bytes, take_answering(shared, lock)?) else {
            return Ok(false);
        };
        let has_room = self.make_room(shared, bytes).map_err(SparesError::Store)?;
        drop(guard);
        if !has_room {
            return Ok(false);
        }
        self.asked_bytes = asked_bytes;
        if !is_owed(table, self.made) {
            return Ok(false);
        }
        let rings = match self.ready.take().filter(|(size, _)| *size == bytes) {
            Some((_, rings)) => rings,
            None => make(on_device, bytes).map_err(SparesError::Rings)?,
        };
        self.ready = Some((bytes, rings));
        // Newcomers wait only a second for an answer.
        let _ = shared.answer();
        let guard = take_answering(shared, lock)?;
        // The newcomer may have withdrawn its request meanwhile.
        if guard.is_none() || !is_owed(table, self.made) {
            return Ok(false);
        }
        self.put(shared).map_err(SparesError::Store)
    }

    /// Removes rings of other sizes than `bytes`. Returns whether the store may have more rings.
    /// The caller holds the group's lock.
    fn make_room(&mut self, shared: &Shared, bytes: u32) -> io::Result<bool> {
        let mut numbers = Vec::new();
        shared.fd_store.visit(&mut |entry, _| {
            if let StoredFd::Spare(number) = entry {
                numbers.push(number);
            }
            true
        })?;
        // A process that was killed as it removed an entry has left it twice.
        numbers.sort_unstable();
        numbers.dedup();
        let is_asked = |number: &u64| halves(*number).1 == bytes;
        let (kept, others): (Vec<u64>, Vec<u64>) = numbers.into_iter().partition(is_asked);
        let is_recent = self.put_at.is_some_and(|it| it.elapsed() < TAKEN_WITHIN);
        if is_recent && !others.is_empty() {
            return Ok(false);
        }
        for number in others {
            shared.fd_store.remove(StoredFd::Spare(number))?;
            self.count(shared, self.made.wrapping_sub(1));
        }
        Ok((kept.len() as u64) < most_ahead(bytes))
    }

    /// Puts the rings that are ready into the store, and returns whether there were some. The
    /// caller holds the group's lock.
    fn put(&mut self, shared: &Shared) -> io::Result<bool> {
        let Some((bytes, rings)) = &self.ready else {
            return Ok(false);
        };
        // The removal of an entry needs room, too.
        shared.fd_store.ensure_room()?;
        let number = self.last.wrapping_add(1);
        let entry = StoredFd::Spare(word(number, *bytes));
        shared.fd_store.put(entry, &rings.descriptors())?;
        self.last = number;
        self.ready = None;
        self.put_at = Some(Instant::now());
        self.count(shared, self.made.wrapping_add(1));
        Ok(true)
    }

    fn count(&mut self, shared: &Shared, made: u64) {
        self.made = made;
        shared.table().set(at::MADE_RINGS, made);
    }
}

/// How many rings of this size the store has at most.
fn most_ahead(bytes: u32) -> u64 {
    (AHEAD_BYTES / u64::from(bytes.max(1))).clamp(1, AHEAD_MAX)
}

/// Takes the group's lock; `None` if another process keeps it. Meanwhile answers newcomers: one of
/// them may hold the lock, and waits for the answer.
fn take_answering(shared: &Shared, lock: &GroupLock) -> Result<Option<GroupGuard>, SparesError> {
    let begin = Instant::now();
    while begin.elapsed() < LOCKED_WITHIN {
        if let Some(guard) = lock.try_take().map_err(SparesError::Lock)? {
            return Ok(Some(guard));
        }
        let _ = shared.answer();
        thread::sleep(LOCK_STEP);
    }
    Ok(None)
}

fn make(on_device: &dyn OnDevice, bytes: u32) -> Result<Box<dyn MemberIo>, Refusal> {
    let ask = Ask {
        snaplen: 0,
        bytes: Some(bytes),
        outgoing: false,
    };
    on_device.open(&ask, None)
}

/// The number of an entry: a number that rises, and the size of its rings.
fn word(upper: u32, lower: u32) -> u64 {
    (u64::from(upper) << 32) | u64::from(lower)
}

fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, upper @ ..] = word.to_le_bytes();
    (u32::from_le_bytes(upper), u32::from_le_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rings_in_the_store_take_a_gigabyte_at_most() {
        for (mib, most) in [(4, 16), (64, 16), (65, 15), (128, 8), (256, 4), (2048, 1)] {
            assert_eq!(most_ahead(mib << 20), most, "{mib}");
        }
        assert_eq!([0, u32::MAX].map(most_ahead), [16, 1]);
    }

    #[test]
    fn an_entry_tells_the_size_of_its_rings() {
        for (number, bytes) in [(0, 0), (1, 64 << 20), (u32::MAX, 1), (7, u32::MAX)] {
            assert_eq!(halves(word(number, bytes)), (number, bytes));
        }
    }
}
