//! Wakes members. To wake one may take long: the kernel calls all that watch the member's end of
//! its bell, and a member may have many epoll instances. So the bells of each user have a thread of
//! their own.

use fanpcap_linux::unix::message;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// The thread of a user's bells. It ends when this value and all bells are dropped. Nobody waits
/// for it.
#[derive(Debug)]
pub(crate) struct Ringer(Sender<Arc<Wire>>);

/// The poller's end of a member's bell. To drop the last clone closes it, in the ringer's thread:
/// that calls the watchers too.
#[derive(Debug)]
pub struct Bell(Option<Arc<Wire>>);

#[derive(Debug)]
struct Wire {
    socket: OwnedFd,
    /// Whether the thread is to wake the member.
    is_rung: AtomicBool,
    ringer: Sender<Arc<Wire>>,
}

impl Ringer {
    /// Starts the thread of this user.
    ///
    /// # Errors
    /// The error of pthread_create(3).
    pub(crate) fn start(user: u32) -> io::Result<Self> {
        let (sender, wires) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("bells {user}"));
        thread.spawn(move || run(&wires))?;
        Ok(Self(sender))
    }

    /// A bell with this end of a socket pair.
    pub(crate) fn bell(&self, socket: OwnedFd) -> Bell {
        Bell(Some(Arc::new(Wire {
            socket,
            is_rung: AtomicBool::new(false),
            ringer: self.0.clone(),
        })))
    }
}

impl Bell {
    /// Wakes the member. Does not wait.
    pub fn ring(&self) {
        let Some(wire) = &self.0 else { return };
        if !wire.is_rung.swap(true, Ordering::AcqRel) {
            // The thread lives as long as there is a bell.
            let _ = wire.ringer.send(Arc::clone(wire));
        }
    }
}

impl Clone for Bell {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if let Some(wire) = self.0.take() {
            let ringer = wire.ringer.clone();
            let _ = ringer.send(wire);
        }
    }
}

fn run(wires: &Receiver<Arc<Wire>>) {
    for wire in wires {
        if wire.is_rung.swap(false, Ordering::AcqRel) {
            // The socket does not block, whatever the member does with its own end. If the member
            // has not taken the former wake-ups, it is awake, or hangs.
            let _ = message::send(wire.socket.as_fd(), b"!", &[]);
        }
    }
}
