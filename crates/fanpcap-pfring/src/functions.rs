//! The functions and structs of pfring.h, and the loading of the library.

use fanpcap_linux::object::SharedObject;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::sync::OnceLock;

/// `pfring`, whose fields are the library's own.
#[repr(C)]
pub(crate) struct Pfring {
    _private: [u8; 0],
}

/// `struct pfring_pkthdr`. The library writes less of it than this room. Unless the ring was opened
/// with long headers, the library writes the fields up to the hash.
#[repr(C)]
pub(crate) struct Header {
    pub(crate) seconds: i64,
    pub(crate) microseconds: i64,
    pub(crate) captured: u32,
    pub(crate) len: u32,
    /// Nanoseconds since 1970; 0 if the ring has only microseconds.
    pub(crate) stamp_ns: u64,
    flags: u32,
    /// 1 for a packet that the device has received, 0 for one that the host sends.
    pub(crate) is_received: u8,
    rest: [u8; 475],
}

/// `pfring_packet_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PacketInfo {
    pub(crate) data: *mut u8,
    pub(crate) seconds: i64,
    pub(crate) microseconds: i64,
    pub(crate) captured: u16,
    pub(crate) len: u16,
    flags: u32,
    pub(crate) hash: u32,
}

/// `pfring_stat`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Stat {
    pub(crate) received: u64,
    pub(crate) dropped: u64,
    pub(crate) shunted: u64,
}

impl Header {
    pub(crate) const EMPTY: Self = Self {
        seconds: 0,
        microseconds: 0,
        captured: 0,
        len: 0,
        stamp_ns: 0,
        flags: 0,
        is_received: 0,
        rest: [0; 475],
    };
}

impl PacketInfo {
    pub(crate) const EMPTY: Self = Self {
        data: std::ptr::null_mut(),
        seconds: 0,
        microseconds: 0,
        captured: 0,
        len: 0,
        flags: 0,
        hash: 0,
    };
}

type Ring = *mut Pfring;

/// Declares the functions of the library, and finds them.
macro_rules! functions {
    ($($name:ident: $kind:ty = $symbol:literal,)* ; $newer:ident: $of_newer:ty = $its:literal) => {
        /// The functions of a loaded library.
        pub(crate) struct Functions {
            $(pub(crate) $name: $kind,)*
            /// A function that older versions of the library lack.
            pub(crate) $newer: Option<$of_newer>,
        }

        impl Functions {
            /// # Errors
            /// The function that the library lacks.
            fn find(library: SharedObject) -> Result<Self, &'static CStr> {
                Ok(Self {
                    $($name: {
                        let symbol = library.symbol($symbol).ok_or($symbol)?;
                        // SAFETY: pfring.h declares the function with this type.
                        unsafe { mem::transmute::<*mut c_void, $kind>(symbol.as_ptr()) }
                    },)*
                    $newer: library.symbol($its).map(|symbol| {
                        // SAFETY: as above.
                        unsafe { mem::transmute::<*mut c_void, $of_newer>(symbol.as_ptr()) }
                    }),
                })
            }
        }
    };
}

functions! {
    open: unsafe extern "C" fn(*const c_char, u32, u32) -> Ring = c"pfring_open",
    close: unsafe extern "C" fn(Ring) = c"pfring_close",
    enable_ring: unsafe extern "C" fn(Ring) -> c_int = c"pfring_enable_ring",
    recv: unsafe extern "C" fn(Ring, *mut *mut u8, c_uint, *mut Header, u8) -> c_int
        = c"pfring_recv",
    recv_burst: unsafe extern "C" fn(Ring, *mut PacketInfo, u8, u8) -> c_int
        = c"pfring_recv_burst",
    send: unsafe extern "C" fn(Ring, *mut c_char, c_uint, u8) -> c_int = c"pfring_send",
    stats: unsafe extern "C" fn(Ring, *mut Stat) -> c_int = c"pfring_stats",
    set_cluster: unsafe extern "C" fn(Ring, c_uint, c_int) -> c_int = c"pfring_set_cluster",
    remove_from_cluster: unsafe extern "C" fn(Ring) -> c_int = c"pfring_remove_from_cluster",
    set_direction: unsafe extern "C" fn(Ring, c_int) -> c_int = c"pfring_set_direction",
    set_poll_watermark: unsafe extern "C" fn(Ring, u16) -> c_int = c"pfring_set_poll_watermark",
    get_selectable_fd: unsafe extern "C" fn(Ring) -> c_int = c"pfring_get_selectable_fd",
    get_num_rx_channels: unsafe extern "C" fn(Ring) -> u8 = c"pfring_get_num_rx_channels",
    get_bound_device_ifindex: unsafe extern "C" fn(Ring, *mut c_int) -> c_int
        = c"pfring_get_bound_device_ifindex",
    ;
    // Since PF_RING 8.6.1.
    set_cluster_consumer: unsafe extern "C" fn(Ring, u16, u16, c_int, u32) -> c_int
        = c"pfring_set_cluster_consumer"
}

/// The library, or the loader's reason why there is none.
pub(crate) fn load() -> Result<&'static Functions, &'static str> {
    static LIBRARY: OnceLock<Result<Functions, String>> = OnceLock::new();
    LIBRARY.get_or_init(find).as_ref().map_err(String::as_str)
}

fn find() -> Result<Functions, String> {
    let library = object(NAME, libc::RTLD_LOCAL).or_else(with_libpcap)?;
    Functions::find(library)
        .map_err(|lacks| format!("libpfring.so lacks {}", lacks.to_string_lossy()))
}

/// Loads the library after libpcap, if `reason` is that a function of libpcap is missing. The
/// library calls libpcap for its own filters, but does not name it: it expects a program that is
/// linked with both. A library that was linked with `-z now` needs these functions at once.
fn with_libpcap(reason: String) -> Result<SharedObject, String> {
    let lacks_libpcap = ["pcap_", "bpf_"].iter().any(|it| reason.contains(it));
    let is_loaded = |name: &&CStr| object(name, libc::RTLD_GLOBAL).is_ok();
    if lacks_libpcap && LIBPCAP.iter().any(is_loaded) {
        return object(NAME, libc::RTLD_LOCAL);
    }
    Err(reason)
}

/// Loads an object whose functions are bound when they are called. So functions that are missing,
/// and that fanpcap does not need, do not matter.
fn object(name: &CStr, scope: c_int) -> Result<SharedObject, String> {
    // SAFETY: the object's constructors are those of a libpfring or of a libpcap.
    unsafe { SharedObject::load(name, libc::RTLD_LAZY | scope) }
}

/// The name under which PF_RING installs the library. It has no version.
const NAME: &CStr = c"libpfring.so";

/// Debian's name for libpcap, then the name in other distributions.
const LIBPCAP: [&CStr; 2] = [c"libpcap.so.0.8", c"libpcap.so.1"];

// pfring.h: `PF_RING_ERROR_NO_PKT_AVAILABLE`, `PF_RING_ERROR_NO_TX_SLOT_AVAILABLE`,
// `PF_RING_ERROR_END_OF_DEMO_MODE`, `PF_RING_ERROR_NOT_SUPPORTED`.
pub(crate) const NO_PACKET: c_int = -3;
pub(crate) const NO_ROOM: c_int = -4;
pub(crate) const DEMO_ENDED: c_int = -6;
pub(crate) const NOT_SUPPORTED: c_int = -7;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn the_structs_have_the_published_layout() {
        // pf_ring.h packs the structs.
        let header = [
            offset_of!(Header, microseconds),
            offset_of!(Header, captured),
            offset_of!(Header, len),
            offset_of!(Header, stamp_ns),
            offset_of!(Header, is_received),
        ];
        assert_eq!(header, [8, 16, 20, 24, 36]);
        let info = [
            offset_of!(PacketInfo, seconds),
            offset_of!(PacketInfo, captured),
            offset_of!(PacketInfo, len),
            offset_of!(PacketInfo, hash),
            size_of::<PacketInfo>(),
        ];
        assert_eq!(info, [8, 24, 26, 32, 40]);
        assert_eq!([size_of::<Header>(), size_of::<Stat>()], [512, 24]);
    }
}
