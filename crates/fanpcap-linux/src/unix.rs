//! Unix sockets that keep message boundaries (`SOCK_SEQPACKET`, unix(7)): pairs, sockets with
//! names, and messages that carry descriptors.

pub mod message;
mod closed_later;
pub mod plain;
pub mod named;

pub use closed_later::ClosedLater;

use crate::errno::{check, owned};
use crate::option::{get, get_list, set};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process's number; 0 when the process has no number in the caller's PID namespace.
    pub pid: u32,
    /// The process's effective user.
    pub user: u32,
    /// The process's effective group.
    pub group: u32,
}

/// Makes two sockets that are connected to each other, and are closed on exec.
///
/// # Errors
/// The error of socketpair(2).
pub fn pair() -> io::Result<[OwnedFd; 2]> {
    let mut ends: [c_int; 2] = [-1; 2];
    // SAFETY: the array has room for the two numbers that the call writes.
    check(unsafe { libc::socketpair(libc::AF_UNIX, KIND, 0, ends.as_mut_ptr()) })?;
    // SAFETY: the descriptors are new, and no other value owns them.
    Ok(ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn open(kind: c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes plain numbers.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0) })
}

/// Returns the process that the kernel stored for the other end (`SO_PEERCRED`). This process may
/// have closed its descriptor since then. It is:
///
/// - at the listener's end, the process that connected;
/// - at the end that connected, the process that listened at that time;
/// - for a pair, the process that made the pair.
///
/// # Errors
/// The error of getsockopt(2).
pub fn peer(fd: BorrowedFd<'_>) -> io::Result<Peer> {
    // struct ucred (linux/socket.h).
    let [pid, user, group]: [u32; 3] = get(fd, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(Peer { pid, user, group })
}

/// Returns the supplementary groups of users of the process that [`peer`] returns, as they were at
/// that time (`SO_PEERGROUPS`).
///
/// # Errors
/// The error of getsockopt(2).
pub fn peer_groups(fd: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    get_list(fd, libc::SOL_SOCKET, SO_PEERGROUPS)
}

/// Makes this end of a pair receive nothing: the other end can't send any more (`EPIPE`).
///
/// # Errors
/// The error of shutdown(2).
pub fn receive_nothing(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: takes plain numbers; the descriptor is open.
    check(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_RD) })
}

/// Sets how much memory is for messages that were sent from this end and are not received yet. If
/// the process has `CAP_NET_ADMIN`, net.core.wmem_max does not limit the size. Returns how much
/// memory the kernel allows.
///
/// # Errors
/// The error of setsockopt(2).
pub fn set_send_buffer(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<u32> {
    // The kernel doubles the number.
    let half = bytes / 2;
    if set(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &half).is_err() {
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &half)?;
    }
    get(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)
}

/// Returns how much memory is left for more messages from this end. Messages that were sent, but
/// are not received yet, use the other part of the send buffer.
///
/// # Errors
/// The errors of ioctl(2) and getsockopt(2).
pub fn send_room(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut taken: c_int = 0;
    // SAFETY: the call writes one number.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut taken) })?;
    let limit: u32 = get(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)?;
    Ok(limit.saturating_sub(taken.unsigned_abs()))
}

/// asm-generic/socket.h.
const SO_PEERGROUPS: c_int = 59;

const KIND: c_int = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_peers_groups_are_those_of_the_process() {
        let [end, _other] = pair().unwrap();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("Groups:"));
        let own = line.unwrap().split_whitespace();
        let own: Vec<u32> = own.map(|it| it.parse().unwrap()).collect();
        assert_eq!(peer_groups(end.as_fd()).unwrap(), own);
    }

    #[test]
    fn the_maker_of_a_pair_is_its_peer() {
        let [one, _other] = pair().unwrap();
        let peer = peer(one.as_fd()).unwrap();
        assert_eq!(peer.pid, std::process::id());
        assert_eq!(peer.user, crate::process::effective_user());
    }

    #[test]
    fn the_send_buffer_is_as_large_as_asked() {
        let [one, _other] = pair().unwrap();
        assert_eq!(set_send_buffer(one.as_fd(), 100_000).unwrap(), 100_000);
    }

    #[test]
    fn messages_that_nobody_has_received_take_room() {
        let [one, other] = pair().unwrap();
        set_send_buffer(one.as_fd(), 100_000).unwrap();
        message::send(one.as_fd(), b"x", &[]).unwrap();
        let left = send_room(one.as_fd()).unwrap();
        assert!((98_000..100_000).contains(&left), "{left}");
        message::receive(other.as_fd(), &mut [0], 0).unwrap();
        assert_eq!(send_room(one.as_fd()).unwrap(), 100_000);
    }
}
