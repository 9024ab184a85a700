//! A group's counters, held by a process that is not a member. The counters stay readable after the
//! group's last member and its BPF programs have ended.

use crate::layout::{ROW_LEN, row};
use crate::rows::{Ledger, Rows};
use fanpcap_engine::WatchedCounters;
use fanpcap_linux::bpf::ObjectId;
use fanpcap_linux::process::pidfd::Process;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

/// The maps with a group's counters.
#[derive(Debug)]
pub(crate) struct HeldCounters {
    rows: Rows,
    ledger: Ledger,
}

impl HeldCounters {
    /// Opens the counters of the group in which the member with this socket (`SO_COOKIE`) has this
    /// slot. `process` is the member's process, and `pid` is its process id.
    ///
    /// # Errors
    /// `NotFound` if the process does not have such maps, or does not have them yet. `EPERM` if the
    /// caller may not trace the process.
    pub(crate) fn of_member(
        process: &Process,
        pid: u32,
        slot: u8,
        socket: u64,
    ) -> io::Result<Self> {
        let maps: Vec<RawFd> = ObjectId::maps_of(pid, ROW_LEN).into_values().collect();
        let open = |fd: &RawFd| process.duplicate(*fd);
        let mut fds = maps.iter();
        let rows = loop {
            let fd = open(fds.next().ok_or(io::ErrorKind::NotFound)?)?;
            let rows = Rows::open(fd).ok();
            if let Some(rows) = rows.filter(|rows| is_of(rows, slot, socket)) {
                break rows;
            }
        };
        // A group's first member creates the ledger right after the rows. So in the order of map
        // ids, the ledger follows the rows among the maps with values of this size.
        for fd in fds {
            let fd: OwnedFd = open(fd)?;
            if let Ok(ledger) = Ledger::open(fd, rows.lanes()) {
                return Ok(Self { rows, ledger });
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

impl WatchedCounters for HeldCounters {
    fn counted(&self, slot: u8, socket: u64) -> Option<[u64; 2]> {
        let counts = self.rows.counts(slot);
        is_of(&self.rows, slot, socket).then(|| counts.for_slot())
    }

    fn stop(&self, slot: u8, socket: u64) {
        if is_of(&self.rows, slot, socket) {
            self.rows.of(slot).for_each(|row| row.set(row::SNAPLEN, 0));
        }
    }

    fn offered(&self) -> u64 {
        self.ledger.counts(&self.rows).offered
    }

    fn nowhere(&self) -> u64 {
        self.ledger.counts(&self.rows).nowhere
    }

    fn no_member(&self) -> u64 {
        self.ledger.counts(&self.rows).no_member
    }
}

/// Whether the member with this socket has the slot, or was the last member in the slot.
fn is_of(rows: &Rows, slot: u8, socket: u64) -> bool {
    let mut rows = rows.of(slot);
    rows.any(|row| row.read(row::SOCKET) == socket)
}
