//! A packet socket for a process without privileges, apart from all networks: it is in a network
//! namespace of its own, whose only device is a loopback device.

use crate::errno::{check, owned};
use crate::interface;
use crate::process::signal::Blocked;
use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;

/// Whether this process may open packet sockets in its own network namespace.
pub fn may_open() -> bool {
    !in_own_namespace().is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Whether a socket on the loopback device must be apart: this process may open no packet socket in
/// its own network namespace, or the loopback device there is down, which the system's libpcap
/// refuses. If this can't be found out, for lack of descriptors or memory, the socket need not be
/// apart: the system's libpcap then reports the same error.
pub fn is_needed() -> bool {
    let is_up = |socket: OwnedFd| interface::is_up(socket.as_fd(), interface::index("lo")?).ok();
    must_be_apart(in_own_namespace().map(is_up))
}

/// `is_up` tells whether a socket was opened, and whether the loopback device is up, if known.
fn must_be_apart(is_up: io::Result<Option<bool>>) -> bool {
    match is_up {
        Ok(is_up) => is_up == Some(false),
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// The `errno` for the system's libpcap if [`open`] has failed: `EPERM`, with which libpcap reports
/// that a privilege is missing, unless descriptors or memory are missing.
pub fn errno_of(error: &io::Error) -> c_int {
    match error.raw_os_error() {
        Some(lacking @ (libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS)) => lacking,
        Some(_) | None => libc::EPERM,
    }
}

fn in_own_namespace() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes plain numbers.
    owned(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })
}

/// Opens a packet socket of this `kind` (`SOCK_*`) in a new network namespace, whose loopback
/// device is up. Nothing else is in this namespace, which ends with the socket. A child process
/// makes both in a user namespace of its own, and ends before this function returns. The
/// application gets no signal from it. Where processes may not make user namespaces, as in a
/// chroot(2) (`create_user_ns()`), a process with CAP_SYS_ADMIN makes the network namespace alone.
///
/// # Errors
/// `EPERM` or `ENOSPC` where this process may make neither; other errors of clone(2) and socket(2).
pub fn open(kind: c_int) -> io::Result<OwnedFd> {
    open_by(libc::CLONE_NEWUSER, kind).or_else(|error| open_by(0, kind).map_err(|_| error))
}

/// As [`open`], in a child with these further namespaces.
fn open_by(more: c_int, kind: c_int) -> io::Result<OwnedFd> {
    // The child shares this thread's memory, so it must not run a signal handler.
    let _signals = Blocked::new();
    let mut stack = vec![0_u128; STACK_LEN / mem::size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let mut making = Making {
        kind,
        socket: -1,
        error: 0,
    };
    // CLONE_VFORK: this thread waits until the child has ended. CLONE_FILES: the child's socket is
    // a descriptor of this process, too. No signal is sent when the child ends.
    let shared = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES;
    let flags = shared | libc::CLONE_NEWNET | more;
    // SAFETY: `make` gets a stack and a struct of its own, which live until the child has ended.
    let child = unsafe { libc::clone(make, top, flags, (&raw mut making).cast()) };
    check(child)?;
    // SAFETY: takes plain numbers and null. A child that sends no signal is found by __WALL.
    unsafe { libc::waitpid(child, null_mut(), libc::__WALL) };
    match making.socket {
        ..0 => Err(io::Error::from_raw_os_error(making.error)),
        // SAFETY: the child has opened the descriptor, and no other value owns it.
        socket => Ok(unsafe { OwnedFd::from_raw_fd(socket) }),
    }
}

const STACK_LEN: usize = 64 << 10;

/// What the child is to make, and what it has made.
struct Making {
    kind: c_int,
    socket: c_int,
    error: c_int,
}

/// The child: makes system calls only.
extern "C" fn make(making: *mut c_void) -> c_int {
    // SAFETY: `open` passes the address of such a struct, and does not use it meanwhile.
    let making = unsafe { &mut *making.cast::<Making>() };
    // SAFETY: takes plain numbers.
    let made = owned(unsafe { libc::socket(libc::AF_PACKET, making.kind, 0) });
    let made = made.and_then(|socket| raise_loopback(&socket).map(|()| socket));
    match made {
        Ok(socket) => making.socket = socket.into_raw_fd(),
        Err(error) => making.error = error.raw_os_error().unwrap_or(libc::EPERM),
    }
    0
}

/// Sets the loopback device up. The system's libpcap refuses a device that is down.
fn raise_loopback(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: an ifreq is plain data; zeros are valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as c_char;
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP).unwrap_or_default();
    // SAFETY: the request is live for the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{self, Address, ETH_P_ALL};
    use crate::process;
    use std::thread;

    #[test]
    fn only_a_missing_privilege_or_a_device_that_is_down_calls_for_a_socket_apart() {
        let failed = |errno| Err(io::Error::from_raw_os_error(errno));
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS] {
            assert!(!must_be_apart(failed(errno)), "{errno}");
            assert_eq!(errno_of(&io::Error::from_raw_os_error(errno)), errno);
        }
        for errno in [libc::EPERM, libc::EACCES] {
            assert!(must_be_apart(failed(errno)), "{errno}");
        }
        assert!(must_be_apart(Ok(Some(false))));
        assert!(!must_be_apart(Ok(Some(true))) && !must_be_apart(Ok(None)));
        let no_namespaces = io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(errno_of(&no_namespaces), libc::EPERM);
    }

    #[test]
    fn a_socket_of_an_empty_namespace_has_a_loopback_device_that_is_up() {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        let socket = match open(kind) {
            Ok(socket) => socket,
            Err(error) => {
                println!("SKIP: no user namespaces: {error}");
                return;
            }
        };
        assert!(packet::is_packet_socket(socket.as_fd()).unwrap());
        // The first device of each namespace has the index 1.
        let address = Address {
            ifindex: 1,
            protocol: ETH_P_ALL,
        };
        packet::bind(socket.as_fd(), address).unwrap();
        let hardware = packet::hardware_type(socket.as_fd()).unwrap();
        assert_eq!(hardware, libc::ARPHRD_LOOPBACK);
        // The socket gets none of this namespace's packets.
        let frame = [0_u8; 60];
        let sent = crate::packet::inject::send(socket.as_fd(), &frame);
        assert!(sent.is_ok() || interface::index("lo").is_none(), "{sent:?}");
        assert!(may_open() || process::effective_user() != 0);
    }

    /// The kernel makes no user namespace for a process whose root directory was changed.
    #[test]
    #[ignore = "needs root: chroot"]
    fn root_gets_a_socket_where_no_user_namespaces_can_be_made() {
        let in_chroot = thread::spawn(|| {
            // SAFETY: takes plain numbers. This thread has its own root directory from now on.
            check(unsafe { libc::unshare(libc::CLONE_FS) }).unwrap();
            // SAFETY: the path is a C string that lives through the call.
            check(unsafe { libc::chroot(c"/proc".as_ptr()) }).unwrap();
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let error = open_by(libc::CLONE_NEWUSER, kind).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
            open(kind)
        });
        let socket = in_chroot.join().unwrap().unwrap();
        assert!(packet::is_packet_socket(socket.as_fd()).unwrap());
    }
}
