//! Opens and closes handles: pcap_create, pcap_open_live, pcap_close.

use crate::activate::activate;
use crate::apart;
use crate::errbuf;
use crate::handles;
use crate::message::{self, guard, guard_errbuf};
use crate::pcap_handle::PcapHandle;
use crate::setters::{pcap_set_promisc, pcap_set_snaplen, set_timeout};
use crate::system::{Pcap, missing, system};
use fanpcap::handle::PartState;
use fanpcap::request::Request;
use fanpcap::several;
use fanpcap_config::device::ANY;
use std::ffi::{CString, c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;

/// See pcap_create(3PCAP). Reads the settings. pcap_activate() reports errors in the settings.
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_create(device: *const c_char, errbuf: *mut c_char) -> *mut Pcap {
    let body = || {
        // SAFETY: the caller's promise: null, or a C string.
        let request = request(&unsafe { name(device) });
        // SAFETY: the caller's promise: a device and an error buffer as libpcap asks.
        pointer(unsafe { create(device, request, errbuf) })
    };
    // SAFETY: the caller's promise: errbuf has PCAP_ERRBUF_SIZE bytes.
    unsafe { guard_errbuf(errbuf, null_mut(), body) }
}

fn pointer(p: Option<PcapHandle>) -> *mut Pcap {
    p.map_or(null_mut(), PcapHandle::pointer)
}

fn request(device: &str) -> Option<Request> {
    if system().is_calling() {
        return None;
    }
    Request::new(device)
}

/// A device's name as the settings use it. The kernel allows bytes that are not UTF-8.
///
/// # Safety
/// `device` is null or a C string.
unsafe fn name(device: *const c_char) -> String {
    // SAFETY: the caller guarantees the string.
    unsafe { errbuf::string(device) }.unwrap_or_else(|| ANY.to_owned())
}

/// # Safety
/// As pcap_create(3PCAP) requires.
unsafe fn create(
    device: *const c_char,
    request: Option<Request>,
    errbuf: *mut c_char,
) -> Option<PcapHandle> {
    let Some(request) = request else {
        // SAFETY: the caller guarantees device and buffer.
        return unsafe { create_by_name(device, None, errbuf) };
    };
    if let Some(parts) = request.of_parts() {
        // SAFETY: the caller guarantees the buffer.
        return unsafe { create_several(parts, errbuf) };
    }
    let is_apart = apart::is_needed(&request);
    // SAFETY: the caller guarantees the device's name.
    if !is_apart && request.system_name() == unsafe { name(device) } {
        // Pass the name unchanged: the kernel allows bytes that are not UTF-8.
        // SAFETY: the caller guarantees device and buffer.
        return unsafe { create_by_name(device, Some(request), errbuf) };
    }
    // SAFETY: the caller guarantees the buffer.
    unsafe { create_for(request, is_apart, errbuf) }
}

/// Creates a handle on the one device of `request`. `is_apart` is as [`apart::is_needed`] returns.
///
/// # Safety
/// `errbuf` is as libpcap asks.
unsafe fn create_for(request: Request, is_apart: bool, errbuf: *mut c_char) -> Option<PcapHandle> {
    let name = if is_apart {
        apart::DEVICE
    } else {
        request.system_name()
    };
    let name = CString::new(name).unwrap_or_default();
    // SAFETY: the name is a C string, and the caller guarantees the buffer.
    let p = unsafe { create_by_name(name.as_ptr(), Some(request), errbuf) }?;
    handles::with(p, |entry| entry.is_apart = is_apart);
    Some(p)
}

/// # Safety
/// As pcap_create(3PCAP) requires.
unsafe fn create_by_name(
    device: *const c_char,
    request: Option<Request>,
    errbuf: *mut c_char,
) -> Option<PcapHandle> {
    let Some(function) = system().pcap_create else {
        return missing(errbuf, None);
    };
    // SAFETY: the caller guarantees device and buffer.
    let p = unsafe { function(device, errbuf) };
    // SAFETY: pcap_create() returns null or a handle.
    let p = unsafe { PcapHandle::opened(p) }?;
    handles::handle_create(p, request);
    Some(p)
}

/// Creates a handle for each of the devices. Returns the handle on the first device.
///
/// # Safety
/// `errbuf` is as libpcap asks.
unsafe fn create_several(parts: Vec<Request>, errbuf: *mut c_char) -> Option<PcapHandle> {
    let mut made: Vec<PcapHandle> = Vec::new();
    for request in parts {
        let is_apart = apart::is_needed(&request);
        // SAFETY: the caller guarantees the buffer.
        let Some(p) = (unsafe { create_for(request, is_apart, errbuf) }) else {
            // SAFETY: nobody else has these handles.
            made.into_iter().for_each(|p| unsafe { close(p) });
            return None;
        };
        made.push(p);
    }
    for &p in &made {
        handles::with_new(p, |entry| entry.notes.part = PartState::New);
    }
    let (&first, others) = made.split_first()?;
    let others: Arc<[PcapHandle]> = others.into();
    if !others.is_empty() {
        handles::with_new(first, |entry| entry.others = Some(others));
    }
    message::guard_handle(first, || set_timeout(first, several::LATEST));
    Some(first)
}

/// See pcap_open_live(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_open_live(
    device: *const c_char,
    snaplen: c_int,
    promisc: c_int,
    timeout: c_int,
    errbuf: *mut c_char,
) -> *mut Pcap {
    let body = || {
        // SAFETY: the caller's promise: null, or a C string.
        let name = unsafe { name(device) };
        match (request(&name), system().pcap_open_live) {
            (_, None) => missing(errbuf, null_mut()),
            (None, Some(function)) => {
                // SAFETY: the caller's promise, passed on.
                let p = unsafe { function(device, snaplen, promisc, timeout, errbuf) };
                // SAFETY: pcap_open_live() returns null or a handle.
                if let Some(p) = unsafe { PcapHandle::opened(p) } {
                    handles::handle_create(p, None);
                }
                p
            }
            (request, _) => {
                // SAFETY: the caller's promise: a device and an error buffer as libpcap asks.
                let created = unsafe { create(device, request, errbuf) };
                let asked = (snaplen, promisc, timeout);
                // SAFETY: the handle is new; the caller's promise: the buffer is as libpcap asks.
                let activate = |p| unsafe { set_and_activate(p, &name, asked, errbuf) };
                pointer(created.and_then(activate))
            }
        }
    };
    // SAFETY: the caller's promise: errbuf has PCAP_ERRBUF_SIZE bytes.
    unsafe { guard_errbuf(errbuf, null_mut(), body) }
}

/// The second half of pcap_open_live(), for a handle created with a [`Request`]: sets the three
/// values, then activates the handle.
///
/// # Safety
/// `p` is new, and `errbuf` as libpcap asks.
unsafe fn set_and_activate(
    p: PcapHandle,
    device: &str,
    (snaplen, promisc, timeout): (c_int, c_int, c_int),
    errbuf: *mut c_char,
) -> Option<PcapHandle> {
    // SAFETY: the handle is open.
    unsafe { pcap_set_snaplen(p, snaplen) };
    // SAFETY: the handle is open.
    unsafe { pcap_set_promisc(p, promisc) };
    message::guard_handle(p, || set_timeout(p, timeout));
    let status = activate(p);
    let said = match status {
        ..0 => message::explain(p, device, status),
        0 => return Some(p),
        // A warning of pcap_activate().
        1.. => p.error(),
    };
    // SAFETY: the caller guarantees the buffer.
    unsafe { errbuf::write(errbuf, &said) };
    if status > 0 {
        return Some(p);
    }
    // SAFETY: the handle is new, and not used again.
    unsafe { close(p) };
    None
}

/// See pcap_close(3PCAP). The handle leaves its group.
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_close(p: PcapHandle) {
    // SAFETY: the caller's promise: nobody uses the handle any more.
    guard(|| unsafe { close(p) }, |_| ());
}

/// # Safety
/// Neither `p` nor the handles on its other devices are used again.
unsafe fn close(p: PcapHandle) {
    let mut entry = handles::handle_close(p);
    if let Some((member, _)) = entry.as_ref().and_then(|entry| entry.member.as_ref()) {
        member.depart();
    }
    // The reader maps the socket's ring, and this mapping would keep the socket in its group.
    if let Some(reader) = entry.as_mut().and_then(|entry| entry.reader.take()) {
        // SAFETY: the reader is this handle's, and the caller guarantees that nobody reads it.
        unsafe { reader.remove(p) };
    }
    let others = entry.as_ref().and_then(|entry| entry.others.clone());
    for &other in others.iter().flat_map(|others| others.iter()) {
        // SAFETY: the caller guarantees the handles on the other devices.
        unsafe { close(other) };
    }
    // SAFETY: the caller guarantees that the handle is not used again.
    unsafe { p.close() };
    drop(entry);
}
