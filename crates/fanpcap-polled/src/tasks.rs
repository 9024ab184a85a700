//! What a member's reader does for the member's group: it says that the application reads, and
//! takes over the pools of members that are gone.
//!
//! The poller gives the buckets of a dead member to other members only while the member that takes
//! over its pool takes no packets. So this member can't take later packets of a flow before earlier
//! ones that are in the dead member's pool.

use fanpcap_linux::file::shared;
use fanpcap_linux::unix::message;
use fanpcap_linux::wait::{Epoll, clock};
use fanpcap_poll::message::{Answer, Request, Takeover, Welcome};
use fanpcap_reader::{self as reader, GroupTasks, PublishedPosition, TaskResult};
use fanpcap_ring::{Pool, PoolClocks, PoolMemory, Remains};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A member's tasks.
pub(crate) struct Tasks {
    connection: Arc<OwnedFd>,
    /// Readable when the poller has sent a message, or when the connection has closed.
    epoll: Epoll,
    welcome: Welcome,
    /// Whether the poller knows that the application reads.
    has_reported: AtomicBool,
    /// Whether the member takes no packets, and the poller knows it.
    holds: AtomicBool,
    /// Whether the poller does not know yet that the member shall hold, because the message had no
    /// room. The member takes packets until then.
    owes_answer: AtomicBool,
}

/// The reader of a pool. Pollers stamp by `CLOCK_MONOTONIC`.
pub(crate) fn pool(memory: PoolMemory, welcome: &Welcome) -> Pool {
    let clocks = PoolClocks {
        now: clock::monotonic_ns,
        offset: clock::realtime_offset_ns,
    };
    Pool::on_device(memory, welcome.ifindex, welcome.hardware, clocks)
}

/// How soon to send a message again for which the connection had no room.
const AGAIN: Duration = Duration::from_millis(10);

/// The most messages of the poller that are read at once.
const MESSAGES_MAX: usize = 64;

/// Bytes of the longest message that a poller sends to a member.
const MESSAGE_LEN: usize = 256;

impl Tasks {
    pub(crate) fn new(connection: Arc<OwnedFd>, welcome: Welcome) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(connection.as_fd(), true)?;
        Ok(Self {
            connection,
            epoll,
            welcome,
            has_reported: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            owes_answer: AtomicBool::new(false),
        })
    }

    /// Says that the application reads, once. Returns when to try again, if the message has no
    /// room.
    pub(crate) fn tell(&self) -> Option<Duration> {
        if self.has_reported.load(Ordering::Relaxed) {
            return None;
        }
        let is_over = is_over(&send(self.connection.as_fd(), &Request::Reads));
        self.has_reported.store(is_over, Ordering::Relaxed);
        (!is_over).then_some(AGAIN)
    }

    /// Says that the member takes no packets from now on. Returns when to try again, if the message
    /// has no room.
    fn hold(&self) -> Option<Duration> {
        let is_over = is_over(&send(self.connection.as_fd(), &Request::Holds));
        self.holds.store(is_over, Ordering::Relaxed);
        self.owes_answer.store(!is_over, Ordering::Relaxed);
        (!is_over).then_some(AGAIN)
    }

    /// Takes packets again.
    fn go_on(&self) {
        self.holds.store(false, Ordering::Relaxed);
        self.owes_answer.store(false, Ordering::Relaxed);
    }

    /// Takes over a pool. A pool that can't be read is given up.
    fn take_over(
        &self,
        takeover: &Takeover,
        descriptors: Vec<OwnedFd>,
    ) -> Option<reader::Takeover> {
        let opened = takeover.open(descriptors);
        let opened = opened.and_then(|it| Ok((it.map()?, it.figures()?)));
        let connection = Arc::clone(&self.connection);
        let member = takeover.member;
        let done = move |_| {
            // If the poller misses this, it keeps the pool until this member ends, too.
            let _ = send(connection.as_fd(), &Request::ReadOut(member));
        };
        let Ok((pool, [taken, rejected, _])) = opened else {
            done(0);
            return None;
        };
        // The poller sees there how many packets were taken and rejected, by whoever takes them.
        let remains = Remains::of_pool(self::pool(pool, &self.welcome), taken.get());
        let [mark] = shared::own(&[0]);
        Some(reader::Takeover {
            remains: match takeover.with_copies {
                true => remains,
                false => remains.without_copies(),
            },
            published: PublishedPosition { taken, mark },
            rejected: Some(rejected),
            claims: None,
            done: Box::new(done),
        })
    }
}

/// Whether a message needs no other attempt: it was sent, or the connection has ended, which the
/// port reports. The kernel may have no room or no memory for the message now.
fn is_over(sent: &io::Result<()>) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, InvalidData, NotConnected};
    let ended = [BrokenPipe, ConnectionReset, NotConnected, InvalidData];
    sent.as_ref()
        .map_or_else(|error| ended.contains(&error.kind()), |()| true)
}

fn send(connection: BorrowedFd<'_>, request: &Request) -> io::Result<()> {
    let bytes = request.encode();
    let bytes = bytes.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    message::send(connection, &bytes, &[])
}

impl GroupTasks for Tasks {
    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn attend(&self) -> TaskResult {
        let mut again = self.tell();
        if self.owes_answer.load(Ordering::Relaxed) {
            again = self.hold().or(again);
        }
        let (mut inherited, mut is_lost) = (Vec::new(), false);
        let mut buffer = [0; MESSAGE_LEN];
        for _ in 0..MESSAGES_MAX {
            match message::receive(self.connection.as_fd(), &mut buffer, 1) {
                Ok(Some(message)) => {
                    let bytes = buffer.get(..message.len).unwrap_or_default();
                    match Answer::decode(bytes) {
                        Ok(Answer::Takeover(takeover)) => {
                            inherited.extend(self.take_over(&takeover, message.descriptors));
                        }
                        Ok(Answer::Hold) => again = self.hold().or(again),
                        Ok(Answer::GoOn) => self.go_on(),
                        Ok(Answer::Welcome(_) | Answer::Refused(_)) | Err(_) => {}
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => {
                    is_lost = true;
                    self.go_on();
                    break;
                }
            }
        }
        TaskResult {
            inherited,
            holds: self.holds.load(Ordering::Relaxed),
            again,
            is_lost,
            ..TaskResult::default()
        }
    }

    fn note_down(&self) {}
}
