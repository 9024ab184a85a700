//! pcap_findalldevs: the devices of the system's library, followed by those that pollers serve.

use crate::message::guard_errbuf;
use crate::system::{ERROR, missing, system};
use fanpcap_pcap::functions::{Buffer, Opaque};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem;
use std::ptr::null_mut;

/// `struct pcap_if`. pcap_freealldevs(3PCAP) of the system's library frees all of it by free(3).
#[repr(C)]
struct Interface {
    next: *mut Interface,
    name: *mut c_char,
    description: *mut c_char,
    addresses: *mut c_void,
    flags: c_uint,
}

/// `PCAP_IF_UP | PCAP_IF_RUNNING`.
const UP_AND_RUNNING: c_uint = 2 | 4;

/// See pcap_findalldevs(3PCAP). Without pollers, the list is that of the system's library.
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_findalldevs(list: *mut Opaque, errbuf: Buffer) -> c_int {
    let body = || {
        let Some(function) = system().pcap_findalldevs else {
            return missing(errbuf, ERROR);
        };
        // SAFETY: the caller's promise, passed on.
        let status = unsafe { function(list, errbuf) };
        if status == 0 && !system().is_calling() {
            for device in fanpcap_engines::polled_devices() {
                // SAFETY: the system's library has stored the list's first device.
                unsafe { append(list.cast(), &device) };
            }
        }
        status
    };
    // SAFETY: the caller's promise: errbuf has PCAP_ERRBUF_SIZE bytes.
    unsafe { guard_errbuf(errbuf, ERROR, body) }
}

/// Appends a device such as `packet:eth0` to the list. Leaves the list as it is without memory.
///
/// # Safety
/// `list` points to a list of the system's library.
unsafe fn append(mut list: *mut *mut Interface, name: &str) {
    let device = name.split_once(':').map_or(name, |(_, device)| device);
    let mut flags = UP_AND_RUNNING;
    loop {
        // SAFETY: `list` points to the list's first pointer, or to that in a device.
        let next: *mut Interface = unsafe { list.read() };
        // SAFETY: a list ends with a null pointer, and its other pointers are valid.
        let Some(interface) = (unsafe { next.as_mut() }) else {
            break;
        };
        if !interface.name.is_null() {
            // SAFETY: a name that is not null is a C string.
            let has = unsafe { CStr::from_ptr(interface.name) };
            if has.to_bytes() == device.as_bytes() {
                flags = interface.flags;
            }
        }
        list = &raw mut interface.next;
    }
    let Some(new) = new(name, &format!("{device}, from a poller"), flags) else {
        return;
    };
    // SAFETY: `list` points to the null pointer at the end.
    unsafe { *list = new };
}

/// A device in memory of malloc(3); `None` without memory.
fn new(name: &str, description: &str, flags: c_uint) -> Option<*mut Interface> {
    let [name, description] = [name, description].map(|it| CString::new(it).ok());
    let (name, description) = (name?, description?);
    // SAFETY: any size is allowed.
    let place = unsafe { libc::malloc(mem::size_of::<Interface>()) };
    let place: *mut Interface = place.cast();
    if place.is_null() {
        return None;
    }
    let interface = Interface {
        next: null_mut(),
        // SAFETY: the argument is a C string. libpcap frees a null pointer, too.
        name: unsafe { libc::strdup(name.as_ptr()) },
        // SAFETY: as above.
        description: unsafe { libc::strdup(description.as_ptr()) },
        addresses: null_mut(),
        flags,
    };
    if interface.name.is_null() {
        // SAFETY: both pointers are of malloc(3), or null.
        unsafe { libc::free(interface.description.cast()) };
        // SAFETY: as above.
        unsafe { libc::free(place.cast()) };
        return None;
    }
    // SAFETY: the place has room for the value, and malloc(3) aligns it.
    unsafe { place.write(interface) };
    Some(place)
}
