//! Addresses of the loopback network that no other process uses, whatever else runs.

use std::net::{Ipv4Addr, SocketAddr};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// An address that nobody listens at. When a port from the kernel has been closed, another process
/// may get it before the test uses it. So this process has its own address in 127.0.0.0/8.
///
/// # Panics
/// After 60,000 calls.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST);
    let [_, high, middle, low] = process::id().to_be_bytes();
    let port = NEXT.fetch_add(1, Ordering::Relaxed);
    assert!(port >= FIRST, "no more ports");
    // 127.0.x.y is where others listen. A process has a number of 22 bits at most.
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
