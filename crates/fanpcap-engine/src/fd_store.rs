//! The descriptor store of a group, or of a device's registry. The store lasts as long as the group
//! or the registry has members. Its descriptors lie in the queue of a Unix socket, and all members
//! have both ends of that socket. When no process has an end open any more, the kernel closes the
//! descriptors.
//!
//! Every entry is in the queue at all times, so that a process may die during any operation. `find`
//! only peeks at entries. `remove` rotates the queue: it appends a copy of the entry at the head,
//! and then dequeues the entry at the head. A process that dies between these two steps leaves a
//! duplicate, which the next removal drops. Callers hold the lock of the group or of the device,
//! because all processes share the socket's peek offset (unix(7), `SO_PEEK_OFF`).

use crate::faults;
use fanpcap_linux::unix::{self, message};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The kind of an entry's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredFd {
    /// The group's BPF program, and the file with the steering program's text if this file could be
    /// made.
    Program,
    /// The epoll instance that has all lifelines.
    Lifelines,
    /// The read end of a lifeline. The kernel reports a hang-up there when the lifeline's owner has
    /// ended. The number is a member's socket cookie (`SO_COOKIE`), or in a device registry the
    /// word of a group slot.
    Lifeline(u64),
    /// A member's socket, its page if it has one, and its rings if an engine fills them. The number
    /// is the socket's cookie.
    Member(u64),
    /// Descriptors of the engine. The engine chooses the number. In a group's store, the number is
    /// not that of [`NEXT`].
    Engine(u64),
    /// The write end of a group's lifeline. The registry of the group's device has the read end.
    GroupLifeline,
    /// The filtering part of the group's steering program, as the group's founder has loaded it.
    Filter,
    /// Rings that the group's founder has made for a newcomer without the privilege to make its
    /// own. The number's lower half is the size of the rings in bytes.
    Spare(u64),
}

/// The entry of the next BPF program, in a group's store while the group exchanges its BPF program.
/// It has the descriptors that the exchange needs.
pub const NEXT: StoredFd = StoredFd::Engine(2);

impl StoredFd {
    fn encode(self) -> [u8; LEN] {
        let (kind, number) = match self {
            Self::Program => (1, 0),
            Self::Lifelines => (2, 0),
            Self::Lifeline(cookie) => (3, cookie),
            Self::Member(cookie) => (4, cookie),
            Self::Engine(number) => (5, number),
            Self::GroupLifeline => (6, 0),
            Self::Filter => (7, 0),
            Self::Spare(number) => (8, number),
        };
        let mut bytes = [kind; LEN];
        bytes[1..].copy_from_slice(&u64::to_le_bytes(number));
        bytes
    }

    fn decode(bytes: [u8; LEN]) -> Option<Self> {
        let [kind, number @ ..] = bytes;
        let number = u64::from_le_bytes(number);
        match kind {
            1 => Some(Self::Program),
            2 => Some(Self::Lifelines),
            3 => Some(Self::Lifeline(number)),
            4 => Some(Self::Member(number)),
            5 => Some(Self::Engine(number)),
            6 => Some(Self::GroupLifeline),
            7 => Some(Self::Filter),
            8 => Some(Self::Spare(number)),
            _ => None,
        }
    }
}

/// Bytes of an entry's message.
const LEN: usize = 9;
const STEP: u32 = 9;
const _: () = assert!(LEN == STEP as usize);

/// How many descriptors an entry has at most: as many as [`StoredFd::Member`] may have.
const DESCRIPTORS: usize = message::DESCRIPTORS_MAX;

/// How many entries are read at most. A group has two entries for each of 256 slots, and the
/// group's own entries. A hostile member could append more.
const ENTRIES_MAX: u32 = 1024;

/// Bytes for the messages of 256 members; the kernel charges 768 for a message.
const SEND_BUFFER: u32 = 1 << 20;

/// How many bytes three messages need at most. The three are a newcomer's two entries, and the
/// entry that a removal appends before it dequeues one.
const ROOM: u32 = 3 * 1024;

const FULL: &str = "it has no room for another member: its limit is net.core.wmem_max, or the \
                    larger size that its first member set with CAP_NET_ADMIN";

/// A store of descriptors.
#[derive(Debug)]
pub struct FdStore {
    into: OwnedFd,
    out_of: OwnedFd,
}

impl FdStore {
    /// Makes an empty store.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn new() -> io::Result<Self> {
        let [into, out_of] = unix::pair()?;
        // Best effort: a smaller buffer suffices for fewer members.
        let _ = unix::set_send_buffer(into.as_fd(), SEND_BUFFER);
        Ok(Self { into, out_of })
    }

    /// Opens the store with these two ends, which another member has handed over. Returns the store
    /// and the epoll instance of the lifelines.
    ///
    /// # Errors
    /// `InvalidData` if the queue has no such epoll instance: then the queue is not a store.
    pub fn of(into: OwnedFd, out_of: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let store = Self { into, out_of };
        let lifelines = store.find(StoredFd::Lifelines)?;
        match lifelines.and_then(|mut descriptors| descriptors.pop()) {
            Some(lifelines) => Ok((store, lifelines)),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Both ends of the store's socket: the end to write to, and the end to read from.
    pub fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.into.as_fd(), self.out_of.as_fd()]
    }

    /// Checks that the queue has room for a newcomer's entries, and for the removal of an entry.
    ///
    /// # Errors
    /// `WouldBlock` with a text that names the limit; otherwise the errors of sendmsg(2).
    pub fn ensure_room(&self) -> io::Result<()> {
        if unix::send_room(self.into.as_fd())? < ROOM {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, FULL));
        }
        // The kernel limits how many descriptors a user has in queues, but does not report how many
        // are in queues now. So test the limit: put more descriptors than a newcomer needs into
        // another queue.
        let [into, _out_of] = unix::pair()?;
        let many = [self.into.as_fd(); message::DESCRIPTORS_MAX];
        message::send(into.as_fd(), &[0], &many)?;
        message::send(into.as_fd(), &[0], &many[..1])
    }

    /// Appends duplicates of these descriptors.
    ///
    /// # Errors
    /// `EAGAIN` if the queue is full (net.core.wmem_max), `QuotaExceeded` if the user has as many
    /// descriptors in queues as a process may open (`RLIMIT_NOFILE`).
    pub fn put(&self, entry: StoredFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        message::send(self.into.as_fd(), &entry.encode(), descriptors)
    }

    /// Returns duplicates of the descriptors of an entry; `None` if there is no such entry.
    ///
    /// # Errors
    /// The errors of recvmsg(2).
    pub fn find(&self, wanted: StoredFd) -> io::Result<Option<Vec<OwnedFd>>> {
        let mut found = None;
        self.visit(&mut |entry, descriptors| {
            let is_it = entry == wanted;
            if is_it {
                found = Some(descriptors);
            }
            !is_it
        })?;
        Ok(found)
    }

    /// Calls `look` for each entry until `look` returns false.
    ///
    /// # Errors
    /// The errors of recvmsg(2).
    pub fn visit(&self, look: &mut dyn FnMut(StoredFd, Vec<OwnedFd>) -> bool) -> io::Result<()> {
        for offset in (0..ENTRIES_MAX * STEP).step_by(LEN) {
            let Some((entry, descriptors)) = self.peek(offset)? else {
                break;
            };
            if entry.is_some_and(|entry| !look(entry, descriptors)) {
                break;
            }
        }
        Ok(())
    }

    /// Removes an entry, if the store has it, and the duplicates that dead processes have left.
    ///
    /// # Errors
    /// The errors of sendmsg(2) and recvmsg(2). Even after an error, the store still has all other
    /// entries: only duplicates may be lost.
    pub fn remove(&self, unwanted: StoredFd) -> io::Result<()> {
        let mut rest = Vec::new();
        self.visit(&mut |entry, _| {
            rest.push(entry);
            true
        })?;
        rest.reverse();
        while rest.pop().is_some() {
            let Some((entry, descriptors)) = self.peek(0)? else {
                break;
            };
            if let Some(entry) = entry.filter(|it| *it != unwanted && !rest.contains(it)) {
                let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                faults::step();
                self.put(entry, &descriptors)?;
            }
            faults::step();
            let mut bytes = [0; LEN];
            message::receive(self.out_of.as_fd(), &mut bytes, DESCRIPTORS)?;
        }
        Ok(())
    }

    fn peek(&self, offset: u32) -> io::Result<Option<(Option<StoredFd>, Vec<OwnedFd>)>> {
        let mut bytes = [0; LEN];
        let found = message::peek_at(self.out_of.as_fd(), offset, &mut bytes, DESCRIPTORS)?;
        Ok(found.map(|message| (StoredFd::decode(bytes), message.descriptors)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::wait::pipe::{Pipe, has_hung_up};

    fn all(store: &FdStore) -> Vec<StoredFd> {
        let mut all = Vec::new();
        let mut look = |entry, _| {
            all.push(entry);
            true
        };
        store.visit(&mut look).unwrap();
        all
    }

    #[test]
    fn a_stored_descriptor_is_found_and_stays_open_until_it_is_removed() {
        let store = FdStore::new().unwrap();
        let pipes: Vec<Pipe> = (0..3).map(|_| Pipe::new().unwrap()).collect();
        for (pipe, cookie) in pipes.iter().zip(0..) {
            let entry = StoredFd::Member(cookie);
            store.put(entry, &[pipe.write.as_fd()]).unwrap();
        }
        let reads: Vec<OwnedFd> = pipes.into_iter().map(|pipe| pipe.read).collect();
        assert!(store.find(StoredFd::Member(3)).unwrap().is_none());
        assert_eq!(store.find(StoredFd::Member(2)).unwrap().unwrap().len(), 1);
        store.remove(StoredFd::Member(1)).unwrap();
        let is_gone: Vec<bool> = reads
            .iter()
            .map(|read| has_hung_up(read.as_fd()).unwrap())
            .collect();
        assert_eq!(is_gone, [false, true, false]);
        assert_eq!(all(&store), [StoredFd::Member(0), StoredFd::Member(2)]);
        store.remove(StoredFd::Member(7)).unwrap();
        assert_eq!(all(&store).len(), 2);
    }

    #[test]
    fn a_duplicate_that_a_death_has_left_goes_with_the_next_removal() {
        let store = FdStore::new().unwrap();
        let pipe = Pipe::new().unwrap();
        for entry in [StoredFd::Lifelines, StoredFd::Program, StoredFd::Lifelines] {
            store.put(entry, &[pipe.write.as_fd()]).unwrap();
        }
        store.remove(StoredFd::Program).unwrap();
        assert_eq!(all(&store), [StoredFd::Lifelines]);
    }

    #[test]
    fn a_removal_needs_no_more_room_than_one_message() {
        let store = FdStore::new().unwrap();
        unix::set_send_buffer(store.into.as_fd(), 16_384).unwrap();
        let pipe = Pipe::new().unwrap();
        let put = |cookie| store.put(StoredFd::Member(cookie), &[pipe.write.as_fd()]);
        let mut count = 0;
        while store.ensure_room().is_ok() {
            put(count).unwrap();
            put(count + 1).unwrap();
            count += 2;
        }
        assert!(count > 10, "{count}");
        // Dead processes have left a second entry for each of the first three members.
        for cookie in 0..3 {
            store
                .put(StoredFd::Member(cookie), &[pipe.write.as_fd()])
                .unwrap_or_default();
        }
        store.remove(StoredFd::Member(count - 1)).unwrap();
        let mut left = all(&store);
        left.sort_unstable_by_key(|entry| entry.encode());
        let expected: Vec<StoredFd> = (0..count - 1).map(StoredFd::Member).collect();
        assert_eq!(left, expected);
    }

    #[test]
    fn an_entry_has_as_many_descriptors_as_a_member_of_many_rings() {
        let store = FdStore::new().unwrap();
        let pipe = Pipe::new().unwrap();
        let many = [pipe.write.as_fd(); DESCRIPTORS];
        store.put(StoredFd::Member(1), &many).unwrap();
        store.put(StoredFd::Member(2), &many[..1]).unwrap();
        store.remove(StoredFd::Member(2)).unwrap();
        let found = store.find(StoredFd::Member(1)).unwrap().unwrap();
        assert_eq!(found.len(), DESCRIPTORS);
    }

    #[test]
    fn a_queue_without_the_groups_own_entries_is_no_store() {
        let [into, out_of] = unix::pair().unwrap();
        assert!(FdStore::of(into, out_of).is_err());
    }

    #[test]
    fn there_is_room_for_all_members_of_a_kernel_group() {
        // The default size of the buffer (net.core.wmem_max), and the size with CAP_NET_ADMIN.
        for bytes in [2 * 212_992, SEND_BUFFER] {
            let store = FdStore::new().unwrap();
            unix::set_send_buffer(store.into.as_fd(), bytes).unwrap();
            let pipe = Pipe::new().unwrap();
            for entry in [StoredFd::Program, StoredFd::Lifelines] {
                store.put(entry, &[pipe.write.as_fd()]).unwrap();
            }
            for cookie in 0..255 {
                store.ensure_room().unwrap();
                for entry in [StoredFd::Lifeline(cookie), StoredFd::Member(cookie)] {
                    store.put(entry, &[pipe.write.as_fd()]).unwrap();
                }
            }
            store.remove(StoredFd::Member(100)).unwrap();
            assert_eq!(all(&store).len(), 511);
        }
    }
}
