//! Handles without a socket on their device, whose packets come from a poller. The system's
//! library needs a packet socket to activate a handle. A process without privileges can't open one,
//! and in a container the device may be in another network namespace. So the handle is opened on
//! the loopback device. Without privileges this is the loopback device of a network namespace of
//! its own, where the socket receives nothing and sends to nobody (decision 67).

use crate::system::system;
use fanpcap::request::Request;
use fanpcap_config::device::ANY;
use fanpcap_linux::packet::apart;
use std::cell::Cell;
use std::ffi::c_int;
use std::os::fd::IntoRawFd;
use std::sync::Once;

/// The device of such a handle.
pub(crate) const DEVICE: &str = "lo";

/// The error of `gone = wait` for such a handle.
pub(crate) const NOT_WAITING: &str =
    "this needs CAP_NET_RAW (tcpdump: -Z root), and the device in this network namespace";

/// Whether a handle's socket is to be apart: its packets come from a poller, and the process may
/// open no packet socket, or the poller and its device are in another network namespace. A
/// container may have another device of the same name: the handle must have no socket on it.
pub(crate) fn is_needed(request: &Request) -> bool {
    let Some(engine) = request.polled() else {
        return false;
    };
    let device = request.system_name();
    let engine = fanpcap_engines::polled(engine.name());
    // libpcap reads all devices together, without a poller.
    device != ANY && (!apart::may_open() || engine.is_some_and(|it| it.is_elsewhere(device)))
}

thread_local! {
    /// Whether the packet sockets that the system's library opens now may be apart.
    static IS_APART: Cell<bool> = const { Cell::new(false) };
}

/// Runs `activate`. If the process may open no packet socket, or if its loopback device is down, as
/// in a new network namespace, the system's library gets sockets that are apart from all networks.
pub(crate) fn activate(activate: impl FnOnce() -> c_int) -> c_int {
    static REDIRECTED: Once = Once::new();
    REDIRECTED.call_once(|| system().redirect_socket(socket));
    IS_APART.set(true);
    let status = activate();
    IS_APART.set(false);
    status
}

/// socket(2) for the system's library.
extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    if domain != libc::AF_PACKET || !IS_APART.get() || !apart::is_needed() {
        // SAFETY: takes plain numbers.
        return unsafe { libc::socket(domain, kind, protocol) };
    }
    match apart::open(kind) {
        Ok(socket) => socket.into_raw_fd(),
        Err(error) => {
            // SAFETY: the function has no preconditions.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: errno is this thread's own.
            unsafe { errno.write(apart::errno_of(&error)) };
            -1
        }
    }
}
