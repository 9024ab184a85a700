//! Rings that a group's founder makes for newcomers on an engine. A newcomer that lacks the
//! privilege to make its own rings asks for them by a word of the table, and takes them from the
//! descriptor store.
//!
//! The founder makes as many rings as newcomers have asked for. Who takes the last ones asks once
//! more, so that the next newcomer need not wait. A founder makes no rings before somebody asks:
//! they take memory, and members with the privilege need none.
//!
//! Rings that a newcomer has taken never come back into the store. So no process that has them
//! mapped can reach the rings of a later member.

use crate::guard::{GroupGuard, GroupLock};
use crate::shared::Shared;
use crate::steered::SteerError;
use crate::table::{Table, at};
use fanpcap_engine::fd_store::{FdStore, StoredFd};
use fanpcap_engine::{Ask, MemberIo, Refusal, faults};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

/// How long a newcomer waits for rings. The founder looks ten times a second whether newcomers ask,
/// and may make rings for many of them.
const MADE_WITHIN: Duration = Duration::from_secs(3);

/// When a newcomer that waits asks again: meanwhile the founder may have made rings of another
/// size, for another newcomer.
const AGAIN: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(5);

/// How long a founder tries to take the group's lock, and the pause between two attempts.
const LOCKED_WITHIN: Duration = Duration::from_secs(1);
const LOCK_STEP: Duration = Duration::from_millis(1);

/// How many rings a founder has ahead at most: any member can write to the table.
const AHEAD_MAX: u32 = 16;

/// Why rings can't be taken, or made.
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

/// What newcomers have asked for: how often so far, modulo 2^32, and the size of the rings in the
/// last request, in bytes; 0: the engine's own size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    times: u32,
    bytes: u32,
}

impl Asked {
    fn of(table: Table<'_>) -> Self {
        let (times, bytes) = halves(table.get(at::ASKED_RINGS));
        Self { times, bytes }
    }

    /// Asks once. The caller holds the group's lock.
    fn ask(table: Table<'_>, bytes: u32) {
        let times = Self::of(table).times.wrapping_add(1);
        table.set(at::ASKED_RINGS, word(times, bytes));
    }
}

/// Takes rings that the founder has made, of the size in `ask`. If the group still has its founder,
/// waits until the founder makes some. `None` if there are none.
///
/// # Errors
/// [`SparesError`].
pub(crate) fn take(
    shared: &Shared,
    lock: &GroupLock,
    ask: &Ask,
    has_founder: bool,
) -> Result<Option<Vec<OwnedFd>>, SparesError> {
    let (table, bytes) = (shared.table(), ask.bytes.unwrap_or(0));
    let begin = Instant::now();
    let mut asks = begin;
    loop {
        let guard = lock.take().map_err(SparesError::Lock)?;
        let mut spares = spares(&shared.fd_store).map_err(SparesError::Store)?;
        spares.retain(|(number, _)| halves(*number).1 == bytes);
        if let Some((number, rings)) = spares.pop() {
            faults::step();
            let removed = shared.fd_store.remove(StoredFd::Spare(number));
            removed.map_err(SparesError::Store)?;
            if spares.is_empty() {
                Asked::ask(table, bytes);
            }
            return Ok(Some(rings));
        }
        if !has_founder || begin.elapsed() > MADE_WITHIN {
            return Ok(None);
        }
        if Instant::now() >= asks {
            Asked::ask(table, bytes);
            asks += AGAIN;
        }
        drop(guard);
        thread::sleep(STEP);
    }
}

/// A founder's part.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    /// The requests that were looked at.
    seen: Asked,
    /// How many rings the founder has made so far, modulo 2^32.
    made: u32,
}

impl Spares {
    /// Makes the rings that newcomers have asked for since the last call. Does not hold the group's
    /// lock while it makes rings, because this takes a while. If another process keeps that lock,
    /// the next call tries again.
    ///
    /// # Errors
    /// [`SparesError`]. Newcomers that still wait ask again.
    pub(crate) fn provide(&mut self, shared: &Shared, lock: &GroupLock) -> Result<(), SparesError> {
        let asked = Asked::of(shared.table());
        if asked == self.seen {
            return Ok(());
        }
        let Some(guard) = take_answering(shared, lock)? else {
            return Ok(());
        };
        let spares = spares(&shared.fd_store).map_err(SparesError::Store)?;
        drop(guard);
        let numbers = spares.into_iter().map(|(number, _)| number);
        let is_asked = |number: &u64| halves(*number).1 == asked.bytes;
        let (kept, others): (Vec<u64>, Vec<u64>) = numbers.partition(is_asked);
        let times = asked.times.wrapping_sub(self.seen.times).min(AHEAD_MAX);
        let count = (times as usize).saturating_sub(kept.len());
        let (made, result) = make(shared, asked.bytes, count);
        let Some(_guard) = take_answering(shared, lock)? else {
            return Ok(());
        };
        self.seen = asked;
        for rings in made {
            self.made = self.made.wrapping_add(1);
            let entry = StoredFd::Spare(word(self.made, asked.bytes));
            let put = shared.fd_store.put(entry, &rings.descriptors());
            put.map_err(SparesError::Store)?;
        }
        for number in others {
            let removed = shared.fd_store.remove(StoredFd::Spare(number));
            removed.map_err(SparesError::Store)?;
        }
        result
    }
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

/// Makes `count` rings, or as many as possible. Answers newcomers, who wait only a second.
fn make(
    shared: &Shared,
    bytes: u32,
    count: usize,
) -> (Vec<Box<dyn MemberIo>>, Result<(), SparesError>) {
    let mut made = Vec::new();
    let ask = Ask {
        snaplen: 0,
        bytes: Some(bytes).filter(|&bytes| bytes > 0),
        outgoing: false,
    };
    for on_device in shared.on_device.iter().cycle().take(count) {
        match on_device.open(&ask) {
            Ok(rings) => made.push(rings),
            Err(refusal) => return (made, Err(SparesError::Rings(refusal))),
        }
        let _ = shared.answer();
    }
    (made, Ok(()))
}

/// The rings in the store, with the numbers of their entries. The caller holds the group's lock.
fn spares(store: &FdStore) -> io::Result<Vec<(u64, Vec<OwnedFd>)>> {
    let mut spares = Vec::new();
    store.visit(&mut |entry, descriptors| {
        if let StoredFd::Spare(number) = entry {
            spares.push((number, descriptors));
        }
        true
    })?;
    Ok(spares)
}

fn word(upper: u32, lower: u32) -> u64 {
    (u64::from(upper) << 32) | u64::from(lower)
}

fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, upper @ ..] = word.to_le_bytes();
    (u32::from_le_bytes(upper), u32::from_le_bytes([a, b, c, d]))
}
