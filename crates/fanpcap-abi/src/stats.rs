//! pcap_stats, and the library's version text.

use crate::device_drops::wrapped;
use crate::handles;
use crate::message::{guard, guard_handle};
use crate::pcap_handle::PcapHandle;
use crate::system::{Stats, system};
use fanpcap::several;
use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

/// See pcap_stats(3PCAP). Also publishes a member's counters.
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_stats(p: PcapHandle, stats: *mut Stats) -> c_int {
    guard_handle(p, || match total(p) {
        Ok(total) => {
            // SAFETY: the caller's promise: `stats` points to a pcap_stat.
            if let Some(stats) = unsafe { stats.as_mut() } {
                *stats = total;
            }
            0
        }
        Err(status) => status,
    })
}

/// The sums over a handle's devices.
///
/// # Errors
/// The status of pcap_stats(3PCAP) of the system's library.
pub(crate) fn total(p: PcapHandle) -> Result<Stats, c_int> {
    let (mut sum, mut missed) = (Stats::default(), 0);
    let add = |part: PcapHandle| match part.statistics() {
        Ok(mut own) => {
            add_taken(part, &mut own);
            missed += missed_by_poller(part);
            sum.received = sum.received.wrapping_add(own.received);
            sum.dropped = sum.dropped.wrapping_add(own.dropped);
            sum.interface_dropped = sum.interface_dropped.wrapping_add(own.interface_dropped);
            0
        }
        Err(status) => status,
    };
    // Read the number of rejected packets before the counters. If a packet is rejected between the
    // two readings, the counters include it, and it is not subtracted. In the other order it would
    // be subtracted, but the counters would not include it.
    let rejected = p
        .with_reader(|reader| reader.control().rejected())
        .unwrap_or(0);
    match several::each(p, add) {
        0 => {
            let past = handles::with(p, |entry| {
                if entry.away.is_some() {
                    sum.interface_dropped = entry.device_drops.total(sum.interface_dropped);
                }
                entry.past
            });
            // As the drops of a device: they came before the group's steering.
            sum.interface_dropped = sum.interface_dropped.wrapping_add(wrapped(missed));
            let past = past.unwrap_or_default();
            let received = sum.received.wrapping_add(wrapped(past.received));
            sum.received = received.wrapping_sub(wrapped(rejected));
            sum.dropped = sum.dropped.wrapping_add(wrapped(past.dropped));
            Ok(sum)
        }
        status => Err(status),
    }
}

/// Replaces the counters of a member. On packet sockets, adds what our reader has read from the
/// socket before, because each read clears the socket's counters. On another engine, takes the
/// engine's or the poller's counts.
fn add_taken(p: PcapHandle, stats: &mut Stats) {
    handles::with(p, |entry| {
        if let Some(polled) = &entry.polled {
            [stats.received, stats.dropped] = polled.io.counted().map(wrapped);
            return;
        }
        if let Some((member, _)) = &mut entry.member {
            if let Some(counted) = member
                .membership()
                .and_then(|membership| membership.counted())
            {
                stats.received = wrapped(counted.received);
                stats.dropped = wrapped(counted.dropped);
                return;
            }
            let totals = member.handle_stats(stats.received, stats.dropped);
            stats.received = wrapped(totals.received);
            stats.dropped = wrapped(totals.dropped);
        }
    });
}

/// Packets that the source of a handle's present poller has dropped.
fn missed_by_poller(p: PcapHandle) -> u64 {
    handles::polled(p).map_or(0, |polled| polled.io.missed())
}

/// See pcap_lib_version(3PCAP). Returns the text of the system's library, followed by ours.
///
/// # Safety
/// None; C functions are unsafe by type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lib_version() -> *const c_char {
    guard(|| lib_version().as_ptr(), |_| c"fanpcap".as_ptr())
}

fn lib_version() -> &'static CStr {
    static TEXT: OnceLock<CString> = OnceLock::new();
    // Load the system's library first: no lock may be held during the loading.
    let system = system();
    TEXT.get_or_init(|| {
        let theirs = system
            .pcap_lib_version
            .map_or(c"libpcap not found", |function| {
                // SAFETY: the function has no preconditions.
                let text = unsafe { function() };
                // SAFETY: the function returns a C string that stays valid.
                unsafe { CStr::from_ptr(text) }
            });
        // `fanpcap doctor` finds this text in the library's file, up to the zero byte.
        let ours = concat!(" + fanpcap ", env!("CARGO_PKG_VERSION"), "\0");
        let text = [theirs.to_bytes(), ours.as_bytes()].concat();
        CString::from_vec_with_nul(text).unwrap_or_default()
    })
}
