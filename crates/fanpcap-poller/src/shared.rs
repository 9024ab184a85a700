//! What the poller shares with a member, and the thread of a user that wakes this user's members
//! and closes what was shared with them. Both may take as long as a member wants:
//!
//! * The kernel calls all that watch the member's end of its bell when the poller wakes the member
//!   or closes its own end, and a member may have many epoll instances.
//! * The last close of a file waits for each epoll instance that watches the file, and such an
//!   instance may wait for memory of a file system in user space, to which it writes events
//!   (fs/eventpoll.c, `eventpoll_release_file`, `ep_send_events`). A member can watch the pool's
//!   array, and its end of the bell.
//! * On older kernels, the close of an epoll instance waits until no thread of the machine waits in
//!   such a close (`epmutex` in fs/eventpoll.c). The poller watches the array of a pool that it has
//!   given up.

use crate::accounts::Account;
use fanpcap_linux::unix::message;
use fanpcap_poll::{Holders, PoolFile};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// The thread of a user. It ends when this value and all that is shared with the user's members is
/// dropped. Nobody waits for it.
#[derive(Debug)]
pub(crate) struct UserThread(Sender<Work>);

/// A member's pool, and the poller's end of its bell. Whoever has a mapping of the pool has a clone
/// too, and drops it after the mapping. So the last close is in the user's thread.
#[derive(Debug)]
pub struct Shared(Option<Arc<Ends>>);

/// A value that another thread drops.
pub struct DroppedThere<T: Send + 'static> {
    value: Option<T>,
    thread: Sender<Work>,
}

/// A descriptor that the user's thread closes.
pub type ClosedThere = DroppedThere<OwnedFd>;

/// A pool that the poller has given up.
#[derive(Debug)]
pub(crate) struct Left {
    holders: DroppedThere<Holders>,
    /// The pool has the other clone until the poller has closed it.
    open: Arc<()>,
}

#[derive(Debug)]
struct Ends {
    pool: PoolFile,
    bell: OwnedFd,
    /// Whether the thread is to wake the member.
    is_rung: AtomicBool,
    thread: Sender<Work>,
    /// It is dropped after the pool has been closed, which may take long.
    open: Arc<()>,
}

enum Work {
    Wake(Arc<Ends>),
    Drop(#[expect(dead_code, reason = "it is only dropped")] Arc<Ends>),
    DropOther(#[expect(dead_code, reason = "it is only dropped")] Box<dyn Send>),
}

impl UserThread {
    /// Starts the thread of this user.
    ///
    /// # Errors
    /// The error of pthread_create(3).
    pub(crate) fn start(account: Account) -> io::Result<Self> {
        Self::named(format!("user {account}"))
    }

    /// Starts a thread that closes what belongs to no user: the watches of [`Left`] pools. They all
    /// wait for the same lock.
    ///
    /// # Errors
    /// The error of pthread_create(3).
    pub(crate) fn for_left_pools() -> io::Result<Self> {
        Self::named("left pools".to_owned())
    }

    fn named(name: String) -> io::Result<Self> {
        let (sender, work) = mpsc::channel();
        let thread = thread::Builder::new().name(name);
        thread.spawn(move || run(&work))?;
        Ok(Self(sender))
    }

    /// What is shared with a member: the pool, and this end of a socket pair.
    pub(crate) fn shared(&self, pool: PoolFile, bell: OwnedFd) -> Shared {
        Shared(Some(Arc::new(Ends {
            pool,
            bell,
            is_rung: AtomicBool::new(false),
            thread: self.0.clone(),
            open: Arc::new(()),
        })))
    }

    /// A descriptor that the thread closes when the returned value is dropped.
    pub(crate) fn closed_there(&self, fd: OwnedFd) -> ClosedThere {
        dropped_by(&self.0, fd)
    }
}

fn dropped_by<T: Send + 'static>(thread: &Sender<Work>, value: T) -> DroppedThere<T> {
    DroppedThere {
        value: Some(value),
        thread: thread.clone(),
    }
}

impl Shared {
    /// Wakes the member. Does not wait.
    pub fn ring(&self) {
        let ends = self.ends();
        if !ends.is_rung.swap(true, Ordering::AcqRel) {
            // The thread lives as long as anything is shared.
            let _ = ends.thread.send(Work::Wake(Arc::clone(ends)));
        }
    }

    /// The pool, after the poller has given it up. `closer` closes its watch. `None` for a memory
    /// file, of which nobody can tell whether a process has it.
    pub(crate) fn left(&self, closer: &UserThread) -> Option<Left> {
        let ends = self.ends();
        let holders = dropped_by(&closer.0, ends.pool.holders()?);
        let open = Arc::clone(&ends.open);
        Some(Left { holders, open })
    }

    fn ends(&self) -> &Arc<Ends> {
        self.0.as_ref().expect("only `drop` takes it")
    }
}

impl Left {
    /// Whether any process has the pool, as [`Holders::exist`] tells. Its watch ends when the last
    /// close of the pool begins, but the kernel keeps the memory until the close ends. So a pool
    /// that this process has not closed yet exists, too.
    pub(crate) fn exists(&self) -> bool {
        Arc::strong_count(&self.open) > 1 || self.holders.exist()
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Deref for Shared {
    type Target = PoolFile;

    fn deref(&self) -> &PoolFile {
        &self.ends().pool
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(ends) = self.0.take() {
            let thread = ends.thread.clone();
            let _ = thread.send(Work::Drop(ends));
        }
    }
}

impl<T: Send + 'static> Deref for DroppedThere<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("only `drop` takes it")
    }
}

impl AsFd for ClosedThere {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T: Send + 'static> Drop for DroppedThere<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            let _ = self.thread.send(Work::DropOther(Box::new(value)));
        }
    }
}

impl<T: Send + fmt::Debug + 'static> fmt::Debug for DroppedThere<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

fn run(work: &Receiver<Work>) {
    for work in work {
        if let Work::Wake(ends) = &work {
            ends.is_rung.store(false, Ordering::Release);
            // The socket does not block, whatever the member does with its own end. If the member
            // has not taken the former wake-ups, it is awake, or hangs.
            let _ = message::send(ends.bell.as_fd(), b"!", &[]);
        }
        drop(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::unix::{self, plain};
    use fanpcap_poll::{PoolKind, PoolSize};
    use fanpcap_testkit::await_for::await_so;
    use fanpcap_testkit::loopback::free_address;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    const SIZE: PoolSize = PoolSize {
        lanes: 1,
        block_len: 256 << 10,
        blocks: 3,
    };

    fn pool() -> PoolFile {
        PoolFile::create(PoolKind::File, SIZE).unwrap().0
    }

    /// A socket whose last close takes a thousand seconds (`SO_LINGER`).
    fn lingering(mute: &TcpListener) -> OwnedFd {
        let mut socket = TcpStream::connect(mute.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[7; 1 << 16]).is_ok() {}
        plain::set_linger(socket.as_fd(), 1000).unwrap();
        socket.into()
    }

    /// A close takes long after it has ended the watch.
    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_pool_exists_until_its_close_has_ended() {
        let mute = TcpListener::bind(free_address()).unwrap();
        let array = || PoolFile::create(PoolKind::Array, SIZE).unwrap().0;
        let gone = || array().holders().unwrap();
        assert!(!gone().exist());
        for is_busy in [false, true] {
            let thread = UserThread::start(Account(1)).unwrap();
            let [bell, _] = unix::pair().unwrap();
            let shared = thread.shared(array(), bell);
            let left = Left {
                holders: dropped_by(&thread.0, gone()),
                open: shared.left(&thread).unwrap().open,
            };
            assert!(left.exists());
            if is_busy {
                drop(thread.closed_there(lingering(&mute)));
            }
            drop(shared);
            match is_busy {
                true => assert!(left.exists()),
                false => await_so("the end of the pool", || !left.exists()),
            }
        }
    }

    #[test]
    fn the_thread_of_a_user_closes_what_was_shared_and_no_other_thread_waits() {
        let (begin, mute) = (Instant::now(), TcpListener::bind(free_address()).unwrap());
        let threads = [1, 2, 3].map(|user| UserThread::start(Account(user)).unwrap());
        let shared = threads[0].shared(pool(), lingering(&mute));
        let clones = [(); 3].map(|()| shared.clone());
        shared.ring();
        drop((shared, clones));
        drop(threads[1].closed_there(lingering(&mute)));
        // So is what is closed when it is dropped, such as an epoll instance.
        drop(dropped_by(&threads[1].0, Some(lingering(&mute))));
        // A third user's member is woken.
        let [bell, end] = unix::pair().unwrap();
        let shared = threads[2].shared(pool(), bell);
        assert!(shared.map().is_ok());
        shared.ring();
        await_so("a wake-up", || {
            message::receive(end.as_fd(), &mut [0; 8], 0).is_ok()
        });
        drop((shared, threads));
        await_so("the end of the bell", || {
            message::receive(end.as_fd(), &mut [0; 8], 0).is_ok_and(|it| it.is_none())
        });
        assert!(begin.elapsed() < Duration::from_secs(1000));
    }
}
