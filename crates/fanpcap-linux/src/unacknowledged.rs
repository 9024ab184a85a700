//! How long a TCP connection may stay without an answer.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::option;

/// Has the kernel end a TCP connection if the other side acknowledges nothing of what was sent for
/// so long (`TCP_USER_TIMEOUT`, tcp(7)). The kernel counts milliseconds.
///
/// # Errors
/// It is no TCP socket.
pub fn limit(socket: BorrowedFd<'_>, time: Duration) -> io::Result<()> {
    let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    option::set(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_USER_TIMEOUT,
        &milliseconds,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn the_kernel_keeps_the_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        limit(stream.as_fd(), Duration::from_secs(5)).unwrap();
        let kept: u32 =
            option::get(stream.as_fd(), libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT).unwrap();
        assert_eq!(kept, 5000);
    }
}
