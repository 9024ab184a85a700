//! pcap_activate.

use crate::message::guard_handle;
use crate::pcap_handle::PcapHandle;
use std::ffi::c_int;

/// See pcap_activate(3PCAP). A handle with a group has joined the group if this function returns 0
/// or more.
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_activate(p: PcapHandle) -> c_int {
    activate(p)
}

pub(crate) fn activate(p: PcapHandle) -> c_int {
    guard_handle(p, || fanpcap::activate::activate(p))
}
