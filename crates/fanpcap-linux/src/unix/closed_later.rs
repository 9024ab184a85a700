//! Descriptors that a thread of the kernel closes.

use super::{message, pair};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Duplicates of descriptors. After this value is dropped, a thread of the kernel closes them. If
/// they are the last descriptors of objects that the kernel releases slowly, such as BPF links and
/// packet sockets, this process need not wait for the release.
///
/// The descriptors lie in the queue of a socket, together with the socket itself. When no process
/// has the socket any more, nobody can receive this message, and the kernel's garbage collector
/// drops it. The collector runs when a socket is closed (net/unix/garbage.c). Before Linux 6.9, the
/// process that closes the socket collects the garbage itself, and waits.
#[derive(Debug)]
pub struct ClosedLater {
    /// The queue is closed first, and also first if the process ends: its number is the lower one.
    queue_and_into: Option<[OwnedFd; 2]>,
}

impl ClosedLater {
    /// Duplicates the descriptors: one less than [`message::DESCRIPTORS_MAX`] at most.
    ///
    /// # Errors
    /// As [`pair`] and [`message::send`].
    pub fn new(descriptors: &[BorrowedFd<'_>]) -> io::Result<Self> {
        let [queue, into] = pair()?;
        let all = [&[queue.as_fd()], descriptors].concat();
        message::send(into.as_fd(), b"x", &all)?;
        Ok(Self {
            queue_and_into: Some([queue, into]),
        })
    }
}

impl Drop for ClosedLater {
    fn drop(&mut self) {
        drop(self.queue_and_into.take());
        // A collection that had begun before may have missed the message. Another closed socket
        // begins the next one.
        drop(pair());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::pipe::{self, Pipe};
    use std::thread;
    use std::time::{Duration, Instant};

    #[test]
    fn the_descriptors_are_open_until_a_while_after_the_drop() {
        let Pipe { read, write } = Pipe::new().unwrap();
        let later = ClosedLater::new(&[write.as_fd()]).unwrap();
        drop(write);
        let is_closed = || pipe::has_hung_up(read.as_fd()).unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(!is_closed());
        drop(later);
        let end = Instant::now() + Duration::from_secs(10);
        while !is_closed() {
            assert!(Instant::now() < end, "the kernel keeps the descriptor");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
