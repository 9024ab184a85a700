//! Addresses of the loopback network that no other process uses at the same time.

use std::net::{Ipv4Addr, SocketAddr};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// An address at which no process listens. If the test got a port from the kernel and closed it,
/// another process might get the port before the test uses it. So this process uses an IP address
/// in 127.0.0.0/8 that no other process uses.
///
/// # Panics
/// The process has called this function 60,000 times before.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST);
    let [_, high, middle, low] = process::id().to_be_bytes();
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(port >= FIRST, "no more ports");
    // Adds 1 to the second byte, because other processes listen at 127.0.x.y. This byte can't
    // overflow: a process number has 22 bits at most.
    (Ipv4Addr::new(127, high + 1, middle, low), port).into()
}

const FIRST: u16 = 5000;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn addresses_are_free_and_differ() {
        let all: Vec<_> = (0..100).map(|_| free_address()).collect();
        let listeners: Vec<_> = all.iter().map(TcpListener::bind).collect();
        assert!(listeners.iter().all(Result::is_ok));
        assert!(all.iter().all(|address| UdpSocket::bind(address).is_ok()));
    }
}
