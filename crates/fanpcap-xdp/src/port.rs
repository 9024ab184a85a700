//! A member's pool on one device, the BPF program that fills it, and the port of its reader.
//!
//! The handle keeps its packet socket. The socket receives no packets, but reports when the device
//! goes down.

use crate::layout::row;
use crate::pool::MemberPool;
use crate::program::{GroupProgram, SlotFilter};
use crate::rows::Row;
use fanpcap_bpf::{Classic, Object};
use fanpcap_engine::MemberIo;
use fanpcap_linux::bpf::{Loaded, LoadedProgram, RingMapping};
use fanpcap_linux::packet;
use fanpcap_linux::wait::{self, Epoll, POLLIN, clock};
use fanpcap_reader::{Input, LinkState, Port, PortStatistics, ReadError, Ring};
use fanpcap_ring::{Pool, PoolClocks, PoolWords};
use fanpcap_steer::ebpf;
use fanpcap_tpacket::Socket;
use std::ffi::c_short;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The clocks of the readers of pools that BPF programs write.
pub const CLOCKS: PoolClocks = PoolClocks {
    now: clock::monotonic_ns,
    offset: clock::realtime_offset_ns,
};

/// The port of a member's pool.
struct PoolPort {
    socket: Socket,
    /// Becomes readable when a BPF program wakes the reader, or when the socket has an error.
    epoll: Epoll,
    bell: RingMapping,
    words: PoolWords,
    /// The group's objects, whose descriptors stay open as long as the port lives. So every port
    /// must be dropped before the membership's duplicates of the slow ones (`Membership::later` in
    /// fanpcap-group). Otherwise the thread that drops the last port waits for their release.
    program: Arc<GroupProgram>,
    slot: u8,
    /// The counts that were reported so far: records, and packets for which the pool had no room.
    produced: AtomicU64,
    dropped: AtomicU64,
}

impl PoolPort {
    /// Makes the port of the member with this pool in this slot. `socket` is the handle's packet
    /// socket. It is silent, is bound to the device, and stays open as long as the reader lives.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM`, and other errors of mmap(2) and of epoll_ctl(2).
    fn new(
        socket: BorrowedFd<'static>,
        program: &Arc<GroupProgram>,
        slot: u8,
        pool: &MemberPool,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(socket, false)?;
        let bell = program.bell(slot, pool);
        epoll.add_edge(bell.as_fd())?;
        let before = pool.before.get().copied();
        let before = before.unwrap_or_else(|| program.slot_counts(slot));
        Ok(Self {
            socket: Socket::new(socket),
            epoll,
            bell: bell.map()?,
            words: pool.array.map_words()?,
            program: Arc::clone(program),
            slot,
            produced: AtomicU64::new(before.produced),
            dropped: AtomicU64::new(before.dropped),
        })
    }

    /// The rows of the slot, with their lanes. Leaves out the lanes that were never used, whose
    /// first record wakes the reader anyway, unless a packet without room has done so already.
    fn rows_to_arm(&self) -> impl Iterator<Item = (Row<'_>, usize)> {
        let rows = self.program.rows.of(self.slot).zip(0..);
        rows.filter(|(row, lane)| self.words.is_used(*lane) || row.read(row::WAKE_AT) != 0)
    }
}

impl Port for PoolPort {
    fn waits_on(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn is_socket(&self) -> bool {
        false
    }

    fn arm(&self, after: u64) -> bool {
        if after > 1 {
            // Clears earlier wake-ups. Best effort: if this fails, the reader only wakes too early.
            let _ = self.epoll.clear();
        }
        // Before the lanes are armed: a bell that rings later stays rung.
        self.bell.clear();
        let arms =
            |(row, lane): (Row<'_>, usize)| row.wake_after(|| self.words.position(lane), after);
        if !self.rows_to_arm().all(arms) {
            return false;
        }
        // No record wakes the reader that came before this call. So this function returns false if
        // there are unread records: the reader must then read them and not wait.
        after > 1 || !self.words.has_unread()
    }

    fn rest(&self) -> bool {
        self.bell.clear();
        self.rows_to_arm().for_each(|(row, _)| row.wake_for_drops());
        true
    }

    fn check(&self, found: c_short) -> Result<LinkState, ReadError> {
        if found & !POLLIN != 0 {
            return self.socket.check(found & !POLLIN);
        }
        if found == 0 {
            return Ok(LinkState::Up);
        }
        match wait::wait(Some(self.socket.waits_on()), None, Some(Duration::ZERO)) {
            Ok(woken) => self.socket.check(woken.socket & !POLLIN),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(LinkState::Up),
            Err(error) => Err(self.poll_error(error)),
        }
    }

    fn link(&self) -> Result<LinkState, ReadError> {
        let state = self.socket.link()?;
        if self.program.is_detached() {
            // When a device is removed, the kernel first unlists the device, then detaches the BPF
            // program, and then unbinds the socket. So if the device is not listed now, a later
            // check reports the removal.
            return match self.socket.is_device_listed() {
                true => Err(ReadError::new(io::Error::other(DETACHED))),
                false => self.socket.link(),
            };
        }
        Ok(state)
    }

    fn poll_error(&self, error: io::Error) -> ReadError {
        self.socket.poll_error(error)
    }

    fn take_statistics(&self) -> io::Result<PortStatistics> {
        let counts = self.program.slot_counts(self.slot);
        let take = |told: &AtomicU64, now: u64| {
            let before = told.fetch_max(now, Ordering::Relaxed);
            now.saturating_sub(before)
        };
        let dropped = take(&self.dropped, counts.dropped);
        Ok(PortStatistics {
            received: take(&self.produced, counts.produced).saturating_add(dropped),
            dropped,
        })
    }
}

/// The device still exists, but the engine's BPF program was detached from it.
const DETACHED: &str = "The BPF program was detached from the interface";

/// A member's pool.
pub(crate) struct PoolOfMember {
    pub(crate) program: Arc<GroupProgram>,
    pub(crate) pool: MemberPool,
    pub(crate) snaplen: u32,
    pub(crate) sent: bool,
}

/// Loads a filter. `None` if the kernel refuses it.
fn load(filter: Object) -> Option<LoadedProgram> {
    let loaded = Loaded::load(&filter, "fanpcap_filter").ok();
    loaded.map(Loaded::into_program)
}

impl MemberIo for PoolOfMember {
    fn admit(&self, slot: u8, socket: u64) -> io::Result<()> {
        let program = &self.program;
        program.put(slot, &self.pool, self.snaplen, socket, self.sent)
    }

    fn input(
        &self,
        slot: u8,
        socket: BorrowedFd<'static>,
        timeout: Option<Duration>,
    ) -> io::Result<Input> {
        let ifindex = packet::address(socket)?.ifindex;
        let port = PoolPort::new(socket, &self.program, slot, &self.pool)?;
        Ok(Input {
            ring: Ring::Pool(Pool::new(self.pool.array.map()?, ifindex, CLOCKS)),
            port: Arc::new(port),
            timeout,
        })
    }

    fn filter(&self, slot: u8, code: &[Classic], number: u32) -> bool {
        let received = ebpf::xdp_filter(code).ok().and_then(load);
        let filter = received.map(|received| SlotFilter {
            received,
            sent: match self.sent && self.program.sees_sent().is_ok() {
                true => ebpf::sent_filter(code).ok().and_then(load),
                false => None,
            },
            number,
        });
        self.program.set_filter(slot, filter.as_ref()).is_ok() && filter.is_some()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.pool.descriptors().into()
    }

    fn bytes(&self) -> usize {
        self.pool.array.size()
    }

    fn captures_sent(&self) -> bool {
        self.sent
    }
}

#[cfg(test)]
mod tests;
