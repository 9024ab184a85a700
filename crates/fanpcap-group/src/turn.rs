//! The right to change a group, its slots, its table or its steering program: one thread of one
//! process has it at a time.

use crate::identity::Identity;
use crate::steered::SteerError;
use fanpcap_linux::file::lock;
use fanpcap_linux::process::signal::Blocked;
use fanpcap_linux::process::stat::Stat;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// A group's lock, open. A process that has dropped its privileges could not open it any more.
#[derive(Clone, Debug)]
pub(crate) struct GroupLock(
    /// The file with the groups' locks, and which of them are this group's and its device's dock's;
    /// none without pages.
    Option<(Arc<File>, [u32; 2])>,
);

/// The right to change a group, for as long as it is kept. It ends with the process, however that
/// dies.
#[derive(Debug)]
pub struct Turn {
    lock: GroupLock,
    /// Given back last.
    _thread: Thread,
}

impl GroupLock {
    /// Opens the lock of a member's group. Without pages, or where another user owns the locks,
    /// only the threads of this process exclude each other: no other process finds the group then.
    ///
    /// # Errors
    /// [`SteerError::Pages`].
    pub(crate) fn open(identity: &Identity) -> Result<Self, SteerError> {
        let Some(group_dir) = identity.group_dir() else {
            return Ok(Self(None));
        };
        match group_dir.turns() {
            Err(error) if is_elsewhere(error.kind()) => Ok(Self(None)),
            opened => {
                let (file, numbers) = opened.map_err(SteerError::Pages)?;
                Ok(Self(Some((Arc::new(file), numbers))))
            }
        }
    }

    /// Waits for the turn, for a second at most.
    ///
    /// # Errors
    /// [`SteerError::Busy`] when another has it for longer, [`SteerError::Pages`] when the lock
    /// can't be taken.
    pub(crate) fn take(&self) -> Result<Turn, SteerError> {
        patiently(|| self.try_take()).map_err(|error| self.named(error, 0))
    }

    /// Names the process that has a lock, by its index, where it can be known.
    fn named(&self, error: SteerError, which: usize) -> SteerError {
        let holder = match (&error, &self.0) {
            (SteerError::Busy, Some((file, numbers))) => lock::holder(file, numbers[which]),
            _ => None,
        };
        holder.map_or(error, SteerError::BusyBy)
    }

    /// The turn, if nobody has it.
    ///
    /// # Errors
    /// [`SteerError::Pages`].
    pub(crate) fn try_take(&self) -> Result<Option<Turn>, SteerError> {
        let Some(of_thread) = Thread::take() else {
            return Ok(None);
        };
        if let Some((file, [number, _])) = &self.0 {
            if !lock::try_take_byte(file, *number).map_err(SteerError::Pages)? {
                return Ok(None);
            }
        }
        Ok(Some(Turn {
            lock: self.clone(),
            _thread: of_thread,
        }))
    }
}

impl Turn {
    /// Waits for the turn in the group of `identity`, for a second at most.
    ///
    /// # Errors
    /// As [`GroupLock::open`] and [`GroupLock::take`].
    pub fn take(identity: &Identity) -> Result<Self, SteerError> {
        GroupLock::open(identity)?.take()
    }

    /// Waits for the turn at the dock of the group's device, for a second at most. It is taken
    /// last.
    ///
    /// # Errors
    /// As [`GroupLock::take`].
    pub(crate) fn at_dock(&self) -> Result<AtDock<'_>, SteerError> {
        patiently(|| self.try_at_dock()).map_err(|error| self.lock.named(error, 1))
    }

    /// The turn at the dock, if nobody has it.
    ///
    /// # Errors
    /// [`SteerError::Pages`].
    pub(crate) fn try_at_dock(&self) -> Result<Option<AtDock<'_>>, SteerError> {
        let is_taken = match &self.lock.0 {
            Some((file, [_, dock])) => {
                !lock::try_take_byte(file, *dock).map_err(SteerError::Pages)?
            }
            // Without pages, this process's threads are all there is.
            None => false,
        };
        Ok((!is_taken).then_some(AtDock(self)))
    }
}

/// The process that has had the lock of a group, or of its device's dock, for longer than changes
/// take; `None` if there is none that is known.
pub fn holder(ifindex: u32, group: u16) -> Option<Stat> {
    let lock = GroupLock::open(&Identity::outside(group, ifindex)).ok()?;
    let (file, numbers) = lock.0?;
    let holder = |number| {
        let is_taken = || lock::is_byte_taken(&file, number).unwrap_or(false);
        let lasts = is_taken() && {
            thread::sleep(CHANGED_WITHIN);
            is_taken()
        };
        lasts.then(|| lock::holder(&file, number)).flatten()
    };
    numbers.into_iter().find_map(holder)
}

/// Nearly all changes take less.
const CHANGED_WITHIN: Duration = Duration::from_millis(100);

/// The right to change what all groups on a device share, for as long as it is kept.
#[derive(Debug)]
pub(crate) struct AtDock<'a>(&'a Turn);

impl Drop for AtDock<'_> {
    fn drop(&mut self) {
        if let Some((file, [_, dock])) = &self.0.lock.0 {
            let _ = lock::release_byte(file, *dock);
        }
    }
}

fn patiently<T>(mut take: impl FnMut() -> Result<Option<T>, SteerError>) -> Result<T, SteerError> {
    for _ in 0..PATIENCE {
        if let Some(taken) = take()? {
            return Ok(taken);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(SteerError::Busy)
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((file, [number, _])) = &self.lock.0 {
            // A child that was forked meanwhile has a copy of the descriptor, which would keep the
            // lock.
            let _ = lock::release_byte(file, *number);
        }
    }
}

fn is_elsewhere(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    [NotFound, PermissionDenied, ReadOnlyFilesystem].contains(&kind)
}

/// The process of which a thread has its turn; 0: none. A forked child finds the number of its
/// parent here. No thread of the child has the turn then.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// The turn among the threads of a process. The thread's signals are blocked: a handler that leaves
/// by siglongjmp(3) would never give the turn back.
#[derive(Debug)]
struct Thread {
    _signals: Blocked,
}

impl Thread {
    fn take() -> Option<Self> {
        let signals = Blocked::new();
        let own = std::process::id();
        let other = TAKEN.load(Ordering::Relaxed);
        let is_free = other != own;
        let take = || TAKEN.compare_exchange(other, own, Ordering::Acquire, Ordering::Relaxed);
        // Make the value only when the turn is taken: dropping one gives the turn back.
        (is_free && take().is_ok()).then(|| Self { _signals: signals })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        TAKEN.store(0, Ordering::Release);
    }
}

/// Milliseconds to wait for another thread or process.
const PATIENCE: u32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because the turn is the process's.
    #[test]
    fn one_thread_has_its_turn_and_a_parents_is_none() {
        let first = Thread::take().unwrap();
        for _ in 0..2 {
            assert!(Thread::take().is_none(), "the first one has it");
        }
        drop(first);
        let again = Thread::take().unwrap();
        // The state that a child finds when it was forked while another thread had its turn.
        TAKEN.store(std::process::id() + 1, Ordering::Relaxed);
        assert!(Thread::take().is_some());
        drop(again);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
        who_has_the_lock_is_named();
    }

    fn who_has_the_lock_is_named() {
        let path = std::env::temp_dir().join(format!("fanpcap-turn-{}", std::process::id()));
        let [ours, others] = [(); 2].map(|()| File::create(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let lock = GroupLock(Some((Arc::new(ours), [7, 8])));
        assert!(lock::try_take_byte(&others, 7).unwrap());
        let error = lock.take().unwrap_err();
        let own = std::process::id();
        let text = format!("process {own} is changing it: try again");
        assert_eq!(error.to_string(), text);
        let SteerError::BusyBy(holder) = error else {
            panic!("{error}");
        };
        let stopped = SteerError::BusyBy(Stat {
            state: 'T',
            ..holder
        });
        let text = stopped.to_string();
        assert!(text.ends_with(" is changing it: continue or end that process"));
        lock::release_byte(&others, 7).unwrap();
        assert!(lock.take().is_ok());
    }
}
