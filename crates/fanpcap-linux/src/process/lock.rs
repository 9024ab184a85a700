//! A lock around data that signal handlers and forked children also use.
//!
//! The lock is a pthread_mutex_t, because ThreadSanitizer intercepts pthread_mutex_lock(3) even in
//! a library that was built without ThreadSanitizer. It does not intercept the futex(2) of std's
//! `Mutex`, so with a `Mutex` it would report races that do not exist.
//!
//! The lock identifies a thread by pthread_self(3). A thread-local variable can't replace this
//! call: its first use may allocate memory, and the thread may be in a signal handler that has
//! interrupted malloc(3).

use crate::process::signal::Blocked;
use std::cell::UnsafeCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A value that only one thread uses at a time. The thread's signals are blocked during the use.
pub struct Lock<T> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    /// The thread that holds the mutex while it forks, by pthread_self(3); 0 if no thread forks. A
    /// thread that finds its own value here is the forking thread.
    forking: AtomicU64,
    /// The signals that the forking thread has blocked.
    signals: UnsafeCell<Option<Blocked>>,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that holds the mutex uses the value and the signals.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// Returns a lock around a value.
    pub const fn new(value: T) -> Self {
        Self {
            mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            forking: AtomicU64::new(0),
            signals: UnsafeCell::new(None),
            value: UnsafeCell::new(value),
        }
    }

    /// Runs `work` on the value. A second call for the same lock, from inside `work`, would wait
    /// for ever.
    ///
    /// If signal handlers call this function, no `work` may allocate or free memory. Otherwise two
    /// threads could wait for each other: a handler that has interrupted malloc(3) waits for the
    /// lock, and the thread with the lock waits for malloc(3) in its `work`.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let own = thread();
        let _held = if self.forking.load(Ordering::Relaxed) == own {
            Held::for_fork(self, own)
        } else {
            Held::new(self)
        };
        // SAFETY: this thread has the mutex. If `work` calls `with` again, that call waits for ever
        // in `Held::new`, so there is never a second reference.
        work(unsafe { &mut *self.value.get() })
    }

    /// Runs `work` on the value, unless another thread has the lock. In a forked child, the lock
    /// may belong to a thread of the parent. This thread does not exist in the child, and never
    /// releases the lock there.
    pub fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        let signals = Blocked::new();
        // SAFETY: the mutex was initialised, and does not move while it is locked.
        if unsafe { libc::pthread_mutex_trylock(self.mutex.get()) } != 0 {
            return None;
        }
        let _held = Held {
            lock: self,
            forking: 0,
            _signals: Some(signals),
        };
        // SAFETY: this thread has the mutex.
        Some(work(unsafe { &mut *self.value.get() }))
    }

    /// The handler for pthread_atfork(3) before the fork. It takes the lock for the forking thread.
    /// Until [`Lock::after_fork`], only this thread can use the value, also in other fork handlers.
    /// If another thread had the lock at the fork, the lock would stay locked in the child, where
    /// that thread does not exist.
    pub fn before_fork(&'static self) {
        let signals = Blocked::new();
        self.lock();
        // SAFETY: this thread has the mutex.
        unsafe { *self.signals.get() = Some(signals) };
        self.forking.store(thread(), Ordering::Relaxed);
    }

    /// The handler for pthread_atfork(3) after the fork, in parent and child.
    pub fn after_fork(&'static self) {
        // SAFETY: this thread has the mutex since `before_fork`.
        let signals = unsafe { (*self.signals.get()).take() };
        self.forking.store(0, Ordering::Relaxed);
        self.unlock();
        drop(signals);
    }

    fn lock(&self) {
        // SAFETY: the mutex was initialised. It does not move while it is locked, because it is
        // then borrowed or static.
        unsafe { libc::pthread_mutex_lock(self.mutex.get()) };
    }

    fn unlock(&self) {
        // SAFETY: as in `lock`. A forked child can also unlock a mutex of this kind.
        unsafe { libc::pthread_mutex_unlock(self.mutex.get()) };
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lock")
    }
}

/// Returns a number of the calling thread, which is never 0. The only thread of a forked child has
/// the same number as the forking thread has in the parent.
fn thread() -> libc::pthread_t {
    // SAFETY: the call has no preconditions.
    unsafe { libc::pthread_self() }
}

struct Held<'a, T> {
    lock: &'a Lock<T>,
    /// The value of `Lock::forking` to restore. If it is 0, dropping this value releases the mutex.
    forking: u64,
    /// Declared last, so that it is dropped last.
    _signals: Option<Blocked>,
}

impl<'a, T> Held<'a, T> {
    fn new(lock: &'a Lock<T>) -> Self {
        let signals = Blocked::new();
        lock.lock();
        Self {
            lock,
            forking: 0,
            _signals: Some(signals),
        }
    }

    /// For the forking thread, which already has the mutex. Until this value is dropped,
    /// `Lock::forking` is 0, so that a call from inside `work` does not get a second reference.
    fn for_fork(lock: &'a Lock<T>, own: u64) -> Self {
        lock.forking.store(0, Ordering::Relaxed);
        Self {
            lock,
            forking: own,
            _signals: None,
        }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        match self.forking {
            0 => self.lock.unlock(),
            own => self.lock.forking.store(own, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn one_thread_at_a_time_has_the_value() {
        let lock = Lock::new(0_u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| lock.with(|value| *value += 1)));
            }
        });
        assert_eq!(lock.with(|value| *value), 4000);
    }

    #[test]
    fn a_panic_leaves_it_unlocked() {
        let lock = Lock::new(1);
        let panicked = thread::scope(|scope| {
            let work = || lock.with(|_| panic!("with it locked"));
            scope.spawn(work).join().is_err()
        });
        assert!(panicked);
        assert_eq!(lock.with(|value| *value), 1);
    }

    #[test]
    fn who_forks_has_the_value_and_others_wait() {
        static LOCK: Lock<u32> = Lock::new(0);
        static CAME: AtomicBool = AtomicBool::new(false);
        LOCK.before_fork();
        let other = thread::spawn(|| {
            LOCK.with(|value| *value += 10);
            CAME.store(true, Ordering::Relaxed);
        });
        (0..2).for_each(|_| LOCK.with(|value| *value += 1));
        thread::sleep(Duration::from_millis(20));
        assert!(
            !CAME.load(Ordering::Relaxed),
            "try_with ran although the lock was held"
        );
        assert_eq!(LOCK.with(|value| *value), 2);
        LOCK.after_fork();
        other.join().unwrap();
        assert_eq!(LOCK.with(|value| *value), 12);
    }
}
