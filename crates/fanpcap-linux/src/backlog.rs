//! How many connections may wait until a program accepts them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::errno::check;

/// Sets how many connections may wait at a socket that listens. The kernel limits the number to
/// `net.core.somaxconn`. listen(2) changes nothing else on such a socket (`__inet_listen_sk()`).
///
/// # Errors
/// The socket is none that can listen.
pub fn set(listener: BorrowedFd<'_>, connections: i32) -> io::Result<()> {
    // SAFETY: listen(2) takes two integers and reads no memory of this process.
    check(unsafe { libc::listen(listener.as_raw_fd(), connections) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn more_connections_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set(listener.as_fd(), 300).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(900));
        let waiting: Vec<TcpStream> = (0..300).map_while(|at| connect(at).ok()).collect();
        assert_eq!(waiting.len(), 300);
    }
}
