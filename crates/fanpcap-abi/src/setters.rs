//! The setters of a handle that is not activated yet, which fan-out and our reader must know of.

use crate::handles;
use crate::message::{fail, guard};
use crate::several;
use crate::system::{ERROR, Pcap, system};
use std::ffi::c_int;

/// Lets the system's library set something, and notes it when that has worked.
///
/// # Safety
/// `p` is a handle.
unsafe fn set(
    p: *mut Pcap,
    function: Option<unsafe extern "C-unwind" fn(*mut Pcap, c_int) -> c_int>,
    value: c_int,
    note: impl Fn(*mut Pcap),
) -> c_int {
    let body = || {
        // SAFETY: the caller vouches for `p`.
        let set = |p| function.map_or(ERROR, |function| unsafe { function(p, value) });
        // SAFETY: as above.
        unsafe {
            several::each(p, |p| {
                let status = set(p);
                if status == 0 {
                    note(p);
                }
                status
            })
        }
    };
    // SAFETY: as above.
    guard(body, |text| unsafe { fail(p, text) })
}

/// See pcap_set_snaplen(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_snaplen(p: *mut Pcap, snaplen: c_int) -> c_int {
    let note = |p| {
        handles::with(p, |entry| entry.snaplen = Some(snaplen));
    };
    // SAFETY: the caller's promise, passed on.
    unsafe { set(p, system().pcap_set_snaplen, snaplen, note) }
}

/// See pcap_set_timeout(3PCAP). Where several devices are merged, none may be much later than others.
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_timeout(p: *mut Pcap, timeout: c_int) -> c_int {
    let latest = several::LATEST;
    let timeout = match timeout {
        0 if several::is_several(p) => latest,
        1.. if several::is_several(p) => timeout.min(latest),
        _ => timeout,
    };
    // SAFETY: the caller's promise, passed on.
    unsafe { set(p, system().pcap_set_timeout, timeout, |_| ()) }
}

/// See pcap_set_buffer_size(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_buffer_size(p: *mut Pcap, bytes: c_int) -> c_int {
    // A group may be asked for later.
    let note = |p| handles::with_new(p, |entry| entry.buffer_size = Some(bytes));
    // SAFETY: the caller's promise, passed on.
    unsafe { set(p, system().pcap_set_buffer_size, bytes, note) }
}

/// See pcap_set_protocol_linux(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_protocol_linux(p: *mut Pcap, protocol: c_int) -> c_int {
    let note = |p| handles::with_new(p, |entry| entry.protocol = protocol_of(protocol));
    // SAFETY: the caller's promise, passed on.
    unsafe { set(p, system().pcap_set_protocol_linux, protocol, note) }
}

/// The protocol that the system's library binds to: cut to 16 bits, 0 meaning all (pcap-linux.c).
fn protocol_of(protocol: c_int) -> Option<u16> {
    let [low, high, ..] = protocol.to_le_bytes();
    Some(u16::from_le_bytes([low, high])).filter(|&protocol| protocol != 0)
}
