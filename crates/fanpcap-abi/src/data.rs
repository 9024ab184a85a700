//! The two data symbols of libpcap 1.10.3. Applications may hold copies of them (copy relocations),
//! so their sizes are part of the ABI.

use std::ffi::{CStr, c_char};

/// The release of libpcap whose ABI this library has.
#[unsafe(no_mangle)]
pub static pcap_version: [u8; 7] = *b"1.10.3\0";

/// `struct eproto` of nametoaddr.c.
#[repr(C)]
pub struct Eproto {
    name: *const c_char,
    protocol: u16,
}

// SAFETY: the names are literals and nothing here changes.
unsafe impl Sync for Eproto {}

const fn eproto(name: &'static CStr, protocol: u16) -> Eproto {
    Eproto {
        name: name.as_ptr(),
        protocol,
    }
}

/// Ethernet protocol names, ended by a null name.
#[unsafe(no_mangle)]
pub static eproto_db: [Eproto; 13] = [
    eproto(c"aarp", 0x80f3),
    eproto(c"arp", 0x0806),
    eproto(c"atalk", 0x809b),
    eproto(c"decnet", 0x6003),
    eproto(c"ip", 0x0800),
    eproto(c"ip6", 0x86dd),
    eproto(c"lat", 0x6004),
    eproto(c"loopback", 0x9000),
    eproto(c"mopdl", 0x6001),
    eproto(c"moprc", 0x6002),
    eproto(c"rarp", 0x8035),
    eproto(c"sca", 0x6007),
    Eproto {
        name: std::ptr::null(),
        protocol: 0,
    },
];
