//! The right to replace a group's steering program: one thread of one process has it at a time.
//! Without it, two concurrent replacements could leave the program of one in the kernel, and the
//! filters and pages of the other on the members.

use crate::member::Identity;
use crate::page::GroupDir;
use crate::steered::SteerError;
use fanpcap_linux::file::lock;
use fanpcap_linux::process::signal::Blocked;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// The right to replace a group's steering program, until dropped.
#[derive(Debug)]
pub struct Turn {
    /// The file with the locks of all groups, and the number of the taken lock; `None` where there
    /// are no pages. The kernel releases the lock when the process dies.
    lock: Option<(File, u32)>,
    /// Dropped last.
    _thread: Thread,
}

impl Turn {
    /// Takes the turn. Waits for at most a second.
    ///
    /// # Errors
    /// [`SteerError::Busy`] when another thread or process has the turn for longer.
    /// [`SteerError::Pages`] when the locks can't be taken.
    pub fn take(identity: &Identity) -> Result<Self, SteerError> {
        let of_thread = wait(|| Ok(Thread::take()))?;
        let lock = identity.group_dir().map(take_lock).transpose()?;
        Ok(Self {
            lock: lock.flatten(),
            _thread: of_thread,
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((file, number)) = &self.lock {
            // A forked child has a copy of the descriptor, which would keep the lock.
            let _ = lock::release_byte(file, *number);
        }
    }
}

/// Takes the group's lock; `None` where there are no pages, or this process can't open the locks.
/// Without pages no other member learns of the new program. A replacement that needs other members'
/// pages then fails for that reason.
fn take_lock(group_dir: &GroupDir) -> Result<Option<(File, u32)>, SteerError> {
    let (file, number) = match group_dir.turns() {
        Err(error) if is_elsewhere(error.kind()) => return Ok(None),
        opened => opened.map_err(SteerError::Pages)?,
    };
    wait(|| {
        let is_taken = lock::try_take_byte(&file, number)?;
        Ok(is_taken.then_some(()))
    })?;
    Ok(Some((file, number)))
}

fn is_elsewhere(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    [NotFound, PermissionDenied, ReadOnlyFilesystem].contains(&kind)
}

/// Repeats `attempt` until it returns a value, for [`PATIENCE`] milliseconds.
fn wait<T>(mut attempt: impl FnMut() -> io::Result<Option<T>>) -> Result<T, SteerError> {
    for _ in 0..PATIENCE {
        if let Some(got) = attempt().map_err(SteerError::Pages)? {
            return Ok(got);
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(SteerError::Busy)
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
    }

    #[test]
    fn nobody_is_waited_for_longer_than_a_second() {
        let mut attempts = 0;
        let waited = wait(|| {
            attempts += 1;
            Ok((attempts > 3).then_some(attempts))
        });
        assert_eq!(waited.unwrap(), 4);
        assert!(matches!(wait(|| Ok(None::<()>)), Err(SteerError::Busy)));
    }
}
