//! Handles that are opened and closed: pcap_create, pcap_open_live, pcap_close.

use crate::activate::pcap_activate;
use crate::message::{self, guard};
use crate::setters::{pcap_set_snaplen, pcap_set_timeout};
use crate::system::{self, Pcap, missing, system};
use crate::{handles, several};
use fanpcap::request::Request;
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;

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

/// See pcap_close(3PCAP). The handle leaves its group.
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_close(p: *mut Pcap) {
    let body = || {
        let mut entry = handles::handle_close(p);
        // It maps the socket's ring, and so would keep the socket in its group.
        if let Some(reader) = entry.as_mut().and_then(|entry| entry.reader.take()) {
            // SAFETY: the caller's promise: nobody uses the handle any more.
            unsafe { reader.remove(p) };
        }
        if let Some(entry) = &entry {
            // SAFETY: the caller's promise: nobody uses the handle any more.
            unsafe { several::close_others(entry.others.as_deref().unwrap_or_default()) };
        }
        if let Some(function) = system().pcap_close {
            // SAFETY: the caller's promise, passed on.
            unsafe { function(p) };
        }
        drop(entry);
    };
    guard(body, |_| ());
}
