//! One member: its page, and its socket, which is held so that what it lost can be told when it dies.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fanpcap::closing::{CloseError, close_counting};
use fanpcap::page::{Held, Shelf};
use fanpcap::record::Record;
use fanpcap_linux::child::is_lack_of_descriptors;
use fanpcap_linux::pidfd::Process;

use super::Account;

/// A page that is gone for so long was not removed by its member.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// A member of a copy.
#[derive(Debug)]
pub(super) struct Member {
    copy: usize,
    inode: u64,
    /// Where its page is.
    path: Option<PathBuf>,
    /// What its page said last.
    record: Record,
    /// Its page, to be read after its death, when others may have removed it.
    page: Option<Held>,
    process: Option<Process>,
    socket: Option<OwnedFd>,
    /// When its page was found gone.
    leaving: Option<Instant>,
}

impl Member {
    /// Holds a member that was seen, as far as it can be held, and says what could not.
    pub(super) fn hold(
        copy: usize,
        ifindex: u32,
        group: u16,
        inode: u64,
        record: Record,
    ) -> (Self, Option<String>) {
        let pid = record.pid;
        let shelf = Shelf::of(ifindex, group);
        let page = match &shelf {
            Ok(shelf) => shelf.hold(pid, inode),
            Err(error) => Err(error.kind().into()),
        };
        let process = Process::open(pid);
        let socket = match &process {
            // Without its page it is of no use.
            Ok(process) if page.is_ok() => process.socket(pid, inode),
            Ok(_) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(io::Error::from(error.kind())),
        };
        // One that has gone meanwhile is no reason to complain.
        let complaint = socket.as_ref().err().filter(|error| {
            error.kind() == io::ErrorKind::PermissionDenied || is_lack_of_descriptors(error)
        });
        let complaint = complaint.map(|error| {
            let need = if is_lack_of_descriptors(error) {
                "more open files (ulimit -n)"
            } else {
                "the right to trace it (CAP_SYS_PTRACE)"
            };
            format!(
                "what copy {copy} leaves unread if it is killed will be unknown: its socket can't be held ({error}); this needs {need}"
            )
        });
        let member = Self {
            copy,
            inode,
            path: shelf.as_ref().map(|shelf| shelf.page(pid, inode)).ok(),
            record,
            page: page.ok(),
            process: process.ok(),
            socket: socket.ok(),
            leaving: None,
        };
        (member, complaint)
    }

    /// The copy that it belongs to.
    pub(super) fn copy(&self) -> usize {
        self.copy
    }

    /// Its socket's.
    pub(super) fn inode(&self) -> u64 {
        self.inode
    }

    /// Its page.
    pub(super) fn path(&self) -> Option<&PathBuf> {
        self.path.as_ref()
    }

    /// Takes in what its page says now.
    pub(super) fn learn(&mut self, record: Record) {
        self.record = record;
    }

    /// Whether its process has ended.
    pub(super) fn is_dead(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| process.ends_within(Some(Duration::ZERO)).unwrap_or(false))
    }

    /// Whether it has left: its page is gone, and the process has closed the socket, which it does a moment
    /// later. Somebody else may have removed the page: then the member must be left alone.
    pub(super) fn has_left(&mut self) -> bool {
        self.leaving.get_or_insert_with(Instant::now);
        let process = self.process.as_ref();
        let socket = process.map(|process| process.socket(self.record.pid, self.inode));
        socket.is_none_or(|socket| socket.is_err())
    }

    /// Whether it is about to leave: it is to be looked at again at once.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving
            .is_some_and(|since| since.elapsed() < LEAVES_WITHIN)
    }

    /// What its page says.
    pub(super) fn account(&self) -> Account {
        let read = self.record.read_ns > 0;
        Account {
            received: read.then_some(self.record.counters.received),
            dropped: read.then_some(self.record.counters.dropped),
            taken: self.record.taken,
            unread: Some(0),
            refused: Some(0),
        }
    }

    /// Lets go of a member that lives on, and tells what is known of it.
    pub(super) fn leave_alone(self) -> Account {
        Account {
            unread: None,
            refused: None,
            ..self.account()
        }
    }

    /// Ends its stay in the group and tells what became of its packets; none while a forked child has it and reads
    /// on. A handle that was closed in order has left, and ours is the last descriptor of its socket, just as
    /// when its process has died.
    pub(super) fn settle(&mut self) -> Option<Account> {
        if let Some(last) = self.page.as_ref().and_then(Held::record) {
            self.record = last;
        }
        let account = self.account();
        let unknown = Account {
            unread: None,
            refused: None,
            ..account
        };
        let (Some(page), Some(socket)) = (&self.page, self.socket.take()) else {
            return Some(unknown);
        };
        let closed = match close_counting(page, socket) {
            Ok(closed) => closed,
            Err(CloseError::StillHeld(socket)) => {
                self.socket = Some(socket);
                return None;
            }
            Err(CloseError::Unknown(_) | CloseError::Uncounted(_)) => return Some(unknown),
        };
        // What was taken between our reading and the last owner's end is on the page.
        if let Some(last) = page.record() {
            self.record = last;
        }
        // Known now, even if the page had no counters yet.
        let counters = self.record.counters;
        let lost = closed.lost(&self.record);
        Some(Account {
            received: Some(counters.received + closed.received),
            dropped: Some(counters.dropped + closed.dropped),
            taken: self.record.taken,
            unread: lost.map(|lost| lost.unread),
            refused: closed.refused,
        })
    }
}
