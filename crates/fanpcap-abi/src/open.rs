//! Handles from create to close: pcap_create, pcap_open_live, pcap_activate, pcap_close and the
//! setters that fan-out must know of.

use crate::handles::{self, Entry};
use crate::message::{self, ERRBUF_SIZE, fail, guard};
use crate::system::{self, ERROR, Pcap, missing, system};
use fanpcap::member::{JoinError, Member};
use fanpcap::request::Request;
use fanpcap::settings::{Membership, Plan};
use fanpcap_linux::packet;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;

/// The largest snapshot length, and what 0 and senseless values mean (pcap-int.h).
const MAXIMUM_SNAPLEN: c_int = 262_144;

/// `PCAP_WARNING`: done, but pcap_geterr() has something to say.
const WARNING: c_int = 1;
const NO_SUCH_DEVICE: c_int = -5;
const PERM_DENIED: c_int = -8;
const PROMISC_PERM_DENIED: c_int = -11;

/// See pcap_create(3PCAP). Settings are read here; what is wrong with them, pcap_activate() tells.
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_create(device: *const c_char, errbuf: *mut c_char) -> *mut Pcap {
    let body = || {
        // SAFETY: the caller's promise, passed on.
        let request = unsafe { request(device) };
        // SAFETY: as above.
        unsafe { create(device, request, errbuf) }
    };
    guard(body, |text| {
        // SAFETY: the caller's promise: errbuf has PCAP_ERRBUF_SIZE bytes.
        unsafe { message::write(errbuf, text) };
        null_mut()
    })
}

/// What is asked of a new handle on `device`.
///
/// # Safety
/// `device` is null or a C string.
unsafe fn request(device: *const c_char) -> Option<Request> {
    if system().is_calling() {
        return None;
    }
    if device.is_null() {
        return Request::new("any");
    }
    // SAFETY: the caller vouches for it. The kernel's device names are UTF-8 or nothing of ours.
    let name = unsafe { CStr::from_ptr(device) };
    name.to_str().map_or(None, Request::new)
}

/// # Safety
/// As pcap_create(3PCAP) asks.
unsafe fn create(
    device: *const c_char,
    request: Option<Request>,
    errbuf: *mut c_char,
) -> *mut Pcap {
    let Some(function) = system().pcap_create else {
        return missing(errbuf, null_mut());
    };
    let renamed = request
        .as_ref()
        .and_then(|request| CString::new(request.system_name()).ok());
    let device = renamed
        .as_ref()
        .filter(|_| !device.is_null())
        .map_or(device, |name| name.as_ptr());
    // SAFETY: `device` is the caller's or our own C string; errbuf is the caller's.
    let p = unsafe { function(device, errbuf) };
    if !p.is_null() {
        handles::handle_create(p, request);
    }
    p
}

/// See pcap_open_live(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_open_live(
    device: *const c_char,
    snaplen: c_int,
    promisc: c_int,
    timeout: c_int,
    errbuf: *mut c_char,
) -> *mut Pcap {
    let body = || {
        // SAFETY: the caller's promise, passed on.
        match (unsafe { request(device) }, system().pcap_open_live) {
            (_, None) => missing(errbuf, null_mut()),
            (None, Some(function)) => {
                // SAFETY: the caller's promise, passed on.
                let p = unsafe { function(device, snaplen, promisc, timeout, errbuf) };
                handles::handle_create(p, None);
                p
            }
            (request, _) => {
                // SAFETY: the caller's promise, passed on.
                let p = unsafe { create(device, request, errbuf) };
                if p.is_null() {
                    return p;
                }
                // SAFETY: `p` is new and errbuf the caller's.
                unsafe { set_and_activate(p, device, (snaplen, promisc, timeout), errbuf) }
            }
        }
    };
    guard(body, |text| {
        // SAFETY: the caller's promise: errbuf has PCAP_ERRBUF_SIZE bytes.
        unsafe { message::write(errbuf, text) };
        null_mut()
    })
}

/// The rest of pcap_open_live() with a handle that settings concern.
///
/// # Safety
/// `p` is not activated, `device` null or a C string, `errbuf` as libpcap asks.
unsafe fn set_and_activate(
    p: *mut Pcap,
    device: *const c_char,
    (snaplen, promisc, timeout): (c_int, c_int, c_int),
    errbuf: *mut c_char,
) -> *mut Pcap {
    // SAFETY: `p` is a handle that is not activated; so for the next three.
    unsafe { pcap_set_snaplen(p, snaplen) };
    // SAFETY: as above.
    unsafe { system::pcap_set_promisc(p, promisc) };
    // SAFETY: as above.
    unsafe { system::pcap_set_timeout(p, timeout) };
    // SAFETY: as above.
    let status = unsafe { pcap_activate(p) };
    if status >= 0 {
        return p;
    }
    // SAFETY: the caller vouches for both.
    unsafe { explain(p, device, status, errbuf) };
    // SAFETY: `p` is open and not used again.
    unsafe { pcap_close(p) };
    null_mut()
}

/// Says in `errbuf` why a handle could not be activated, in the words of pcap_open_live() (pcap.c).
///
/// # Safety
/// `p` is a handle, `device` null or a C string, `errbuf` as libpcap asks.
unsafe fn explain(p: *mut Pcap, device: *const c_char, status: c_int, errbuf: *mut c_char) {
    // SAFETY: takes any number.
    let reason = unsafe { system::pcap_statustostr(status) };
    // SAFETY: the caller vouches for `p`.
    let error = unsafe { system::pcap_geterr(p) };
    // SAFETY: libpcap's answers are C strings or null, and the caller vouches for `device`.
    let string = |text: *const c_char| unsafe { string(text) };
    let (device, reason, error) = (string(device), string(reason), string(error));
    let device = if device.is_empty() {
        "any".to_owned()
    } else {
        device
    };
    let text = match status {
        // A report on settings starts with its own place, and needs the room.
        ERROR if error.len() + device.len() + 3 > ERRBUF_SIZE => error,
        ERROR => format!("{device}: {error}"),
        NO_SUCH_DEVICE | PERM_DENIED | PROMISC_PERM_DENIED if !error.is_empty() => {
            format!("{device}: {reason} ({error})")
        }
        _ => format!("{device}: {reason}"),
    };
    // SAFETY: the caller vouches for the buffer.
    unsafe { message::write(errbuf, &text) };
}

/// # Safety
/// `text` is null or a C string.
unsafe fn string(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// See pcap_set_snaplen(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_snaplen(p: *mut Pcap, snaplen: c_int) -> c_int {
    guard(
        || handles::with(p, |entry| entry.snaplen = Some(snaplen)),
        |_| None,
    );
    // SAFETY: the caller's promise, passed on.
    system()
        .pcap_set_snaplen
        .map_or(ERROR, |function| unsafe { function(p, snaplen) })
}

/// See pcap_set_protocol_linux(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_protocol_linux(p: *mut Pcap, protocol: c_int) -> c_int {
    let Some(function) = system().pcap_set_protocol_linux else {
        return ERROR;
    };
    // SAFETY: the caller's promise, passed on.
    let status = unsafe { function(p, protocol) };
    if status == 0 {
        let note = || handles::with_new(p, |entry| entry.protocol = protocol_of(protocol));
        guard(note, |_| ());
    }
    status
}

/// The protocol that the system's library binds to: cut to 16 bits, 0 meaning all (pcap-linux.c).
fn protocol_of(protocol: c_int) -> Option<u16> {
    let [low, high, ..] = protocol.to_le_bytes();
    Some(u16::from_le_bytes([low, high])).filter(|&protocol| protocol != 0)
}

/// See pcap_activate(3PCAP). A handle with a group has joined it when this returns 0 or more.
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_activate(p: *mut Pcap) -> c_int {
    let body = || match handles::with(p, |entry| entry.request.plan()) {
        // SAFETY: the caller's promise, passed on.
        None => unsafe { activate(p) },
        // SAFETY: as above.
        Some(Ok(plan)) => unsafe { activate_as(p, plan) },
        // SAFETY: as above.
        Some(Err(report)) => unsafe { fail(p, &report.render(ERRBUF_SIZE - 1)) },
    };
    // SAFETY: the caller's promise: `p` is a handle.
    guard(body, |text| unsafe { fail(p, text) })
}

/// # Safety
/// `p` is a handle.
unsafe fn activate(p: *mut Pcap) -> c_int {
    // SAFETY: the caller vouches for `p`.
    system()
        .pcap_activate
        .map_or(ERROR, |function| unsafe { function(p) })
}

/// # Safety
/// `p` is a handle.
unsafe fn activate_as(p: *mut Pcap, plan: Plan) -> c_int {
    if let (Some(caplen), Some(function)) = (plan.caplen, system().pcap_set_snaplen) {
        let asked = handles::with(p, |entry| entry.snaplen).flatten();
        let asked = asked.filter(|asked| (1..=MAXIMUM_SNAPLEN).contains(asked));
        let caplen = c_int::try_from(caplen).unwrap_or(MAXIMUM_SNAPLEN);
        // SAFETY: the caller vouches for `p`.
        unsafe { function(p, asked.unwrap_or(MAXIMUM_SNAPLEN).min(caplen)) };
    }
    match plan.membership {
        // SAFETY: as above.
        Some(membership) => unsafe { activate_in_group(p, &membership) },
        // SAFETY: as above.
        None => unsafe { activate(p) },
    }
}

/// Activates silently, then joins: see [`Member::join`].
///
/// # Safety
/// `p` is a handle.
unsafe fn activate_in_group(p: *mut Pcap, membership: &Membership) -> c_int {
    let protocol = handles::with(p, |entry| entry.protocol).flatten();
    if let Some(function) = system().pcap_set_protocol_linux {
        // SAFETY: the caller vouches for `p`.
        unsafe { function(p, c_int::from(packet::ETH_P_SILENT)) };
    }
    // SAFETY: as above.
    let status = unsafe { activate(p) };
    if status < 0 {
        // It may be tried again, without a group then.
        if let Some(function) = system().pcap_set_protocol_linux {
            // SAFETY: as above.
            unsafe { function(p, c_int::from(protocol.unwrap_or(0))) };
        }
        return status;
    }
    // SAFETY: as above.
    match unsafe { join(p, membership, protocol.unwrap_or(packet::ETH_P_ALL)) } {
        Ok(()) if status > 0 => status,
        // SAFETY: as above.
        Ok(()) => unsafe { warn_of_strangers(p) },
        // SAFETY: as above.
        Err(error) => unsafe { fail(p, &membership.blame(&error)) },
    }
}

/// Joins a group with an activated handle and notes the member.
///
/// # Safety
/// `p` is an activated handle.
pub(crate) unsafe fn join(
    p: *mut Pcap,
    membership: &Membership,
    protocol: u16,
) -> Result<(), JoinError> {
    // SAFETY: the caller vouches for `p`.
    let fd: RawFd = unsafe { system::pcap_fileno(p) };
    if fd < 0 {
        return Err(JoinError::NotPacket);
    }
    // SAFETY: the handle's descriptor is open as long as the handle.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let member = Member::join(socket, membership.group, membership.mode, protocol)?;
    handles::with_new(p, |entry| entry.member = Some((member, fd)));
    Ok(())
}

/// A handle that shares its group with another program works, and says so: rarely is it meant.
///
/// # Safety
/// `p` is a handle.
unsafe fn warn_of_strangers(p: *mut Pcap) -> c_int {
    let look = |entry: &mut Entry| {
        let (member, _) = entry.member.as_ref()?;
        Some((member.group(), member.stranger()?))
    };
    let Some((group, (program, pid))) = handles::with(p, look).flatten() else {
        return 0;
    };
    let text = format!(
        "fan-out group {group} is shared with another program, {program} (process {pid}): each sees a \
         part of the packets; give one of them another group to see all"
    );
    // SAFETY: the caller vouches for `p`.
    unsafe { fail(p, &text) };
    WARNING
}

/// See pcap_close(3PCAP). The handle leaves its group.
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_close(p: *mut Pcap) {
    let entry = guard(|| handles::handle_close(p), |_| None);
    if let Some(function) = system().pcap_close {
        // SAFETY: the caller's promise, passed on.
        unsafe { function(p) };
    }
    guard(|| drop(entry), |_| ());
}
