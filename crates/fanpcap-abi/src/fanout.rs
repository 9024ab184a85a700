//! The functions of pcap/fanout.h.

use crate::activate;
use crate::handles::{self, Entry};
use crate::message::{ERRBUF_SIZE, fail, guard};
use crate::stats::pcap_stats;
use crate::system::{self, ERROR, NOT_ACTIVATED, Pcap, PcapStat};
use crate::{several, take_over};
use fanpcap::mode::{Kind, Mode};
use fanpcap::settings::{Call, Group};
use fanpcap_linux::packet;
use std::ffi::{CStr, c_char, c_int};
use std::mem;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;
use std::sync::Arc;

/// `PCAP_FANOUT_NEW`.
const FANOUT_NEW: c_int = -1;

const RECEIVED: u32 = 0x01;
const DROPPED: u32 = 0x02;
const MEMBERS: u32 = 0x04;
const GROUP_RECEIVED: u32 = 0x08;
const GROUP_DROPPED: u32 = 0x10;

/// `struct pcap_fanout_stat`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    /// Bytes of the caller's struct.
    pub size: usize,
    /// Which fields are known, `PCAP_FANOUT_STAT_*`.
    pub valid: u32,
    /// The group joined.
    pub group: i32,
    /// Packets that reached this member, dropped ones included.
    pub received: u64,
    /// Of these, lost because this member's ring was full.
    pub dropped: u64,
    /// Sockets in the group.
    pub members: u64,
    /// Sum of `received` over the members.
    pub group_received: u64,
    /// Sum of `dropped` over the members.
    pub group_dropped: u64,
    /// Age of the oldest counters in the sums, nanoseconds.
    pub group_age_ns: u64,
}

/// See pcap_fanout(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fanout(p: *mut Pcap, group: c_int, fanout: *const c_char) -> c_int {
    let body = || {
        // SAFETY: the caller's promise: null or a C string.
        let result = unsafe { call(group, fanout) }.and_then(|call| {
            // SAFETY: the caller's promise: `p` is a handle.
            unsafe { apply(p, call) }
        });
        match result {
            Ok(()) => 0,
            // SAFETY: as above.
            Err(text) => unsafe { fail(p, &text) },
        }
    };
    // SAFETY: as above.
    guard(body, |text| unsafe { fail(p, text) })
}

/// # Safety
/// `fanout` is null or a C string.
unsafe fn call(group: c_int, fanout: *const c_char) -> Result<Call, String> {
    let group = match u16::try_from(group) {
        Ok(number) => Group::Number(number),
        Err(_) if group == FANOUT_NEW => Group::New,
        Err(_) => {
            return Err(format!(
                "pcap_fanout: group {group} is out of range: 0 to 65535, or PCAP_FANOUT_NEW"
            ));
        }
    };
    if fanout.is_null() {
        return Ok(Call {
            group,
            fanout: None,
        });
    }
    // SAFETY: the caller vouches for it.
    let text = unsafe { CStr::from_ptr(fanout) }.to_string_lossy();
    let mode = Mode::parse(&text)
        .map_err(|fault| fault.at("pcap_fanout()", 1, &text).render(ERRBUF_SIZE - 1))?;
    Ok(Call {
        group,
        fanout: Some(mode),
    })
}

/// Before activation the call is remembered; after, the handle joins at once.
///
/// # Safety
/// `p` is a handle.
unsafe fn apply(p: *mut Pcap, call: Call) -> Result<(), String> {
    if several::is_several(p) && call.group != Group::New {
        return Err(
            "pcap_fanout: the kernel's groups are of one device each, and the handle has \
                    several: use PCAP_FANOUT_NEW, or set PCAP_GROUP_dev for each device"
                .to_owned(),
        );
    }
    let mut result = Ok(());
    let apply = |p| {
        // SAFETY: the caller vouches for `p`, and its others are open as long.
        result = unsafe { apply_to_one(p, call) };
        if result.is_ok() { 0 } else { ERROR }
    };
    // SAFETY: the caller vouches for `p`.
    let status = unsafe { several::each(p, apply) };
    // SAFETY: as above; one that is not activated has no reader.
    unsafe { take_over::keep_counters(p) };
    if status < 0 { result } else { Ok(()) }
}

/// # Safety
/// `p` is a handle.
unsafe fn apply_to_one(p: *mut Pcap, call: Call) -> Result<(), String> {
    let request = handles::with_new(p, |entry| {
        Arc::make_mut(&mut entry.request).handle_call(call);
        Arc::clone(&entry.request)
    });
    // SAFETY: the caller vouches for `p`.
    if unsafe { system::pcap_datalink(p) } == NOT_ACTIVATED {
        return Ok(());
    }
    let plan = request
        .plan()
        .map_err(|report| report.render(ERRBUF_SIZE - 1))?;
    let Some(membership) = plan.membership else {
        return Err("pcap_fanout: no group".to_owned());
    };
    if let Some(place) = handles::place(p) {
        let (group, mode) = (Group::Number(place.group()), place.mode());
        if (membership.group, membership.mode) == (group, mode) {
            return Ok(());
        }
    }
    // SAFETY: the caller vouches for `p`, which is activated.
    unsafe { activate::join(p, &membership) }.map_err(|error| membership.blame(&error))
}

/// See pcap_fanout_group(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fanout_group(p: *mut Pcap) -> c_int {
    let body = || match handles::place(p) {
        Some(place) => place.group().into(),
        // SAFETY: the caller's promise: `p` is a handle.
        None if unsafe { system::pcap_datalink(p) } == NOT_ACTIVATED => NOT_ACTIVATED,
        None => ERROR,
    };
    // SAFETY: as above.
    guard(body, |text| unsafe { fail(p, text) })
}

/// See pcap_fanout_stats(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fanout_stats(p: *mut Pcap, stat: *mut Stat) -> c_int {
    let body = || {
        // SAFETY: the caller's promise: null, or a struct whose first word is its size.
        let size = unsafe { stat.cast::<usize>().as_ref() }
            .copied()
            .unwrap_or(0);
        if size < mem::size_of::<Stat>() {
            let text = "pcap_fanout_stats: set size to sizeof(struct pcap_fanout_stat)";
            // SAFETY: the caller's promise: `p` is a handle.
            return unsafe { fail(p, text) };
        }
        // SAFETY: as above.
        match unsafe { stats(p, size) } {
            Some(known) => {
                // SAFETY: the struct has at least our size; the fields of later versions stay.
                unsafe { stat.write(known) };
                0
            }
            // SAFETY: as above.
            None => unsafe { fail(p, "pcap_fanout_stats: the handle is in no fan-out group") },
        }
    };
    // SAFETY: as above.
    guard(body, |text| unsafe { fail(p, text) })
}

/// # Safety
/// `p` is a handle.
unsafe fn stats(p: *mut Pcap, size: usize) -> Option<Stat> {
    let place = handles::place(p)?;
    let mut stat = Stat {
        size,
        group: place.group().into(),
        ..Stat::default()
    };
    let mut own = PcapStat::default();
    // SAFETY: the caller vouches for `p`.
    if unsafe { pcap_stats(p, &raw mut own) } == 0 {
        let counters = |entry: &mut Entry| Some(entry.member.as_ref()?.0.counters());
        let counters = handles::with(p, counters).flatten()?;
        stat.received = counters.received;
        stat.dropped = counters.dropped;
        stat.valid |= RECEIVED | DROPPED;
    }
    handles::refresh_beside(p, &place);
    let whole = place.group_stats();
    if let Some(members) = whole.members {
        stat.members = members;
        stat.valid |= MEMBERS;
    }
    if let Some(counters) = whole.counters {
        stat.group_received = counters.received;
        stat.group_dropped = counters.dropped;
        stat.group_age_ns = whole.age_ns;
        stat.valid |= GROUP_RECEIVED | GROUP_DROPPED;
    }
    Some(stat)
}

/// See pcap_list_fanout_modes(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_list_fanout_modes(
    p: *mut Pcap,
    modes: *mut *mut *mut c_char,
) -> c_int {
    // SAFETY: the caller's promise, passed on.
    let body = || unsafe { list_modes(p, modes) };
    // SAFETY: the caller's promise: `p` is a handle.
    guard(body, |text| unsafe { fail(p, text) })
}

/// # Safety
/// `p` is a handle and `modes` writable.
unsafe fn list_modes(p: *mut Pcap, modes: *mut *mut *mut c_char) -> c_int {
    // SAFETY: the caller vouches for `p`.
    let fd = unsafe { system::pcap_fileno(p) };
    // SAFETY: the handle's descriptor is open as long as the handle.
    let is_packet = || packet::is_packet_socket(unsafe { BorrowedFd::borrow_raw(fd) });
    let fans_out = fd < 0 || is_packet().unwrap_or(false);
    let names: &[&str] = if fans_out { &Kind::NAMES } else { &[] };
    let list = copy(names);
    if list.is_null() {
        // SAFETY: as above.
        return unsafe { fail(p, "malloc: out of memory") };
    }
    // SAFETY: the caller vouches for `modes`.
    unsafe { modes.write(list) };
    c_int::try_from(names.len()).unwrap_or(ERROR)
}

/// A null-ended array of C strings in one piece of malloc'ed memory, so that free() frees it whole; null when there
/// is no memory.
fn copy(names: &[&str]) -> *mut *mut c_char {
    let slots = names.len() + 1;
    let text: usize = names.iter().map(|name| name.len() + 1).sum();
    // SAFETY: calloc has no preconditions.
    let memory = unsafe { libc::calloc(1, slots * mem::size_of::<*mut c_char>() + text) };
    let list: *mut *mut c_char = memory.cast();
    if list.is_null() {
        return null_mut();
    }
    let mut end: *mut u8 = list.wrapping_add(slots).cast();
    for (index, name) in names.iter().enumerate() {
        // SAFETY: slot `index` lies before the text.
        unsafe { list.wrapping_add(index).write(end.cast()) };
        // SAFETY: `text` bytes were kept for the names, each with its zero.
        unsafe { end.copy_from_nonoverlapping(name.as_ptr(), name.len()) };
        end = end.wrapping_add(name.len() + 1);
    }
    list
}

/// See pcap_list_fanout_modes(3PCAP).
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_free_fanout_modes(modes: *mut *mut c_char) {
    // SAFETY: the caller's promise: null, or a list of pcap_list_fanout_modes().
    unsafe { libc::free(modes.cast()) };
}
