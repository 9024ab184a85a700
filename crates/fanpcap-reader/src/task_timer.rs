//! Decides when the reader runs the tasks of a member's group.

use crate::group_tasks::{GroupTasks, TaskResult};
use fanpcap_linux::wait::{clock, events};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The shortest time until the tasks run again.
const SHORTEST: Duration = Duration::from_micros(500);

/// The group tasks of one member, and the time at which they are due.
#[derive(Debug)]
pub(crate) struct TaskTimer {
    tasks: Arc<dyn GroupTasks>,
    /// The time at which the tasks are due even if the descriptor is not readable, in nanoseconds
    /// of `CLOCK_MONOTONIC`. 0: only a readable descriptor makes the tasks due.
    due_ns: AtomicU64,
    /// Whether the descriptor is ignored until `due_ns`.
    is_put_off: AtomicBool,
}

impl TaskTimer {
    /// A timer whose tasks are due at once, so that they run when the application looks for packets
    /// for the first time.
    pub(crate) fn new(tasks: Arc<dyn GroupTasks>) -> Self {
        Self {
            tasks,
            due_ns: AtomicU64::new(1),
            is_put_off: AtomicBool::new(true),
        }
    }

    /// The group's descriptor, even while the reader ignores it.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.tasks.waits_on()
    }

    /// The group's descriptor; `None` while the reader ignores it.
    #[cold]
    #[inline(never)]
    pub(crate) fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor().filter(|_| self.heeds_descriptor())
    }

    /// Whether a readable descriptor now makes the tasks due.
    pub(crate) fn heeds_descriptor(&self) -> bool {
        !self.is_put_off.load(Ordering::Relaxed)
    }

    /// The time until the tasks are due, if the descriptor does not become readable.
    #[cold]
    #[inline(never)]
    pub(crate) fn due(&self) -> Option<Duration> {
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        (due_ns != 0).then(|| Duration::from_nanos(due_ns.saturating_sub(clock::monotonic_ns())))
    }

    /// Whether the reader must run the tasks now.
    pub(crate) fn is_wanted(&self) -> bool {
        if self.due().is_some_and(|due| due.is_zero()) {
            return true;
        }
        self.waits_on().is_some_and(|descriptor| {
            let found = events::poll(&[descriptor], Some(Duration::ZERO));
            found.is_ok_and(|found| found.contains(&true))
        })
    }

    /// Reports to the group that the device went down, and makes the tasks due.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_down(&self) {
        self.tasks.note_down();
        self.call();
    }

    /// Makes the tasks due at once, even if the descriptor is not readable.
    pub(crate) fn call(&self) {
        self.due_ns.store(1, Ordering::Relaxed);
    }

    /// Runs the tasks. Returns the work that the tasks leave to the reader.
    pub(crate) fn attend(&self) -> TaskResult {
        let attention = self.tasks.attend();
        let after = attention.again.or(attention.latest);
        let due_ns = after.map_or(0, |after| {
            let after = u64::try_from(after.max(SHORTEST).as_nanos()).unwrap_or(u64::MAX);
            clock::monotonic_ns().saturating_add(after)
        });
        self.due_ns.store(due_ns, Ordering::Relaxed);
        let is_put_off = attention.again.is_some();
        self.is_put_off.store(is_put_off, Ordering::Relaxed);
        attention
    }
}
