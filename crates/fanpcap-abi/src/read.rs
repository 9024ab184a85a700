//! The entry points of an open handle that affect its reader.

use crate::handles::breaks;
use crate::message::{guard_errbuf, guard_handle};
use crate::pcap_handle::PcapHandle;
use crate::system::{self, BpfProgram, ERROR, system};
use crate::take_over::tag_at;
use fanpcap::{filter, several};
use fanpcap_reader::Direction;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null;
use std::sync::atomic::{Ordering, fence};

/// See pcap_breakloop(3PCAP). Async-signal-safe.
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_breakloop(p: PcapHandle) {
    if p.with_reader(|reader| reader.control().break_loop())
        .is_some()
    {
        return;
    }
    // The handle may get a reader later, or another thread is installing a reader now. Note the
    // break, so that the thread that installs the reader finds it.
    breaks::set(p.address());
    fence(Ordering::SeqCst);
    if p.with_reader(|reader| reader.control().break_loop())
        .is_some()
    {
        return;
    }
    if let Some(function) = system().pcap_breakloop {
        // SAFETY: the handle is open.
        unsafe { function(p.pointer()) };
    }
}

/// See pcap_setnonblock(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setnonblock(
    p: PcapHandle,
    nonblock: c_int,
    errbuf: *mut c_char,
) -> c_int {
    let body = || {
        let Some(function) = system().pcap_setnonblock else {
            return system::missing(errbuf, ERROR);
        };
        // SAFETY: the handle is open, and the caller's promise: errbuf has PCAP_ERRBUF_SIZE bytes.
        let set = |part: PcapHandle| unsafe { function(part.pointer(), nonblock, errbuf) };
        let status = several::each(p, set);
        if status == 0 {
            p.with_reader(|reader| reader.control().set_nonblocking(nonblock != 0));
        }
        status
    };
    // SAFETY: the caller's promise: errbuf has PCAP_ERRBUF_SIZE bytes.
    unsafe { guard_errbuf(errbuf, ERROR, body) }
}

/// See pcap_setdirection(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setdirection(p: PcapHandle, direction: c_int) -> c_int {
    let wanted = match direction {
        1 => Direction::In,
        2 => Direction::Out,
        _ => Direction::InOut,
    };
    let status = several::each(p, |part| part.set(|of| of.pcap_setdirection, direction));
    if status == 0 {
        p.with_reader(|reader| reader.control().set_direction(wanted));
    }
    status
}

/// See pcap_set_datalink(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_datalink(p: PcapHandle, linktype: c_int) -> c_int {
    let status = several::each(p, |part| part.set(|of| of.pcap_set_datalink, linktype));
    if status == 0 {
        p.with_reader(|reader| reader.control().set_tag_at(tag_at(linktype)));
    }
    status
}

/// See pcap_setfilter(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setfilter(p: PcapHandle, program: *mut BpfProgram) -> c_int {
    let set = |part: PcapHandle| {
        let function = system().pcap_setfilter;
        // SAFETY: the handle is open, and the caller's promise: the program is valid or null.
        function.map_or(ERROR, |function| unsafe {
            function(part.pointer(), program)
        })
    };
    // SAFETY: the caller's promise: the program is valid, or null.
    let code = unsafe { program.as_ref() }.map_or(&[][..], |program| {
        let (start, len) = (program.instructions, program.len as usize);
        match start.is_null() {
            true => &[],
            // SAFETY: the caller's promise: the program has this number of instructions.
            false => unsafe { std::slice::from_raw_parts(start, len) },
        }
    });
    let take = |in_kernel| {
        p.with_reader(|reader| {
            if !code.is_empty() {
                reader.set_filter(code.to_vec(), in_kernel);
            }
        });
    };
    guard_handle(p, || filter::set_filter(p, code, set, take))
}

/// See pcap_get_selectable_fd(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_selectable_fd(p: PcapHandle) -> c_int {
    p.descriptor().unwrap_or_else(|| p.selectable_fd())
}

/// See pcap_get_required_select_timeout(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_required_select_timeout(p: PcapHandle) -> *const c_void {
    static WHILE_DOWN: libc::timeval = libc::timeval {
        tv_sec: 0,
        tv_usec: 1000,
    };
    match p.with_reader(|reader| reader.control().is_net_down()) {
        Some(true) => (&raw const WHILE_DOWN).cast(),
        Some(false) => null(),
        None => system()
            .pcap_get_required_select_timeout
            // SAFETY: the handle is open.
            .map_or(null(), |function| unsafe { function(p.pointer()) }),
    }
}
