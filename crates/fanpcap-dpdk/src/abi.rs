//! The plugin's C interface, as `plugin/fanpcap-dpdk.h` declares it.

use std::ffi::{c_char, c_int, c_void};

/// The version of the interface. Both sides must have the same.
pub const VERSION: u32 = 1;

/// The most packets that a queue lends at once.
pub const BURST: usize = 64;

/// A device of the plugin.
#[repr(C)]
pub(crate) struct RawPort {
    _hidden: [u8; 0],
}

/// A receive queue of the plugin.
#[repr(C)]
pub(crate) struct RawQueue {
    _hidden: [u8; 0],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawPacket {
    pub(crate) bytes: *const u8,
    pub(crate) stamp: u64,
    pub(crate) len: u32,
    pub(crate) wire_len: u32,
    pub(crate) hash: u32,
    pub(crate) tci: u16,
    pub(crate) flags: u16,
}

pub(crate) const HAS_STAMP: u16 = 1;
pub(crate) const HAS_TAG: u16 = 2;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawOptions {
    pub(crate) buffers: u32,
    pub(crate) cache: u32,
    pub(crate) mtu: u32,
    pub(crate) queues: u16,
    pub(crate) descriptors: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawFacts {
    pub(crate) mtu: u32,
    pub(crate) descriptors: u32,
    pub(crate) properties: u32,
    pub(crate) most_queues: u32,
    pub(crate) driver: [c_char; 36],
}

pub(crate) const SYMMETRIC: u32 = 1;
pub(crate) const INTERRUPTS: u32 = 2;
pub(crate) const STAMPS: u32 = 4;
pub(crate) const PROMISCUOUS: u32 = 8;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawCounts {
    pub(crate) received: u64,
    pub(crate) missed: u64,
    pub(crate) errors: u64,
    pub(crate) no_buffers: u64,
}

pub(crate) const DOWN: c_int = 1;
pub(crate) const GONE: c_int = 2;

/// Writes a frame into a buffer.
pub(crate) type Fill = unsafe extern "C" fn(*mut c_void, *mut u8, u32);

/// The plugin's functions.
#[repr(C)]
pub(crate) struct Table {
    pub(crate) version: u32,
    pub(crate) size: u32,
    pub(crate) runs: unsafe extern "C" fn() -> *const c_char,
    pub(crate) begin: unsafe extern "C" fn(c_int, *mut *mut c_char, *mut c_char, usize) -> c_int,
    pub(crate) open: unsafe extern "C" fn(
        *const c_char,
        *const c_char,
        *const c_char,
        *const RawOptions,
        *mut *mut RawPort,
        *mut RawFacts,
        *mut c_char,
        usize,
    ) -> c_int,
    pub(crate) close: unsafe extern "C" fn(*mut RawPort),
    pub(crate) queue: unsafe extern "C" fn(*mut RawPort, u16) -> *mut RawQueue,
    pub(crate) burst: unsafe extern "C" fn(*mut RawQueue, *mut RawPacket, u16) -> u16,
    pub(crate) release: unsafe extern "C" fn(*mut RawQueue),
    pub(crate) waiting: unsafe extern "C" fn(*const RawQueue) -> c_int,
    pub(crate) descriptor: unsafe extern "C" fn(*const RawQueue) -> c_int,
    pub(crate) interrupt: unsafe extern "C" fn(*mut RawQueue, c_int) -> c_int,
    pub(crate) counts: unsafe extern "C" fn(*mut RawPort, *mut RawCounts) -> c_int,
    pub(crate) state: unsafe extern "C" fn(*mut RawPort) -> c_int,
    pub(crate) clock: unsafe extern "C" fn(*mut RawPort, *mut u64) -> c_int,
    pub(crate) send: unsafe extern "C" fn(*mut RawPort, *const u8, u32) -> c_int,
    pub(crate) join: unsafe extern "C" fn() -> c_int,
    pub(crate) leave: unsafe extern "C" fn(),
    pub(crate) in_own_thread:
        unsafe extern "C" fn(unsafe extern "C" fn(*mut c_void), *mut c_void) -> c_int,
    pub(crate) fill: unsafe extern "C" fn(*mut RawQueue, Fill, *mut c_void) -> c_int,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn the_header_has_the_same_numbers() {
        let header = include_str!("../plugin/fanpcap-dpdk.h");
        for (name, number) in [
            ("VERSION", VERSION),
            ("BURST", 64),
            ("HAS_STAMP", HAS_STAMP.into()),
            ("HAS_TAG", HAS_TAG.into()),
            ("SYMMETRIC", SYMMETRIC),
            ("INTERRUPTS", INTERRUPTS),
            ("STAMPS", STAMPS),
            ("PROMISCUOUS", PROMISCUOUS),
        ] {
            let line = format!("#define FANPCAP_DPDK_{name} {number}");
            let mut lines = header.lines();
            let is_there = lines.any(|it| it.split(" /*").next().unwrap_or(it).trim_end() == line);
            assert!(is_there, "{line}");
        }
        assert_eq!((BURST, size_of::<RawPacket>()), (64, 32));
    }
}
