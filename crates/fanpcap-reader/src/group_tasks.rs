//! The group as the reader of one of its members sees it. A reader knows nothing of the other
//! members, but its thread is the one that can do something for the group.

use crate::borrowed::Claims;
use fanpcap_linux::file::shared::Word;
use fanpcap_ring::{Mark, Position, Remains};
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What the group of a member asks of the member's reader.
pub trait GroupTasks: Send + Sync {
    /// A descriptor that poll(2) finds readable while the group wants something: a member is gone,
    /// a newcomer knocks. It stays the same, and open, as long as the reader lives. It is an
    /// epoll(7) instance or the like: who waits can't leave out the hang-up of a pipe.
    fn waits_on(&self) -> Option<BorrowedFd<'_>>;

    /// Does what the group wants. Afterwards the descriptor is not readable any more, or the answer
    /// says when to call again.
    ///
    /// The reading thread calls it, never within a callback. The first call comes when the
    /// application looks for packets for the first time. Later calls come when the descriptor is
    /// readable, or the time to call again has come. A reader that waits notices that at once, a
    /// busy one about ten times a second. Signals are held back during the call.
    fn attend(&self) -> TaskResult;

    /// The member's device went down. The kernel links the group's sockets anew when it is up
    /// again. The reader attends as soon as it can after it.
    fn note_down(&self);
}

/// Not of each company: all that it refers to would be in the library as text.
impl fmt::Debug for dyn GroupTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GroupTasks")
    }
}

/// What became of an attention.
#[derive(Debug, Default)]
pub struct TaskResult {
    /// Rings of members that are dead or do not read, which this reader reads to the end from now
    /// on.
    pub inherited: Vec<Takeover>,
    /// After how long to attend again, whatever the descriptor says. Until then nobody waits on the
    /// descriptor: another member may hold the group's lock.
    pub again: Option<Duration>,
    /// After how long to attend at the latest, if the descriptor does not ask for it before. Unused
    /// with `again`.
    pub latest: Option<Duration>,
    /// Whether packets may not come any more: the reader asks the port.
    pub is_lost: bool,
    /// The first so many frames of the member's ring were read by others: the reader skips them.
    pub skipped: Option<u64>,
}

/// Another member's ring, and where its new reader publishes how far it has come.
pub struct Takeover {
    /// What is unread.
    pub remains: Remains,
    /// Where to publish it.
    pub published: PublishedPosition,
    /// Of a ring whose owner lives: how frames are claimed. All is read too when the owner takes
    /// its ring back.
    pub claims: Option<Claims>,
    /// Called by the thread that reads when all is read, with how many frames this reader has
    /// taken. Not called when the reader is closed before: the position says what is left.
    pub done: Box<dyn FnOnce(u64) + Send>,
}

impl fmt::Debug for Takeover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Takeover")
            .field("remains", &self.remains)
            .finish_non_exhaustive()
    }
}

/// The words that say how far a reader has come in its ring: who adopts the ring reads on from
/// there.
#[derive(Clone, Debug)]
pub struct PublishedPosition {
    /// Set to the frames that were taken since the ring was made, before each is delivered.
    pub taken: Word,
    /// Set to the ring's [`Mark`] with each block, before its first frame is taken.
    pub mark: Word,
}

impl PublishedPosition {
    /// What the words say.
    pub fn get(&self) -> Position {
        Position {
            taken: self.taken.get(),
            mark: Mark::from_word(self.mark.get()),
        }
    }
}
