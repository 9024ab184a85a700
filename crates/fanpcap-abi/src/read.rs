//! Handles that we read ourselves, and the entry points that their reader must know of.

use crate::head;
use crate::message::{self, ERRBUF_SIZE, fail, guard};
use crate::system::{self, BpfProgram, Callback, ERROR, Header, Pcap, system};
use crate::{handles, several};
use fanpcap_linux::packet::{Filter, is_packet_socket};
use fanpcap_tpacket::filter::{Instruction, Program};
use fanpcap_tpacket::{Call, Direction, End, Options, Reader};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null};

/// `PCAP_ERROR_BREAK`.
const BREAK: c_int = -2;

/// Link types whose packets are in the ring as the program gets them (pcap/dlt.h).
const EN10MB: c_int = 1;
const RAW: c_int = 12;

/// Where a VLAN tag goes in an Ethernet frame: after the addresses.
const AFTER_ADDRESSES: u8 = 12;

/// A packet is never longer: the length field of IP, and a link-layer header.
const LONGEST: u32 = 65_535;

/// Reads `p` by our reader from now on, if it is one that we serve: else the system's library goes on to,
/// which programs can't tell but by what it costs.
///
/// # Safety
/// `p` is a handle that has just been activated.
pub(crate) unsafe fn take_over(p: *mut Pcap) {
    // SAFETY: the caller vouches for `p`.
    let Some((linktype, socket)) = (unsafe { served(p) }) else {
        return;
    };
    // SAFETY: as above.
    let options = unsafe { options(p, linktype) };
    if let Ok(reader) = Reader::new(socket, &options) {
        // SAFETY: as above.
        unsafe { install(p, reader) };
    }
}

/// Has the kernel cut the packets of a handle that we read to its snapshot length, where the program has set
/// no filter that does. It takes the kernel some microseconds, so a group is joined before.
///
/// # Safety
/// `p` is an activated handle; `reader_of` is the one that the program has.
pub(crate) unsafe fn truncate(p: *mut Pcap, reader_of: *mut Pcap) {
    // SAFETY: the caller vouches for both.
    let is_ours = unsafe { head::reader(reader_of, read) }.is_some();
    // SAFETY: as above.
    let snaplen = u32::try_from(unsafe { system::pcap_snapshot(p) });
    let Some(snaplen) = snaplen.ok().filter(|&snaplen| is_ours && snaplen < LONGEST) else {
        return;
    };
    // SAFETY: as above.
    if let Some((_, socket)) = unsafe { served(p) } {
        if Filter::of(socket).is_ok_and(|filter| filter.is_none()) {
            // A VLAN tag goes back in behind the addresses, and counts for the length.
            let kept = snaplen.max(AFTER_ADDRESSES.into());
            // Best effort: what the kernel does not cut off, the reader does.
            let _ = Filter::keep(kept).attach(socket);
        }
    }
}

/// Reads the handles of several devices together, as the first of them.
///
/// # Errors
/// Why that can't be. The system's library can't do it either.
///
/// # Safety
/// They are handles that have just been activated, one or more.
pub(crate) unsafe fn take_over_several(all: &[*mut Pcap]) -> Result<(), String> {
    let mut sockets = Vec::new();
    let mut linktypes = Vec::new();
    for &p in all {
        // SAFETY: the caller vouches for them.
        let (linktype, socket) = unsafe { served(p) }.ok_or(
            "several devices in one handle must be Ethernet devices, or all without a link layer",
        )?;
        sockets.push(socket);
        linktypes.push(linktype);
    }
    let (first, linktype) = (all[0], linktypes[0]);
    if linktypes.iter().any(|other| *other != linktype) {
        return Err("the devices have other link types: open each by itself".to_owned());
    }
    // SAFETY: as above.
    let options = unsafe { options(first, linktype) };
    let failed = |error| format!("can't read several devices together: {error}");
    let reader = Reader::of_several(&sockets, &options).map_err(failed)?;
    // SAFETY: as above.
    if !unsafe { install(first, reader) } {
        return Err("this libpcap's handles can't be read by fanpcap".to_owned());
    }
    // SAFETY: as above.
    all.iter().for_each(|&p| unsafe { truncate(p, first) });
    Ok(())
}

/// The link type and socket of a handle that we can read.
///
/// # Safety
/// `p` is an activated handle.
unsafe fn served(p: *mut Pcap) -> Option<(c_int, BorrowedFd<'static>)> {
    // SAFETY: the caller vouches for `p`.
    let linktype = unsafe { system::pcap_datalink(p) };
    // SAFETY: as above.
    let fd = unsafe { system::pcap_fileno(p) };
    if fd < 0 || ![EN10MB, RAW].contains(&linktype) {
        return None;
    }
    // SAFETY: the handle's socket is open as long as the handle, and its reader goes before that.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let is_packet = is_packet_socket(socket).unwrap_or(false);
    is_packet.then_some((linktype, socket))
}

/// Puts a reader into a handle. Tells whether that was possible.
///
/// # Safety
/// `p` is a handle that has just been activated; nobody reads it yet.
unsafe fn install(p: *mut Pcap, reader: Reader) -> bool {
    let reader = Box::new(reader);
    if handles::with(p, |entry| entry.broken) == Some(true) {
        reader.break_loop();
    }
    // SAFETY: the caller vouches for `p`; pcap_close() drops the reader after the last read.
    if !unsafe { head::attach(p, read, NonNull::from(&*reader)) } {
        return false;
    }
    handles::with_new(p, |entry| entry.reader = Some(reader));
    true
}

/// # Safety
/// `p` is an activated handle.
unsafe fn options(p: *mut Pcap, linktype: c_int) -> Options {
    const NANO: c_int = 1;
    // SAFETY: the caller vouches for `p`; so for the next two.
    let snaplen = unsafe { system::pcap_snapshot(p) };
    // SAFETY: as above.
    let precision = unsafe { system::pcap_get_tstamp_precision(p) };
    Options {
        snaplen: u32::try_from(snaplen).unwrap_or(u32::MAX),
        nanoseconds: precision == NANO,
        // SAFETY: as above.
        nonblocking: unsafe { is_nonblocking(p) },
        direction: Direction::InOut,
        tag_at: (linktype == EN10MB).then_some(AFTER_ADDRESSES),
    }
}

/// # Safety
/// `p` is an activated handle.
unsafe fn is_nonblocking(p: *mut Pcap) -> bool {
    let mut errbuf = [0; ERRBUF_SIZE];
    // SAFETY: the caller vouches for `p`; the buffer has the length that libpcap asks for.
    unsafe { system::pcap_getnonblock(p, errbuf.as_mut_ptr()) == 1 }
}

/// The function by which the system's pcap_dispatch() and its like read a handle of ours. Callbacks may
/// throw or longjmp: nothing in here is to be dropped while one runs.
///
/// # Safety
/// As pcap_dispatch(3PCAP) asks. `p` has a reader.
unsafe extern "C-unwind" fn read(
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
    loop {
        let packet = match reader.next(&mut call) {
            Ok(packet) => packet,
            // SAFETY: as above.
            Err(end) => return unsafe { ended(p, end) },
        };
        let header = Header {
            seconds: packet.stamp.seconds.into(),
            fraction: packet.fraction.into(),
            caplen: packet.caplen,
            len: packet.len,
        };
        // SAFETY: the packet has `caplen` bytes until the next one is asked for.
        unsafe { callback(user, &raw const header, packet.start.as_ptr()) };
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
    if let Some(reader) = unsafe { head::reader(p, read) } {
        return reader.break_loop();
    }
    // It may get a reader later.
    handles::with(p, |entry| entry.broken = true);
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
        let at = (linktype == EN10MB).then_some(AFTER_ADDRESSES);
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
        let function = system().pcap_setfilter;
        // SAFETY: the caller's promise, passed on.
        let set = |p| function.map_or(ERROR, |function| unsafe { function(p, program) });
        // SAFETY: as above.
        let status = unsafe { several::each(p, set) };
        // SAFETY: as above.
        let reader = unsafe { head::reader(p, read) };
        if let Some(reader) = reader.filter(|_| status == 0) {
            // SAFETY: as above; the system's library has read the program.
            unsafe { tell_filter(reader, p, program) };
        }
        status
    };
    // SAFETY: the caller's promise: `p` is a handle.
    guard(body, |text| unsafe { fail(p, text) })
}

/// Tells a reader its new filter. Where the kernel did not take it, the system's library has detached
/// the old one too.
///
/// # Safety
/// `p` is an activated handle and `program` a valid program.
unsafe fn tell_filter(reader: &Reader, p: *mut Pcap, program: *const BpfProgram) {
    // SAFETY: the caller vouches for `program`.
    let BpfProgram { len, instructions } = unsafe { program.read() };
    // SAFETY: as above.
    let instructions = unsafe { std::slice::from_raw_parts(instructions, len as usize) };
    let copied = instructions.iter().map(|instruction| Instruction {
        code: instruction.code,
        jt: instruction.jt,
        jf: instruction.jf,
        k: instruction.k,
    });
    // SAFETY: the caller vouches for `p`.
    let fd = unsafe { system::pcap_fileno(p) };
    // SAFETY: the handle's socket is open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let in_kernel = Filter::of(socket).is_ok_and(|filter| filter.is_some());
    reader.set_filter(Program::new(copied.collect()), in_kernel);
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
