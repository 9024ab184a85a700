//! The entry points that concern a handle's packet socket.
//!
//! The socket of a handle on the XDP engine is bound to a protocol that no frame carries, so the
//! socket receives nothing. A frame sent through this socket keeps the protocol in its own header.
//!
//! An application that waits on a group member's socket itself would not notice that another member
//! has died. So the application gets the descriptor that [`PcapHandle::descriptor`] returns
//! (`docs/decisions/0041-waiting-by-oneself.md`).

use crate::handles;
use crate::message::guard_handle;
use crate::pcap_handle::PcapHandle;
use crate::system::{ERROR, system};
use fanpcap::polled;
use fanpcap_linux::packet::inject;
use std::ffi::{c_int, c_void};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;

/// See pcap_fileno(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fileno(p: PcapHandle) -> c_int {
    p.descriptor().unwrap_or_else(|| p.fileno())
}

/// See pcap_inject(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_inject(p: PcapHandle, data: *const c_void, len: usize) -> c_int {
    // A wrong length is left to the system's library, which reports it.
    let is_len = (1..=c_int::MAX as usize).contains(&len);
    match p.silent_socket().filter(|_| is_len) {
        Some(socket) => {
            // SAFETY: the caller's promise: `data` has `len` bytes.
            let frame = unsafe { std::slice::from_raw_parts(data.cast(), len) };
            send(p, socket, frame)
        }
        None => system().pcap_inject.map_or(ERROR, |function| {
            // SAFETY: the caller's promise, passed on.
            unsafe { function(p.pointer(), data, len) }
        }),
    }
}

/// See pcap_sendpacket(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_sendpacket(p: PcapHandle, data: *const u8, len: c_int) -> c_int {
    match (p.silent_socket(), usize::try_from(len)) {
        (Some(socket), Ok(len @ 1..)) => {
            // SAFETY: the caller's promise: `data` has `len` bytes.
            let frame = unsafe { std::slice::from_raw_parts(data, len) };
            send(p, socket, frame).min(0)
        }
        _ => system().pcap_sendpacket.map_or(ERROR, |function| {
            // SAFETY: the caller's promise, passed on.
            unsafe { function(p.pointer(), data, len) }
        }),
    }
}

impl PcapHandle {
    /// The packet socket of a silent handle, whose packets come from another engine; `None` for
    /// other handles.
    fn silent_socket(&self) -> Option<BorrowedFd<'_>> {
        let is_silent = self.with_reader(|reader| !reader.control().is_socket())?;
        self.socket().filter(|_| is_silent)
    }
}

/// Sends a frame: by the handle's socket, or by the poller if the handle has no socket on its
/// device. Errors have the text of the system's library (pcap-linux.c, `pcap_inject_linux`).
fn send(p: PcapHandle, socket: BorrowedFd<'_>, frame: &[u8]) -> c_int {
    guard_handle(p, || {
        let sent = match handles::is_apart(p) {
            true => send_by_poller(p, frame),
            false => inject::send(socket, frame),
        };
        match sent {
            Ok(sent) => c_int::try_from(sent).unwrap_or(c_int::MAX),
            Err(error) if error.kind() == ErrorKind::Unsupported => p.fail(polled::NOT_SENT),
            Err(error) => {
                let text = error.to_string();
                let end = text.rfind(" (os error ").unwrap_or(text.len());
                p.fail(&format!("send: {}", &text[..end]))
            }
        }
    })
}

/// Sends a frame by the handle's poller, because the handle has no socket on the device.
fn send_by_poller(p: PcapHandle, frame: &[u8]) -> io::Result<usize> {
    let polled = handles::polled(p).ok_or(ErrorKind::Unsupported)?;
    polled.io.send(frame).map(|()| frame.len())
}
