//! Filter expressions of steering programs, compiled by the system's library.

use crate::system::{self, BpfProgram};
use fanpcap_bpf::Classic;
use std::ffi::{CStr, CString, c_int};
use std::ptr::null;

/// `PCAP_NETMASK_UNKNOWN`.
const NETMASK_UNKNOWN: u32 = 0xffff_ffff;
const ETHERNET: c_int = 1;
const SNAPLEN: c_int = 262_144;

/// Compiles an expression for Ethernet, without a device: so it reads nothing but the frame's bytes.
///
/// # Errors
/// What the system's library says.
pub(crate) fn compile(text: &str) -> Result<Vec<Classic>, String> {
    let text = CString::new(text).map_err(|_| "a zero byte in a filter expression".to_owned())?;
    // SAFETY: takes any numbers.
    let p = unsafe { system::pcap_open_dead(ETHERNET, SNAPLEN) };
    if p.is_null() {
        return Err("no libpcap that could compile it".to_owned());
    }
    let mut program = BpfProgram {
        len: 0,
        instructions: null(),
    };
    let (target, optimize) = ((&raw mut program).cast(), 1);
    // SAFETY: `p` is open, the text a C string, and the target a bpf_program.
    let status =
        unsafe { system::pcap_compile(p, target, text.as_ptr(), optimize, NETMASK_UNKNOWN) };
    let compiled = if status == 0 {
        // SAFETY: the call has filled it.
        let code =
            unsafe { std::slice::from_raw_parts(program.instructions, program.len as usize) };
        Ok(code.to_vec())
    } else {
        // SAFETY: `p` is open.
        let error = unsafe { system::pcap_geterr(p) };
        // SAFETY: libpcap's answer is a C string.
        let error = unsafe { CStr::from_ptr(error) };
        Err(error.to_string_lossy().into_owned())
    };
    if status == 0 {
        // SAFETY: pcap_compile() has made it, and nobody uses it any more.
        unsafe { system::pcap_freecode(target) };
    }
    if let Some(close) = system::system().pcap_close {
        // SAFETY: `p` is open and not used again.
        unsafe { close(p) };
    }
    compiled
}
