//! The list of modes that a handle can use.

use crate::message::guard_handle;
use crate::pcap_handle::PcapHandle;
use crate::system::ERROR;
use fanpcap_config::mode::{self, ModeKind};
use fanpcap_group::join;
use fanpcap_linux::packet;
use std::ffi::{c_char, c_int};
use std::mem;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

/// See pcap_list_fanout_modes(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_list_fanout_modes(
    p: PcapHandle,
    modes: *mut *mut *mut c_char,
) -> c_int {
    guard_handle(p, || {
        let names = p.socket().map_or_else(all_modes, modes_of);
        let list = copy(&names);
        if list.is_null() {
            return p.fail("malloc: out of memory");
        }
        // SAFETY: the caller's promise: `modes` is writable.
        unsafe { modes.write(list) };
        c_int::try_from(names.len()).unwrap_or(ERROR)
    })
}

fn all_modes() -> Vec<&'static str> {
    ModeKind::ALL
        .map(ModeKind::name)
        .into_iter()
        .chain(mode::programs())
        .collect()
}

/// The modes that a handle with this descriptor can use. Steering programs need Ethernet frames.
fn modes_of(socket: BorrowedFd<'_>) -> Vec<&'static str> {
    if !packet::is_packet_socket(socket).unwrap_or(false) {
        return Vec::new();
    }
    let ifindex = packet::address(socket).map_or(0, |address| address.ifindex);
    match join::takes_programs(socket, ifindex) {
        true => all_modes(),
        false => ModeKind::ALL.map(ModeKind::name).to_vec(),
    }
}

/// Makes a null-terminated array of C strings in one malloc(3)ed block, so that one free(3) frees
/// all of it. Returns null if there is no memory.
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
        // SAFETY: `text` bytes are reserved for the names, each with its zero.
        unsafe { end.copy_from_nonoverlapping(name.as_ptr(), name.len()) };
        end = end.wrapping_add(name.len() + 1);
    }
    list
}

/// See pcap_list_fanout_modes(3PCAP).
///
/// # Safety
/// As the man page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_free_fanout_modes(modes: *mut *mut c_char) {
    // SAFETY: the caller's promise: null, or a list of pcap_list_fanout_modes().
    unsafe { libc::free(modes.cast()) };
}
