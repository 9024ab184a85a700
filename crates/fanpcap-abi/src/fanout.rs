//! The functions of pcap/fanout.h.

pub mod channels;
pub mod modes;
pub mod stats;

use crate::errbuf;
use crate::message::guard_handle;
use crate::pcap_handle::PcapHandle;
use crate::system::{ERROR, NOT_ACTIVATED};
use fanpcap::handle::{Life, Member};
use std::ffi::{c_char, c_int};

/// See pcap_fanout(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fanout(p: PcapHandle, group: c_int, fanout: *const c_char) -> c_int {
    guard_handle(p, || {
        // SAFETY: the caller's promise: null or a C string.
        let fanout = unsafe { errbuf::string(fanout) };
        match fanpcap::fanout::fanout(p, group, fanout) {
            Ok(()) => 0,
            Err(text) => p.fail(&text),
        }
    })
}

/// See pcap_fanout_group(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_fanout_group(p: PcapHandle) -> c_int {
    guard_handle(p, || match p.group() {
        Some(_) if p.notes().is_alone => ERROR,
        Some(joined) => joined.group.into(),
        None if p.datalink() == NOT_ACTIVATED => NOT_ACTIVATED,
        None => ERROR,
    })
}
