//! The functions of a member's group that the member's reader calls. A reader has no access to the
//! other members, but the group has no thread other than the reader's to run its tasks.

use crate::borrowed::Claims;
use fanpcap_linux::file::shared::Word;
use fanpcap_ring::{Mark, Position, Remains};
use std::fmt;
use std::os::fd::BorrowedFd;
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

/// Does not print the implementation: its `Debug` would add the text of all its types to the
/// library.
impl fmt::Debug for dyn GroupTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupTasks")
    }
}

/// The work that the group's tasks leave to the reader.
#[derive(Debug, Default)]
pub struct TaskResult {
    /// Rings of members that are dead or do not read. From now on this reader reads these rings to
    /// the end.
    pub inherited: Vec<Takeover>,
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
    /// The means to claim frames before they are read; `None` if the ring's owner is dead. When the
    /// owner takes its ring back, the reader treats the ring as read to the end.
    pub claims: Option<Claims>,
    /// The reading thread calls this function when the ring is read to the end, with the number of
    /// frames that this reader has taken. If the reader is closed earlier, the function is not
    /// called, and `published` says which frames are unread.
    pub done: Box<dyn FnOnce(u64) + Send>,
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover")
            .field("remains", &self.remains)
            .finish_non_exhaustive()
    }
}

/// The words in which a reader publishes its position in its ring. A member that takes over the
/// ring reads on from that position.
#[derive(Clone, Debug)]
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
