//! The functions of a member's group that the member's reader calls, and the time of the calls. A
//! reader has no access to the other members, but the group has no thread other than the reader's
//! to run its tasks.

use crate::borrowed::Claims;
use fanpcap_linux::file::shared::Word;
use fanpcap_linux::wait::{clock, events};
use fanpcap_ring::{Mark, Position, Remains};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Tasks that a member's group has for the member's reader.
pub trait GroupTasks: Send + Sync {
    /// A descriptor that poll(2) finds readable while the group has tasks: a member is gone, or a
    /// newcomer asks for membership. The descriptor stays the same, and open, as long as the reader
    /// lives. The descriptor of a pipe does not suffice, because poll(2) reports its hang-up even
    /// to a caller that does not ask for it. An epoll(7) instance suffices.
    fn waits_on(&self) -> Option<BorrowedFd<'_>>;

    /// Runs the group's tasks. Afterwards the descriptor is not readable any more, or the result
    /// says when to call again.
    ///
    /// Only the reading thread calls this function, never within a callback. The first call comes
    /// when the application looks for packets for the first time. Later calls come when the
    /// descriptor is readable, or when the time to call again has come. A waiting reader calls at
    /// once, a busy reader within about a tenth of a second. Signals are blocked during the call.
    fn attend(&self) -> TaskResult;

    /// Notes that the member's device went down. The kernel links the group's sockets again when
    /// the device is up. The reader then runs the group's tasks as soon as possible.
    fn note_down(&self);
}

/// The work that the group's tasks leave to the reader.
#[derive(Default)]
pub struct TaskResult {
    /// Rings of members that are dead or do not read. From now on this reader reads these rings to
    /// the end.
    pub inherited: Vec<Takeover>,
    /// Whether the reader delivers no packets until it runs the tasks again, because another
    /// process may be about to give this reader another ring. That process makes the descriptor
    /// readable.
    pub holds: bool,
    /// The time after which the reader runs the tasks again, even if the descriptor is not
    /// readable. Until then the reader ignores the descriptor, which may stay readable while
    /// another member holds the group's lock.
    pub again: Option<Duration>,
    /// The time after which the reader runs the tasks at the latest, if the descriptor does not
    /// become readable earlier. Unused if `again` is set.
    pub latest: Option<Duration>,
    /// Whether the device has perhaps stopped delivering packets. If so, the reader asks the port
    /// for the link's state.
    pub is_lost: bool,
    /// The number of frames at the start of the member's ring that other members have read. The
    /// reader skips these frames.
    pub skipped: Option<u64>,
}

/// Another member's ring, with the words in which the ring's new reader publishes its position.
pub struct Takeover {
    /// The unread part of the ring.
    pub remains: Remains,
    /// The words in which the new reader publishes its position.
    pub published: PublishedPosition,
    /// The word to which the new reader adds the packets that its filter rejects. `None` if the
    /// kernel runs filters on packets of this ring: then such packets count as taken, and the
    /// reader does not cut packets to what its filter keeps.
    pub rejected: Option<Word>,
    /// The means to claim frames before they are read; `None` if the ring's owner is dead. When the
    /// owner takes its ring back, the reader treats the ring as read to the end.
    pub claims: Option<Claims>,
    /// The reading thread calls this function when the ring is read to the end, with the number of
    /// frames that this reader has taken. If the reader is closed earlier, the function is not
    /// called, and `published` says which frames are unread.
    pub done: Box<dyn FnOnce(u64) + Send>,
}

/// The words in which a reader publishes its position in its ring. A member that takes over the
/// ring reads on from that position.
#[derive(Clone)]
pub struct PublishedPosition {
    /// The number of frames taken since the ring was made. Set before each frame is delivered.
    pub taken: Word,
    /// The [`Mark`] of the block being read. Set before the first frame of each block is taken.
    pub mark: Word,
}

impl PublishedPosition {
    /// The position in the words.
    pub fn get(&self) -> Position {
        Position {
            taken: self.taken.get(),
            mark: Mark::from_word(self.mark.get()),
        }
    }
}

/// The shortest time until the tasks run again.
const SHORTEST: Duration = Duration::from_micros(500);

/// The group tasks of one member, and the time at which they are due.
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
