//! pcap_stats, and the name of the library.

use crate::message::{fail, guard};
use crate::system::{ERROR, Pcap, Stats, system};
use crate::{handles, several};
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::sync::OnceLock;

/// See pcap_stats(3PCAP). A member's counters are published to its group by the way.
///
/// # Safety
/// As its man page asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_stats(p: *mut Pcap, stats: *mut Stats) -> c_int {
    let body = || {
        let mut sum = Stats::default();
        let add = |p| {
            let mut own = Stats::default();
            // SAFETY: the caller's promise: `p` is a handle.
            let status = unsafe { told(p, &raw mut own) };
            if status == 0 {
                add_taken(p, &mut own);
                sum.received = sum.received.wrapping_add(own.received);
                sum.dropped = sum.dropped.wrapping_add(own.dropped);
                sum.interface_dropped = sum.interface_dropped.wrapping_add(own.interface_dropped);
            }
            status
        };
        // SAFETY: as above.
        let status = unsafe { several::each(p, add) };
        // SAFETY: the caller's promise: `stats` points to a pcap_stat.
        if let (0, Some(stats)) = (status, unsafe { stats.as_mut() }) {
            *stats = sum;
        }
        status
    };
    // SAFETY: the caller's promise: `p` is a handle.
    guard(body, |text| unsafe { fail(p, text) })
}

/// What the system's library tells by itself.
///
/// # Safety
/// As pcap_stats(3PCAP) asks.
pub(crate) unsafe fn told(p: *mut Pcap, stats: *mut Stats) -> c_int {
    system()
        .pcap_stats
        // SAFETY: the caller's promise, passed on.
        .map_or(ERROR, |function| unsafe { function(p, stats) })
}

/// Adds what was read from the socket past the system's library.
fn add_taken(p: *mut Pcap, stats: &mut Stats) {
    handles::with(p, |entry| {
        if let Some((member, _)) = &mut entry.member {
            let totals = member.handle_stats(stats.received, stats.dropped);
            stats.received = wrapped(totals.received);
            stats.dropped = wrapped(totals.dropped);
        }
    });
}

/// libpcap's counters are 32 bits wide and wrap.
fn wrapped(counter: u64) -> c_uint {
    let [a, b, c, d, ..] = counter.to_le_bytes();
    c_uint::from_le_bytes([a, b, c, d])
}

/// See pcap_lib_version(3PCAP): the system library's text, and ours behind it.
///
/// # Safety
/// None; C functions are unsafe by type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lib_version() -> *const c_char {
    guard(|| lib_version().as_ptr(), |_| c"fanpcap".as_ptr())
}

fn lib_version() -> &'static CStr {
    static TEXT: OnceLock<CString> = OnceLock::new();
    // First, as nothing may be locked while the library is loaded.
    let system = system();
    TEXT.get_or_init(|| {
        let theirs = system
            .pcap_lib_version
            .map_or(c"libpcap not found", |function| {
                // SAFETY: the function has no preconditions.
                let text = unsafe { function() };
                // SAFETY: it returns a C string that stays.
                unsafe { CStr::from_ptr(text) }
            });
        let ours = concat!(" + fanpcap ", env!("CARGO_PKG_VERSION"));
        CString::new([theirs.to_bytes(), ours.as_bytes()].concat()).unwrap_or_default()
    })
}
