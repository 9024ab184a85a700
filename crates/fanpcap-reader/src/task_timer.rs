//! When a company is attended to.

use crate::group_tasks::{GroupTasks, TaskResult};
use fanpcap_linux::wait::{clock, events};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The shortest time to the next attention.
const SHORTEST: Duration = Duration::from_micros(500);

/// A reader's seat in the company of one of its members.
#[derive(Debug)]
pub(crate) struct TaskTimer {
    tasks: Arc<dyn GroupTasks>,
    /// When to attend, whatever the descriptor says, nanoseconds of `CLOCK_MONOTONIC`; 0: when the
    /// descriptor is readable.
    due_ns: AtomicU64,
    /// Until then the descriptor does not count.
    is_put_off: AtomicBool,
}

impl TaskTimer {
    /// The application has not looked for packets yet, so that the seat is due.
    pub(crate) fn new(tasks: Arc<dyn GroupTasks>) -> Self {
        Self {
            tasks,
            due_ns: AtomicU64::new(1),
            is_put_off: AtomicBool::new(true),
        }
    }

    /// The company's descriptor, whether or not to wait on it now.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.tasks.waits_on()
    }

    /// What to wait on.
    #[cold]
    #[inline(never)]
    pub(crate) fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor().filter(|_| self.heeds_descriptor())
    }

    /// Whether the descriptor counts now.
    pub(crate) fn heeds_descriptor(&self) -> bool {
        !self.is_put_off.load(Ordering::Relaxed)
    }

    /// How long until it is attended to, whatever the descriptor says.
    #[cold]
    #[inline(never)]
    pub(crate) fn due(&self) -> Option<Duration> {
        let due_ns = self.due_ns.load(Ordering::Relaxed);
        (due_ns != 0).then(|| Duration::from_nanos(due_ns.saturating_sub(clock::monotonic_ns())))
    }

    /// Whether it is to be attended to now.
    pub(crate) fn is_wanted(&self) -> bool {
        if self.due().is_some_and(|due| due.is_zero()) {
            return true;
        }
        self.waits_on().is_some_and(|descriptor| {
            let found = events::poll(&[descriptor], Some(Duration::ZERO));
            found.is_ok_and(|found| found.contains(&true))
        })
    }

    /// Tells the company that the device went down, and attends to it next.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_down(&self) {
        self.tasks.note_down();
        self.call();
    }

    /// Has the reader attend next, whatever the descriptor says.
    pub(crate) fn call(&self) {
        self.due_ns.store(1, Ordering::Relaxed);
    }

    /// Attends to the company. Returns what it leaves to the reader.
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
