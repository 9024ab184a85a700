//! The locks of a group and of its device. A guard is the right to change a group: its slots, its
//! table, its steering program. Only one thread of one process holds the guard at a time.

use crate::identity::Identity;
use crate::page;
use crate::steered::SteerError;
use fanpcap_linux::file::lock;
use fanpcap_linux::process::signal::Blocked;
use fanpcap_linux::process::stat::Stat;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A group's lock, opened once: a process that has dropped its privileges could not open it again.
#[derive(Clone, Debug)]
pub(crate) struct GroupLock(
    /// The file with all locks, and the bytes that are the locks of the group, of the device's
    /// registry and of newcomers to the device. `None` without pages.
    Option<(Arc<File>, [u32; 3])>,
);

/// The indices of the three bytes of a [`GroupLock`].
const GROUP: usize = 0;
const REGISTRY: usize = 1;
const NEWCOMERS: usize = 2;

/// The right to change a group, until it is dropped or the process ends.
#[derive(Debug)]
pub struct GroupGuard {
    lock: GroupLock,
    /// The lock among the threads of this process. This is the last field, so it is released after
    /// the lock among processes.
    _thread: Thread,
}

impl GroupLock {
    /// Opens the lock of a member's group. If there are no pages, or if the file with the locks is
    /// another user's, no other process can find the group. In that case the lock only keeps the
    /// threads of this process from changing the group at the same time.
    ///
    /// # Errors
    /// [`SteerError::Pages`].
    pub(crate) fn open(identity: &Identity) -> Result<Self, SteerError> {
        let Some(group_dir) = identity.group_dir() else {
            return Ok(Self(None));
        };
        match group_dir.locks() {
            Err(error) if is_elsewhere(error.kind()) => Ok(Self(None)),
            opened => {
                let (file, numbers) = opened.map_err(SteerError::Pages)?;
                Ok(Self(Some((Arc::new(file), numbers))))
            }
        }
    }

    /// Waits for the lock for at most ten seconds, or for one second if the process that holds the
    /// lock is stopped.
    ///
    /// # Errors
    /// [`SteerError::Busy`] or [`SteerError::BusyBy`] when another member holds the lock for
    /// longer; [`SteerError::Pages`] when the lock can't be taken.
    pub(crate) fn take(&self) -> Result<GroupGuard, SteerError> {
        self.wait_for(GROUP, || self.try_take())
    }

    /// Waits for one of the locks. The wait is long: on a busy machine many members may wait, and
    /// each of them holds the lock for a while.
    fn wait_for<T>(
        &self,
        which: usize,
        mut take: impl FnMut() -> Result<Option<T>, SteerError>,
    ) -> Result<T, SteerError> {
        let end = Instant::now() + PATIENCE;
        let mut look = Instant::now() + LOOKED_AFTER;
        loop {
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            let now = Instant::now();
            if now >= look {
                look = now + LOOKED_AFTER;
                let file = self.0.as_ref();
                let holder = file.and_then(|(file, numbers)| lock::holder(file, numbers[which]));
                if now >= end || holder.is_some_and(|it| it.is_stopped()) {
                    return Err(holder.map_or(SteerError::Busy, SteerError::BusyBy));
                }
            }
            thread::sleep(STEP);
        }
    }

    /// Announces a newcomer on the device, until the result is dropped. No page shows the newcomer
    /// yet. Returns `None` if other processes can't see the lock.
    pub(crate) fn arrive(&self) -> Option<Claim> {
        let (file, numbers) = self.0.as_ref()?;
        let claim = Claim(Arc::clone(file), numbers[NEWCOMERS]);
        lock::share_byte(file, claim.1).ok()?.then_some(claim)
    }

    /// Claims a slot of the group for this newcomer, until the result is dropped. `None` if another
    /// newcomer has claimed the slot, or if other processes can't see the lock.
    pub(crate) fn claim(&self, slot: u8) -> Option<Claim> {
        let (file, numbers) = self.0.as_ref()?;
        let claim = Claim(Arc::clone(file), page::hash(numbers[GROUP], &[b'/', slot]));
        lock::try_take_byte(file, claim.1).ok()?.then_some(claim)
    }

    /// Whether other processes can see the lock.
    pub(crate) fn is_seen(&self) -> bool {
        self.0.is_some()
    }

    /// Whether a newcomer of another handle is announced on the device.
    pub(crate) fn sees_arriving(&self) -> bool {
        let locks = self.0.as_ref();
        locks.is_some_and(|(file, it)| lock::is_byte_shared(file, it[NEWCOMERS]).unwrap_or(false))
    }

    /// A stopped process among the newcomers to the device; `None` if the device has no newcomers,
    /// or if any of them is not stopped.
    pub(crate) fn stopped_newcomer(&self) -> Option<Stat> {
        let (file, numbers) = self.0.as_ref()?;
        let newcomers = lock::holders(file, numbers[NEWCOMERS]);
        let all_are = newcomers.iter().all(Stat::is_stopped);
        newcomers.into_iter().next().filter(|_| all_are)
    }

    /// Takes the lock; `None` if another member holds it.
    ///
    /// # Errors
    /// [`SteerError::Pages`].
    pub(crate) fn try_take(&self) -> Result<Option<GroupGuard>, SteerError> {
        let Some(of_thread) = Thread::take() else {
            return Ok(None);
        };
        if let Some((file, numbers)) = &self.0 {
            if !lock::try_take_byte(file, numbers[GROUP]).map_err(SteerError::Pages)? {
                return Ok(None);
            }
        }
        Ok(Some(GroupGuard {
            lock: self.clone(),
            _thread: of_thread,
        }))
    }
}

impl GroupGuard {
    /// Waits for the lock of the group of `identity`, as [`GroupLock::take`] does.
    ///
    /// # Errors
    /// As [`GroupLock::open`] and [`GroupLock::take`].
    pub fn take(identity: &Identity) -> Result<Self, SteerError> {
        GroupLock::open(identity)?.take()
    }

    /// Waits for the lock of the device's registry, as [`GroupLock::take`] does. A thread that
    /// holds this lock takes no further lock.
    ///
    /// # Errors
    /// As [`GroupLock::take`].
    pub(crate) fn device_guard(&self) -> Result<DeviceGuard<'_>, SteerError> {
        self.lock.wait_for(REGISTRY, || self.try_device_guard())
    }

    /// Takes the lock of the device's registry; `None` if another process holds it.
    ///
    /// # Errors
    /// [`SteerError::Pages`].
    pub(crate) fn try_device_guard(&self) -> Result<Option<DeviceGuard<'_>>, SteerError> {
        let is_taken = match &self.lock.0 {
            Some((file, numbers)) => {
                !lock::try_take_byte(file, numbers[REGISTRY]).map_err(SteerError::Pages)?
            }
            // Without pages all members are in this process, and [`Thread`] lets only one of its
            // threads hold a guard.
            None => false,
        };
        Ok((!is_taken).then_some(DeviceGuard(self)))
    }
}

/// The process that has held the lock of a group, or of its device's registry, for longer than a
/// change takes; `None` if no process has held it for so long, or if the process is unknown.
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
    [GROUP, REGISTRY]
        .into_iter()
        .find_map(|it| holder(numbers[it]))
}

/// Nearly all changes take less time than this.
const CHANGED_WITHIN: Duration = Duration::from_millis(100);

/// The right to change a device's registry, until it is dropped.
#[derive(Debug)]
pub(crate) struct DeviceGuard<'a>(&'a GroupGuard);

impl Drop for DeviceGuard<'_> {
    fn drop(&mut self) {
        if let Some((file, numbers)) = &self.0.lock.0 {
            let _ = lock::release_byte(file, numbers[REGISTRY]);
        }
    }
}

/// A newcomer's claim on a device or on a slot, while no page and no table shows the newcomer yet.
/// Other newcomers wait while a device is claimed, and leave a claimed slot alone. The claim ends
/// with the process.
#[derive(Debug)]
pub(crate) struct Claim(Arc<File>, u32);

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = lock::release_byte(&self.0, self.1);
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        if let Some((file, numbers)) = &self.lock.0 {
            // Release the byte explicitly: a child that was forked while the guard was held has a
            // copy of the descriptor, and the copy would keep the lock.
            let _ = lock::release_byte(file, numbers[GROUP]);
        }
    }
}

fn is_elsewhere(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, ReadOnlyFilesystem};
    [NotFound, PermissionDenied, ReadOnlyFilesystem].contains(&kind)
}

/// The process whose thread holds a guard; 0: none. In a forked child this is the parent's process
/// id. So the child finds that none of its own threads holds a guard.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// The lock among the threads of a process. The thread's signals are blocked: a handler that leaves
/// by siglongjmp(3) would never release the lock.
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
        // Make the value only when the lock is taken: dropping the value releases the lock.
        (is_free && take().is_ok()).then(|| Self { _signals: signals })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        TAKEN.store(0, Ordering::Release);
    }
}

/// How long to wait for a lock, how often to check which process holds the lock, and the pause
/// between two attempts to take the lock.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 3 } else { 10 });
pub(crate) const LOOKED_AFTER: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because all threads share the lock.
    #[test]
    fn one_thread_holds_the_lock_and_a_parents_is_free() {
        let first = Thread::take().unwrap();
        for _ in 0..2 {
            assert!(Thread::take().is_none(), "the first guard holds the lock");
        }
        drop(first);
        let again = Thread::take().unwrap();
        // The state in a child that was forked while another thread held the lock.
        TAKEN.store(std::process::id() + 1, Ordering::Relaxed);
        assert!(Thread::take().is_some());
        drop(again);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 0);
    }

    /// Does not use the lock among threads, because other tests of this process take it.
    #[test]
    fn a_lock_is_waited_for_and_who_has_it_is_named() {
        let path = std::env::temp_dir().join(format!("fanpcap-turn-{}", std::process::id()));
        let [ours, others] = [(); 2].map(|()| File::create(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        let ours = Arc::new(ours);
        let lock = GroupLock(Some((Arc::clone(&ours), [7, 8, 9])));
        let try_take = || {
            let taken = lock::try_take_byte(&ours, 7).map_err(SteerError::Pages)?;
            Ok(taken.then_some(()))
        };
        let take = || lock.wait_for(GROUP, try_take);
        assert!(lock::try_take_byte(&others, 7).unwrap());
        thread::scope(|scope| {
            let copy = others.try_clone().unwrap();
            scope.spawn(move || {
                thread::sleep(LOOKED_AFTER * 3 / 2);
                lock::release_byte(&copy, 7).unwrap();
            });
            assert!(take().is_ok(), "on a busy machine changes take long");
        });
        lock::release_byte(&ours, 7).unwrap();
        assert!(lock::try_take_byte(&others, 7).unwrap());
        let error = take().unwrap_err();
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
        assert!(take().is_ok());
    }
}
