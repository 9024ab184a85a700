//! How many unread bytes a socket can hold.

use std::io;
use std::os::fd::BorrowedFd;

use crate::option;

/// Makes a socket hold up to `bytes` unread bytes, even beyond the limit for users
/// (`net.core.rmem_max`). The kernel doubles the number, because its structures also use the room.
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`.
pub fn force(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    option::set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    #[ignore = "needs root: sets a buffer above the limit for users"]
    fn a_socket_keeps_more() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        force(socket.as_fd(), 8 << 20).unwrap();
        let kept: u32 = option::get(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF).unwrap();
        assert_eq!(kept, 16 << 20);
    }
}
