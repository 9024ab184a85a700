//! The locker: descriptors that a group keeps for as long as it has a member. They lie in the queue
//! of a Unix socket whose two ends all members have; the kernel closes them with the last one.
//!
//! Every descriptor is in the queue at all times. A deposit is found by peeking, and removed by
//! turning the queue round: the head is appended once more before it is dequeued. Who dies in
//! between leaves a duplicate, which the next removal drops. Whoever uses the locker holds the
//! group's lock: the offset of a peek belongs to the socket.

use crate::faults;
use fanpcap_linux::unix::{self, message};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a deposit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deposit {
    /// The group's BPF program, and the text of its steering program where that could be kept.
    Program,
    /// The epoll instance of all lifelines.
    Lifelines,
    /// The end of a member's lifeline that hangs up when the member is gone, by the cookie of the
    /// member's socket.
    Lifeline(u64),
    /// A member's socket, and its page where it has one, by the socket's cookie.
    Socket(u64),
    /// What an engine in the driver has: of a group, or of a dock, by the interface index of its
    /// device.
    Engine(u64),
    /// The end of a group's lifeline whose other end is in its device's dock.
    Berth,
}

impl Deposit {
    fn encode(self) -> [u8; LEN] {
        let (kind, cookie) = match self {
            Self::Program => (1, 0),
            Self::Lifelines => (2, 0),
            Self::Lifeline(cookie) => (3, cookie),
            Self::Socket(cookie) => (4, cookie),
            Self::Engine(ifindex) => (5, ifindex),
            Self::Berth => (6, 0),
        };
        let mut bytes = [kind; LEN];
        bytes[1..].copy_from_slice(&u64::to_le_bytes(cookie));
        bytes
    }

    fn decode(bytes: [u8; LEN]) -> Option<Self> {
        let [kind, cookie @ ..] = bytes;
        let cookie = u64::from_le_bytes(cookie);
        match kind {
            1 => Some(Self::Program),
            2 => Some(Self::Lifelines),
            3 => Some(Self::Lifeline(cookie)),
            4 => Some(Self::Socket(cookie)),
            5 => Some(Self::Engine(cookie)),
            6 => Some(Self::Berth),
            _ => None,
        }
    }
}

/// Bytes of a deposit's message.
const LEN: usize = 9;
const STEP: u32 = 9;
const _: () = assert!(LEN == STEP as usize);

/// Descriptors of a deposit at most: a member's socket, its page, and its rings where an engine
/// fills rings of its own.
const DESCRIPTORS: usize = message::DESCRIPTORS_MAX;

/// Deposits of a group: two of each slot's, and the group's own. A queue that never ends would be
/// another's than ours.
const DEPOSITS_MAX: u32 = 1024;

/// Bytes for the messages of 256 members; the kernel charges 768 for each.
const SEND_BUFFER: u32 = 1 << 20;

/// What three messages take at most: a newcomer's two deposits, and the one that a removal appends
/// before it dequeues.
const ROOM: u32 = 3 * 1024;

const FULL: &str = "it has no room for another member: its limit is net.core.wmem_max, or what its \
                    first member could set with CAP_NET_ADMIN";

/// A locker.
#[derive(Debug)]
pub(crate) struct Locker {
    into: OwnedFd,
    out_of: OwnedFd,
}

impl Locker {
    /// An empty one.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub(crate) fn new() -> io::Result<Self> {
        let [into, out_of] = unix::pair()?;
        // Best effort: less is enough for fewer members.
        let _ = unix::set_send_buffer(into.as_fd(), SEND_BUFFER);
        Ok(Self { into, out_of })
    }

    /// That of these two ends, which another member has handed over, and the epoll instance of its
    /// lifelines.
    ///
    /// # Errors
    /// `InvalidData` if it has none: it is no locker.
    pub(crate) fn of(into: OwnedFd, out_of: OwnedFd) -> io::Result<(Self, OwnedFd)> {
        let locker = Self { into, out_of };
        let lifelines = locker.find(Deposit::Lifelines)?;
        match lifelines.and_then(|mut descriptors| descriptors.pop()) {
            Some(lifelines) => Ok((locker, lifelines)),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Both ends.
    pub(crate) fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.into.as_fd(), self.out_of.as_fd()]
    }

    /// Checks that a newcomer's deposits fit in. Without room even they could not be removed.
    ///
    /// # Errors
    /// Which limit is reached.
    pub(crate) fn ensure_room(&self) -> io::Result<()> {
        if unix::send_room(self.into.as_fd())? < ROOM {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, FULL));
        }
        // The kernel counts by user, and tells the count to nobody: more descriptors go into
        // another queue than a newcomer deposits.
        let [into, _out_of] = unix::pair()?;
        let many = [self.into.as_fd(); message::DESCRIPTORS_MAX];
        message::send(into.as_fd(), &[0], &many)?;
        message::send(into.as_fd(), &[0], &many[..1])
    }

    /// Deposits duplicates of these descriptors.
    ///
    /// # Errors
    /// `EAGAIN` where the queue is full (net.core.wmem_max), `QuotaExceeded` where the user has as
    /// many descriptors in queues as a process may open (`RLIMIT_NOFILE`).
    pub(crate) fn put(&self, deposit: Deposit, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        message::send(self.into.as_fd(), &deposit.encode(), descriptors)
    }

    /// Duplicates of what was deposited.
    ///
    /// # Errors
    /// What recvmsg(2) says.
    pub(crate) fn find(&self, wanted: Deposit) -> io::Result<Option<Vec<OwnedFd>>> {
        let mut found = None;
        self.visit(&mut |deposit, descriptors| {
            let is_it = deposit == wanted;
            if is_it {
                found = Some(descriptors);
            }
            !is_it
        })?;
        Ok(found)
    }

    /// Shows each deposit to `look`, as long as that returns true.
    ///
    /// # Errors
    /// What recvmsg(2) says.
    pub(crate) fn visit(
        &self,
        look: &mut dyn FnMut(Deposit, Vec<OwnedFd>) -> bool,
    ) -> io::Result<()> {
        for offset in (0..DEPOSITS_MAX * STEP).step_by(LEN) {
            let Some((deposit, descriptors)) = self.peek(offset)? else {
                break;
            };
            if deposit.is_some_and(|deposit| !look(deposit, descriptors)) {
                break;
            }
        }
        Ok(())
    }

    /// Removes a deposit, if it is there, and duplicates of others that a death has left.
    ///
    /// # Errors
    /// What sendmsg(2) and recvmsg(2) say. Nothing but duplicates is removed then.
    pub(crate) fn remove(&self, unwanted: Deposit) -> io::Result<()> {
        let mut rest = Vec::new();
        self.visit(&mut |deposit, _| {
            rest.push(deposit);
            true
        })?;
        rest.reverse();
        while rest.pop().is_some() {
            let Some((deposit, descriptors)) = self.peek(0)? else {
                break;
            };
            if let Some(deposit) = deposit.filter(|it| *it != unwanted && !rest.contains(it)) {
                let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                faults::step();
                self.put(deposit, &descriptors)?;
            }
            faults::step();
            let mut bytes = [0; LEN];
            message::receive(self.out_of.as_fd(), &mut bytes, DESCRIPTORS)?;
        }
        Ok(())
    }

    fn peek(&self, offset: u32) -> io::Result<Option<(Option<Deposit>, Vec<OwnedFd>)>> {
        let mut bytes = [0; LEN];
        let found = message::peek_at(self.out_of.as_fd(), offset, &mut bytes, DESCRIPTORS)?;
        Ok(found.map(|message| (Deposit::decode(bytes), message.descriptors)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::wait::pipe::{Pipe, has_hung_up};

    fn all(locker: &Locker) -> Vec<Deposit> {
        let mut all = Vec::new();
        let mut look = |deposit, _| {
            all.push(deposit);
            true
        };
        locker.visit(&mut look).unwrap();
        all
    }

    #[test]
    fn what_is_deposited_is_found_and_stays_open_until_it_is_removed() {
        let locker = Locker::new().unwrap();
        let pipes: Vec<Pipe> = (0..3).map(|_| Pipe::new().unwrap()).collect();
        for (pipe, cookie) in pipes.iter().zip(0..) {
            let deposit = Deposit::Socket(cookie);
            locker.put(deposit, &[pipe.write.as_fd()]).unwrap();
        }
        let reads: Vec<OwnedFd> = pipes.into_iter().map(|pipe| pipe.read).collect();
        assert!(locker.find(Deposit::Socket(3)).unwrap().is_none());
        assert_eq!(locker.find(Deposit::Socket(2)).unwrap().unwrap().len(), 1);
        locker.remove(Deposit::Socket(1)).unwrap();
        let is_gone: Vec<bool> = reads
            .iter()
            .map(|read| has_hung_up(read.as_fd()).unwrap())
            .collect();
        assert_eq!(is_gone, [false, true, false]);
        assert_eq!(all(&locker), [Deposit::Socket(0), Deposit::Socket(2)]);
        locker.remove(Deposit::Socket(7)).unwrap();
        assert_eq!(all(&locker).len(), 2);
    }

    #[test]
    fn a_duplicate_that_a_death_has_left_goes_with_the_next_removal() {
        let locker = Locker::new().unwrap();
        let pipe = Pipe::new().unwrap();
        for deposit in [Deposit::Lifelines, Deposit::Program, Deposit::Lifelines] {
            locker.put(deposit, &[pipe.write.as_fd()]).unwrap();
        }
        locker.remove(Deposit::Program).unwrap();
        assert_eq!(all(&locker), [Deposit::Lifelines]);
    }

    #[test]
    fn a_removal_needs_no_more_room_than_one_message() {
        let locker = Locker::new().unwrap();
        unix::set_send_buffer(locker.into.as_fd(), 16_384).unwrap();
        let pipe = Pipe::new().unwrap();
        let put = |cookie| locker.put(Deposit::Socket(cookie), &[pipe.write.as_fd()]);
        let mut count = 0;
        while locker.ensure_room().is_ok() {
            put(count).unwrap();
            put(count + 1).unwrap();
            count += 2;
        }
        assert!(count > 10, "{count}");
        // A death has left each of the first three twice.
        for cookie in 0..3 {
            locker
                .put(Deposit::Socket(cookie), &[pipe.write.as_fd()])
                .unwrap_or_default();
        }
        locker.remove(Deposit::Socket(count - 1)).unwrap();
        let mut left = all(&locker);
        left.sort_unstable_by_key(|deposit| deposit.encode());
        let expected: Vec<Deposit> = (0..count - 1).map(Deposit::Socket).collect();
        assert_eq!(left, expected);
    }

    #[test]
    fn a_deposit_has_as_many_descriptors_as_a_member_of_many_rings() {
        let locker = Locker::new().unwrap();
        let pipe = Pipe::new().unwrap();
        let many = [pipe.write.as_fd(); DESCRIPTORS];
        locker.put(Deposit::Socket(1), &many).unwrap();
        locker.put(Deposit::Socket(2), &many[..1]).unwrap();
        // Turns the queue round.
        locker.remove(Deposit::Socket(2)).unwrap();
        let found = locker.find(Deposit::Socket(1)).unwrap().unwrap();
        assert_eq!(found.len(), DESCRIPTORS);
    }

    #[test]
    fn a_queue_without_the_groups_own_deposits_is_no_locker() {
        let [into, out_of] = unix::pair().unwrap();
        assert!(Locker::of(into, out_of).is_err());
    }

    #[test]
    fn there_is_room_for_all_members_of_a_kernel_group() {
        // What net.core.wmem_max gives by default, and what CAP_NET_ADMIN does.
        for bytes in [2 * 212_992, SEND_BUFFER] {
            let locker = Locker::new().unwrap();
            unix::set_send_buffer(locker.into.as_fd(), bytes).unwrap();
            let pipe = Pipe::new().unwrap();
            for deposit in [Deposit::Program, Deposit::Lifelines] {
                locker.put(deposit, &[pipe.write.as_fd()]).unwrap();
            }
            for cookie in 0..255 {
                locker.ensure_room().unwrap();
                for deposit in [Deposit::Lifeline(cookie), Deposit::Socket(cookie)] {
                    locker.put(deposit, &[pipe.write.as_fd()]).unwrap();
                }
            }
            locker.remove(Deposit::Socket(100)).unwrap();
            assert_eq!(all(&locker).len(), 511);
        }
    }
}
