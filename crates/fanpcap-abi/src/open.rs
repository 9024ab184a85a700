//! Handles from create to close: pcap_create, pcap_open_live, pcap_activate, pcap_close.

use crate::message::{self, ERRBUF_SIZE, fail, guard};
use crate::setters::{pcap_set_snaplen, pcap_set_timeout};
use crate::system::{self, ERROR, Pcap, PcapStat, missing, system};
use crate::{handles, read, several, stats};
use fanpcap::join::JoinError;
use fanpcap::record::Counters;
use fanpcap::request::Request;
use fanpcap::settings::{Membership, Plan};
use fanpcap_linux::packet;
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::null_mut;
use std::sync::Arc;

/// The largest snapshot length, and what 0 and senseless values mean (pcap-int.h).
const MAXIMUM_SNAPLEN: c_int = 262_144;

/// `PCAP_WARNING`: done, but pcap_geterr() has something to say.
const WARNING: c_int = 1;

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
    // SAFETY: the caller vouches for it.
    Request::new(&unsafe { name(device) })
}

/// A device's name as settings know it. The kernel allows bytes that are no UTF-8.
///
/// # Safety
/// `device` is null or a C string that outlives the name.
unsafe fn name<'a>(device: *const c_char) -> Cow<'a, str> {
    if device.is_null() {
        return Cow::Borrowed("any");
    }
    // SAFETY: the caller vouches for it.
    unsafe { CStr::from_ptr(device) }.to_string_lossy()
}

/// # Safety
/// As pcap_create(3PCAP) asks.
unsafe fn create(
    device: *const c_char,
    request: Option<Request>,
    errbuf: *mut c_char,
) -> *mut Pcap {
    let Some(request) = request else {
        // SAFETY: the caller vouches for both.
        return unsafe { create_by_name(device, None, errbuf) };
    };
    match request.of_parts() {
        // SAFETY: as above.
        Some(parts) => unsafe { several::create(parts, errbuf) },
        None => {
            // SAFETY: as above.
            let is_given = request.system_name() == unsafe { name(device) };
            match CString::new(request.system_name()) {
                // SAFETY: the name is a C string, and the caller vouches for errbuf.
                Ok(name) if !is_given => unsafe {
                    create_by_name(name.as_ptr(), Some(request), errbuf)
                },
                // Not to be changed where it isn't: the kernel allows bytes that are no UTF-8.
                // SAFETY: the caller vouches for both.
                _ => unsafe { create_by_name(device, Some(request), errbuf) },
            }
        }
    }
}

/// A handle on the one device that `request` is about.
///
/// # Safety
/// `errbuf` is as libpcap asks.
pub(crate) unsafe fn create_for(request: Request, errbuf: *mut c_char) -> *mut Pcap {
    let name = CString::new(request.system_name()).unwrap_or_default();
    // SAFETY: the name is a C string, and the caller vouches for errbuf.
    unsafe { create_by_name(name.as_ptr(), Some(request), errbuf) }
}

/// # Safety
/// As pcap_create(3PCAP) asks.
unsafe fn create_by_name(
    device: *const c_char,
    request: Option<Request>,
    errbuf: *mut c_char,
) -> *mut Pcap {
    let Some(function) = system().pcap_create else {
        return missing(errbuf, null_mut());
    };
    // SAFETY: the caller vouches for both.
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
    unsafe { pcap_set_timeout(p, timeout) };
    // SAFETY: as above.
    let status = unsafe { pcap_activate(p) };
    if status > 0 {
        // SAFETY: the caller vouches for both.
        unsafe { message::pass_on(p, errbuf) };
    }
    if status >= 0 {
        return p;
    }
    // SAFETY: the caller vouches for both.
    unsafe { message::explain(p, device, status, errbuf) };
    // SAFETY: `p` is open and not used again.
    unsafe { pcap_close(p) };
    null_mut()
}

/// See pcap_activate(3PCAP). A handle with a group has joined it when this returns 0 or more.
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_activate(p: *mut Pcap) -> c_int {
    let body = || match several::is_several(p) {
        // SAFETY: the caller's promise, passed on.
        false => unsafe { activate_one(p) },
        // SAFETY: as above.
        true => unsafe { several::activate(p) },
    };
    // SAFETY: the caller's promise: `p` is a handle.
    guard(body, |text| unsafe { fail(p, text) })
}

/// Activates a handle on one device, by its settings.
///
/// # Safety
/// `p` is a handle.
pub(crate) unsafe fn activate_one(p: *mut Pcap) -> c_int {
    let request = handles::with(p, |entry| Arc::clone(&entry.request));
    match request.map(|request| request.plan()) {
        // SAFETY: the caller vouches for `p`.
        None => unsafe { activate(p) },
        // SAFETY: as above.
        Some(Ok(plan)) => unsafe { activate_as(p, plan) },
        // SAFETY: as above.
        Some(Err(report)) => unsafe { fail(p, &report.render(ERRBUF_SIZE - 1)) },
    }
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
    if let Some(bytes) = plan.buffer_size() {
        // SAFETY: as above.
        unsafe { provide_buffer(p, bytes) };
    }
    match &plan.membership {
        // SAFETY: as above.
        Some(membership) => unsafe { activate_in_group(p, membership) },
        // SAFETY: as above.
        None if plan.is_read_by_us() => unsafe { activate_alone(p) },
        // SAFETY: as above.
        None => unsafe { activate(p) },
    }
}

/// Gives the ring of a handle that we read its size, where the program has not.
///
/// # Safety
/// `p` is a handle that is not activated.
unsafe fn provide_buffer(p: *mut Pcap, bytes: c_int) {
    let asked = handles::with(p, |entry| entry.buffer_size).flatten();
    if let (None, Some(function)) = (asked, system().pcap_set_buffer_size) {
        // SAFETY: the caller vouches for `p`.
        unsafe { function(p, bytes) };
    }
}

/// Activates a handle that we read and that joins no group.
///
/// # Safety
/// `p` is a handle.
unsafe fn activate_alone(p: *mut Pcap) -> c_int {
    // SAFETY: the caller vouches for `p`.
    let status = unsafe { activate_taken_over(p) };
    if status >= 0 {
        // SAFETY: as above.
        unsafe { read::truncate(p, p) };
    }
    status
}

/// # Safety
/// `p` is a handle.
unsafe fn activate_taken_over(p: *mut Pcap) -> c_int {
    // SAFETY: the caller vouches for `p`.
    let status = unsafe { activate(p) };
    let is_part = handles::with(p, |entry| entry.is_part) == Some(true);
    if status >= 0 && !is_part {
        // SAFETY: as above.
        unsafe { read::take_over(p) };
    }
    status
}

/// Activates silently, then joins, see [`fanpcap::join`]. Where joining fails, the handle is activated
/// for the system's library but not for the program, which may call again.
///
/// # Safety
/// `p` is a handle.
unsafe fn activate_in_group(p: *mut Pcap, membership: &Membership) -> c_int {
    let again = handles::with(p, |entry| entry.unjoined) == Some(true);
    // SAFETY: the caller vouches for `p`.
    let activate = || unsafe { activate_silently(p) };
    let status = if again { 0 } else { activate() };
    if status < 0 {
        return status;
    }
    let joined = match handles::place(p) {
        // pcap_fanout() has joined since.
        Some(_) => Ok(()),
        // SAFETY: as above.
        None => unsafe { join(p, membership) },
    };
    handles::with(p, |entry| entry.unjoined = joined.is_err());
    if joined.is_ok() {
        // SAFETY: as above.
        unsafe { read::truncate(p, p) };
    }
    match joined {
        Ok(()) if status > 0 => status,
        // SAFETY: as above.
        Ok(()) => unsafe { warn_of_strangers(p) },
        // SAFETY: as above.
        Err(error) => unsafe { fail(p, &membership.blame(&error)) },
    }
}

/// Lets the system's library bind to a protocol that no frame carries.
///
/// # Safety
/// `p` is a handle.
unsafe fn activate_silently(p: *mut Pcap) -> c_int {
    let bind_to = |protocol: u16| {
        if let Some(function) = system().pcap_set_protocol_linux {
            // SAFETY: the caller vouches for `p`.
            unsafe { function(p, c_int::from(protocol)) };
        }
    };
    bind_to(packet::ETH_P_SILENT);
    // SAFETY: as above.
    let status = unsafe { activate_taken_over(p) };
    if status < 0 {
        // It may be tried again, without a group then.
        bind_to(
            handles::with(p, |entry| entry.protocol)
                .flatten()
                .unwrap_or(0),
        );
    }
    status
}

/// Joins a group with an activated handle and notes the member.
///
/// # Safety
/// `p` is an activated handle.
pub(crate) unsafe fn join(p: *mut Pcap, membership: &Membership) -> Result<(), JoinError> {
    // SAFETY: the caller vouches for `p`.
    let fd: RawFd = unsafe { system::pcap_fileno(p) };
    if fd < 0 {
        return Err(JoinError::NotPacket);
    }
    let protocol = handles::with(p, |entry| entry.protocol).flatten();
    let mut told = PcapStat::default();
    // SAFETY: the caller vouches for `p`. Where there are no statistics, zeros are right.
    unsafe { stats::told(p, &raw mut told) };
    let before = Counters {
        received: told.ps_recv.into(),
        dropped: told.ps_drop.into(),
    };
    // SAFETY: the handle's descriptor is open as long as the handle.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let Membership { group, mode, .. } = *membership;
    let protocol = protocol.unwrap_or(packet::ETH_P_ALL);
    let member = fanpcap::join::join(socket, group, mode, protocol, before)?;
    handles::with_new(p, |entry| entry.member = Some((member, fd)));
    Ok(())
}

/// A handle that shares its group with another program works, and says so: rarely is it meant.
///
/// # Safety
/// `p` is a handle.
unsafe fn warn_of_strangers(p: *mut Pcap) -> c_int {
    let stranger = handles::place(p).and_then(|place| Some((place.group(), place.stranger()?)));
    let Some((group, (program, pid))) = stranger else {
        return 0;
    };
    let text = format!(
        "fan-out group {group} is shared with another program, {program} (process {pid}): each sees \
         a part of the packets; give one of them another group to see all"
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
    let body = || {
        let mut entry = handles::handle_close(p);
        // It maps the socket's ring, and so would keep the socket in its group.
        drop(entry.as_mut().and_then(|entry| entry.reader.take()));
        if let Some(entry) = &entry {
            // SAFETY: the caller's promise: nobody uses the handle any more.
            unsafe { several::close_others(&entry.others) };
        }
        if let Some(function) = system().pcap_close {
            // SAFETY: the caller's promise, passed on.
            unsafe { function(p) };
        }
        drop(entry);
    };
    guard(body, |_| ());
}
