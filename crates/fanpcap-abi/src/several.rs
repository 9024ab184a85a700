//! Handles on several devices: the program has the handle on the first one, and we the others.

use crate::message::fail;
use crate::system::{self, ERROR, Pcap, system};
use crate::{activate, handles, open, take_over};
use fanpcap::request::Request;
use std::ffi::{CStr, c_char, c_int};
use std::iter;
use std::ptr::null_mut;
use std::sync::Arc;

/// Milliseconds within which each device hands over its packets: what order in time waits for.
pub(crate) const LATEST: c_int = 20;

/// The handles on all devices of `p`, which is the first.
pub(crate) fn all(p: *mut Pcap) -> Vec<*mut Pcap> {
    let others = handles::others(p);
    let others = others.iter().flat_map(|others| others.iter());
    let others = others.map(|&other| other as *mut Pcap);
    iter::once(p).chain(others).collect()
}

/// Whether `p` has several devices.
pub(crate) fn is_several(p: *mut Pcap) -> bool {
    handles::with(p, |entry| entry.others.is_some()) == Some(true)
}

/// Does the same to the handle on each device, until one fails. What that says, `p` says then; or what the
/// first says that warns.
///
/// # Safety
/// `p` is a handle.
pub(crate) unsafe fn each(p: *mut Pcap, mut apply: impl FnMut(*mut Pcap) -> c_int) -> c_int {
    let mut first = apply(p);
    if first < 0 {
        return first;
    }
    // No list of its own: pcap_stats() comes here in signal handlers.
    let others = handles::others(p);
    for other in others.iter().flat_map(|others| others.iter()) {
        let other = *other as *mut Pcap;
        let status = apply(other);
        if status < 0 || (status > 0 && first == 0) {
            // SAFETY: the caller vouches for `p`, and its others are open as long.
            unsafe { blame(p, other) };
            first = status;
        }
        if status < 0 {
            break;
        }
    }
    first
}

/// Lets `p` say what `other` says.
///
/// # Safety
/// Both are handles.
unsafe fn blame(p: *mut Pcap, other: *mut Pcap) {
    let request = handles::request(other);
    let name = request.as_ref().map_or("", |request| request.system_name());
    // SAFETY: the caller vouches for `other`.
    let error = unsafe { system::pcap_geterr(other) };
    // SAFETY: libpcap's answer is a C string.
    let error = unsafe { CStr::from_ptr(error) }.to_string_lossy();
    let text = format!("{name}: {error}");
    // SAFETY: the caller vouches for `p`.
    unsafe { fail(p, &text) };
}

/// Creates a handle for each of the devices. Returns that on the first.
///
/// # Safety
/// `errbuf` is as libpcap asks.
pub(crate) unsafe fn create(parts: Vec<Request>, errbuf: *mut c_char) -> *mut Pcap {
    let mut made: Vec<*mut Pcap> = Vec::new();
    for request in parts {
        // SAFETY: the caller vouches for errbuf.
        let p = unsafe { open::create_for(request, errbuf) };
        if p.is_null() {
            made.into_iter()
                // SAFETY: they are open and not used again.
                .for_each(|p| unsafe { open::pcap_close(p) });
            return null_mut();
        }
        made.push(p);
    }
    for &p in &made {
        handles::with_new(p, |entry| entry.part = handles::Part::New);
    }
    let Some((&first, others)) = made.split_first() else {
        return null_mut();
    };
    let others: Arc<[usize]> = others.iter().map(|&p| p as usize).collect();
    if !others.is_empty() {
        handles::with_new(first, |entry| entry.others = Some(others));
    }
    // SAFETY: the handle is new.
    unsafe { crate::setters::pcap_set_timeout(first, LATEST) };
    first
}

/// Activates the handle on each device, by its own settings, and reads them together. They receive only when
/// all can; until then it may be tried again.
///
/// # Safety
/// `p` is a handle.
pub(crate) unsafe fn activate(p: *mut Pcap) -> c_int {
    // SAFETY: the caller vouches for `p`, and its others are open as long.
    let activate = |p| unsafe { activate::activate_part(p) };
    // SAFETY: the caller vouches for `p`.
    let activated = unsafe { each(p, activate) };
    if activated < 0 {
        return activated;
    }
    let all = all(p);
    // SAFETY: as above.
    if let Err(text) = unsafe { take_over::take_over_several(&all) } {
        // SAFETY: as above.
        return unsafe { fail(p, &text) };
    }
    let mut groups = Vec::new();
    // SAFETY: as above.
    let foresee = |p| unsafe { activate::foresee(p, &mut groups) };
    // SAFETY: as above.
    let foreseen = unsafe { each(p, foresee) };
    if foreseen < 0 {
        return foreseen;
    }
    // SAFETY: as above.
    let go_live = |p| unsafe { activate::go_live(p) };
    // SAFETY: as above.
    let live = unsafe { each(p, go_live) };
    if live >= 0 {
        for &part in &all {
            // SAFETY: as above.
            unsafe { take_over::truncate(part, p) };
            handles::with(part, |entry| entry.part = handles::Part::Live);
        }
        // SAFETY: as above.
        unsafe { take_over::keep_counters(p) };
    }
    if live == 0 { activated } else { live }
}

/// Closes the handles on the other devices.
///
/// # Safety
/// `p` is a handle that is about to be closed.
pub(crate) unsafe fn close_others(others: &[usize]) {
    for &other in others {
        // SAFETY: it is open, ours, and not used again.
        unsafe { open::pcap_close(other as *mut Pcap) };
    }
}

/// What a setting that takes an error buffer says, on each device.
///
/// # Safety
/// `p` is a handle, and `errbuf` is as libpcap asks.
pub(crate) unsafe fn set_nonblock(p: *mut Pcap, nonblock: c_int, errbuf: *mut c_char) -> c_int {
    let Some(function) = system().pcap_setnonblock else {
        return system::missing(errbuf, ERROR);
    };
    // SAFETY: the caller vouches for both.
    let set = |p| unsafe { function(p, nonblock, errbuf) };
    // SAFETY: as above.
    unsafe { each(p, set) }
}
