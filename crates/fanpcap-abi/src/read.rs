//! The function that reads a handle, and the entry points that a reader must know of.

use crate::handles::{self, breaks};
use crate::head;
use crate::message::{self, fail, guard};
use crate::several;
use crate::system::{self, BpfProgram, Callback, ERROR, Header, Pcap, system};
use crate::take_over::tag_at;
use fanpcap_group::steered::{Filtering, SteerError, Unchanging};
use fanpcap_linux::packet::Filter;
use fanpcap_linux::process::signal::Blocked;
use fanpcap_reader::{Call, Direction, End, Packet, Reader};
use std::ffi::{c_char, c_int, c_void};
use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::ptr::null;
use std::sync::atomic::{Ordering, fence};

/// `PCAP_ERROR_BREAK`.
const BREAK: c_int = -2;

/// The function by which the system's pcap_dispatch() and its like read a handle of ours. Callbacks may
/// throw or longjmp: nothing in here is to be dropped while one runs.
///
/// # Safety
/// As pcap_dispatch(3PCAP) asks. `p` has a reader.
pub(crate) unsafe extern "C-unwind" fn read(
    p: *mut Pcap,
    max: c_int,
    callback: Callback,
    user: *mut u8,
) -> c_int {
    // SAFETY: the caller vouches for `p`.
    let (Some(reader), Some(callback)) = (unsafe { head::reader(p, read) }, callback) else {
        return ERROR;
    };
    let mut call = Call::new(max);
    let mut packet = Packet::NONE;
    loop {
        // SAFETY: a handle is read by one thread at a time.
        if let Err(end) = unsafe { reader.next(&mut call, &mut packet) } {
            // SAFETY: as above.
            return unsafe { ended(p, end) };
        }
        let header: *const Header = (&raw const packet).cast();
        // SAFETY: a packet begins as a header, and has `caplen` bytes until the next one is asked for.
        unsafe { callback(user, header, packet.data) };
    }
}

/// # Safety
/// `p` is a handle.
#[cold]
unsafe fn ended(p: *mut Pcap, end: End) -> c_int {
    match end {
        End::Delivered(count) => count,
        End::Broken => BREAK,
        // SAFETY: the caller vouches for `p`.
        End::Failed(error) => unsafe { fail(p, &error.to_string()) },
    }
}

/// Runs `tell` on the reader that `p` has, if any.
///
/// # Safety
/// `p` is an open handle.
unsafe fn with_reader(p: *mut Pcap, tell: impl FnOnce(&Reader)) {
    // SAFETY: the caller vouches for `p`.
    if let Some(reader) = unsafe { head::reader(p, read) } {
        tell(reader);
    }
}

/// See pcap_breakloop(3PCAP). Async-signal-safe.
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_breakloop(p: *mut Pcap) {
    // SAFETY: the caller's promise: `p` is a handle.
    let reader = || unsafe { head::reader(p, read) };
    if let Some(reader) = reader() {
        return reader.break_loop();
    }
    // It may get a reader later, or another thread gives it one just now.
    breaks::set(p as usize);
    fence(Ordering::SeqCst);
    if let Some(reader) = reader() {
        return reader.break_loop();
    }
    if let Some(function) = system().pcap_breakloop {
        // SAFETY: the caller's promise, passed on.
        unsafe { function(p) };
    }
}

/// See pcap_setnonblock(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setnonblock(
    p: *mut Pcap,
    nonblock: c_int,
    errbuf: *mut c_char,
) -> c_int {
    let body = || {
        // SAFETY: the caller's promise, passed on.
        let status = unsafe { several::set_nonblock(p, nonblock, errbuf) };
        if status == 0 {
            // SAFETY: as above.
            unsafe { with_reader(p, |reader| reader.set_nonblocking(nonblock != 0)) };
        }
        status
    };
    guard(body, |text| {
        // SAFETY: the caller's promise: errbuf has PCAP_ERRBUF_SIZE bytes.
        unsafe { message::write(errbuf, text) };
        ERROR
    })
}

/// See pcap_setdirection(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setdirection(p: *mut Pcap, direction: c_int) -> c_int {
    let wanted = match direction {
        1 => Direction::In,
        2 => Direction::Out,
        _ => Direction::InOut,
    };
    let function = system().pcap_setdirection;
    // SAFETY: the caller's promise, passed on.
    let set = |p| function.map_or(ERROR, |function| unsafe { function(p, direction) });
    // SAFETY: as above.
    let status = unsafe { several::each(p, set) };
    if status == 0 {
        // SAFETY: as above.
        unsafe { with_reader(p, |reader| reader.set_direction(wanted)) };
    }
    status
}

/// See pcap_set_datalink(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_set_datalink(p: *mut Pcap, linktype: c_int) -> c_int {
    let function = system().pcap_set_datalink;
    // SAFETY: the caller's promise, passed on.
    let set = |p| function.map_or(ERROR, |function| unsafe { function(p, linktype) });
    // SAFETY: as above.
    let status = unsafe { several::each(p, set) };
    if status == 0 {
        let at = tag_at(linktype);
        // SAFETY: as above.
        unsafe { with_reader(p, |reader| reader.set_tag_at(at)) };
    }
    status
}

/// See pcap_setfilter(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_setfilter(p: *mut Pcap, program: *mut BpfProgram) -> c_int {
    let body = || {
        // SAFETY: the caller's promise, passed on.
        match unsafe { set_filter(p, program) } {
            Ok(status) => status,
            // SAFETY: as above.
            Err(text) => unsafe { fail(p, &text) },
        }
    };
    // SAFETY: the caller's promise: `p` is a handle.
    guard(body, |text| unsafe { fail(p, text) })
}

/// Sets a filter by the system's library, and beside steering programs, which nobody replaces
/// meanwhile. What the system's library says is passed on.
///
/// # Errors
/// What to say when it can't be run at all.
///
/// # Safety
/// As pcap_setfilter(3PCAP) asks.
unsafe fn set_filter(p: *mut Pcap, program: *mut BpfProgram) -> Result<c_int, String> {
    let function = system().pcap_setfilter;
    // SAFETY: the caller's promise, passed on.
    let set = |p| function.map_or(ERROR, |function| unsafe { function(p, program) });
    let all = several::all(p).into_iter();
    let all: Vec<_> = all.map(|part| (part, handles::steered(part))).collect();
    // A handler that left by siglongjmp() would leave the filter without the steering program.
    let is_steered = all.iter().any(|(_, steered)| steered.is_some());
    let _signals = is_steered.then(Blocked::new);
    let parts = all.iter().map(|(part, steered)| {
        let steered = steered.as_ref().map(|steered| steered.unchanging());
        Ok((*part, steered.transpose()?))
    });
    let parts: Result<Vec<OnDevice<'_>>, SteerError> = parts.collect();
    let parts = parts.map_err(|error| not_beside(&error))?;
    // SAFETY: as above.
    let status = unsafe { several::each(p, |p| while_rejecting(p, set)) };
    if status != 0 {
        return Ok(status);
    }
    // SAFETY: as above.
    let in_kernel = unsafe { put_beside_programs(p, parts) }?;
    // SAFETY: as above.
    if let Some(reader) = unsafe { head::reader(p, read) } {
        // SAFETY: as above; the system's library has read the program.
        unsafe { tell_filter(reader, program, in_kernel) };
    }
    Ok(status)
}

/// Notes on a member's page that it rejects all packets meanwhile: between two filters the system's
/// library attaches one that does so, to empty the ring.
fn while_rejecting(p: *mut Pcap, set: impl FnOnce(*mut Pcap) -> c_int) -> c_int {
    let rejections = handles::rejections(p);
    if let Some(rejections) = &rejections {
        rejections.begin();
    }
    let status = set(p);
    if let Some(rejections) = rejections {
        rejections.end();
    }
    status
}

/// The handle on one device, with its part in a steering program, if it has one.
type OnDevice<'a> = (*mut Pcap, Option<Unchanging<'a>>);

fn not_beside(why: &dyn Display) -> String {
    format!("the filter can't be set beside the steering program: {why}")
}

/// Puts the filter that the system's library has just set beside the steering program that a member has in the same place. Tells
/// whether the kernel runs the filter, on all devices: where it did not take it, the system's library has detached
/// the old one too.
///
/// # Errors
/// What to say when it can't be run at all.
///
/// # Safety
/// `p` is an activated handle, which has these parts.
unsafe fn put_beside_programs(p: *mut Pcap, parts: Vec<OnDevice<'_>>) -> Result<bool, String> {
    // SAFETY: the caller vouches for `p`.
    let is_ours = unsafe { head::reader(p, read) }.is_some();
    let mut in_kernel = true;
    for (part, steered) in parts {
        if !is_ours && steered.is_none() {
            continue;
        }
        // SAFETY: the caller vouches for `p`, and its others are open as long.
        let fd = unsafe { system::pcap_fileno(part) };
        // SAFETY: the handle's socket is open.
        let socket = unsafe { BorrowedFd::borrow_raw(fd) };
        let own = Filter::of(socket);
        let is_filtered = own.as_ref().is_ok_and(Option::is_some);
        in_kernel &= is_filtered;
        let Some(mut steered) = steered else {
            continue;
        };
        let filtering = steered.refilter(socket, own);
        match filtering.map_err(|error| not_beside(&error))? {
            Filtering::Kernel => {}
            Filtering::Reader if is_filtered && !is_ours => {
                return Err(not_beside(
                    &"the kernel does not take both as one (it takes CAP_BPF, and room in net.core.optmem_max), and \
                      fanpcap, which would run the filter then, does not read this handle: set a shorter one, or none",
                ));
            }
            Filtering::Reader => in_kernel = false,
        }
    }
    Ok(in_kernel)
}

/// Tells a reader its new filter.
///
/// # Safety
/// `program` is a valid program.
unsafe fn tell_filter(reader: &Reader, program: *const BpfProgram, in_kernel: bool) {
    // SAFETY: the caller vouches for `program`.
    let BpfProgram { len, instructions } = unsafe { program.read() };
    // SAFETY: as above.
    let instructions = unsafe { std::slice::from_raw_parts(instructions, len as usize) };
    reader.set_filter(instructions.to_vec(), in_kernel);
}

/// See pcap_get_selectable_fd(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_selectable_fd(p: *mut Pcap) -> c_int {
    // SAFETY: the caller's promise: `p` is a handle.
    let reader = unsafe { head::reader(p, read) };
    reader.and_then(Reader::selectable).unwrap_or_else(|| {
        let function = system().pcap_get_selectable_fd;
        // SAFETY: as above.
        function.map_or(ERROR, |function| unsafe { function(p) })
    })
}

/// See pcap_get_required_select_timeout(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_get_required_select_timeout(p: *mut Pcap) -> *const c_void {
    static WHILE_DOWN: libc::timeval = libc::timeval {
        tv_sec: 0,
        tv_usec: 1000,
    };
    // SAFETY: the caller's promise: `p` is a handle.
    match unsafe { head::reader(p, read) } {
        Some(reader) if reader.is_net_down() => (&raw const WHILE_DOWN).cast(),
        Some(_) => null(),
        None => system()
            .pcap_get_required_select_timeout
            // SAFETY: as above.
            .map_or(null(), |function| unsafe { function(p) }),
    }
}
