//! The functions of libpcap: the only list of their names and types.

use crate::structs::{BpfProgram, Callback, FanoutStat, Header, Pcap, Stats};
use fanpcap_bpf::Classic;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::mem;
use std::ptr::NonNull;

/// A C string.
pub type Text = *const c_char;
/// A C string to write to, of `PCAP_ERRBUF_SIZE` bytes, or null.
pub type Buffer = *mut c_char;
/// A pointer to data that no code here reads.
pub type Opaque = *mut c_void;
/// A `pcap_t`.
pub type Handle = *mut Pcap;

/// Calls a macro with all functions of libpcap, in three groups. A library that exports all these
/// functions treats the groups in different ways:
/// - `own`: the library implements the function itself.
/// - `each`: the library calls the function for every device of a handle.
/// - `forward`: the library calls the system's function of the same name. The expression after `=`
///   is the result if the system's libpcap lacks the function.
#[macro_export]
macro_rules! for_each_function {
    ($callback:ident) => {
        $callback! {
            own {
                fn pcap_create(device: Text, errbuf: Buffer) -> Handle;
                fn pcap_open_live(device: Text, snaplen: c_int, promisc: c_int, timeout: c_int, errbuf: Buffer) -> Handle;
                fn pcap_activate(p: Handle) -> c_int;
                fn pcap_close(p: Handle);
                fn pcap_stats(p: Handle, stats: *mut Stats) -> c_int;
                fn pcap_set_snaplen(p: Handle, snaplen: c_int) -> c_int;
                fn pcap_set_promisc(p: Handle, promisc: c_int) -> c_int;
                fn pcap_set_protocol_linux(p: Handle, protocol: c_int) -> c_int;
                fn pcap_set_timeout(p: Handle, milliseconds: c_int) -> c_int;
                fn pcap_set_immediate_mode(p: Handle, immediate: c_int) -> c_int;
                fn pcap_set_buffer_size(p: Handle, bytes: c_int) -> c_int;
                fn pcap_breakloop(p: Handle);
                fn pcap_setnonblock(p: Handle, nonblock: c_int, errbuf: Buffer) -> c_int;
                fn pcap_get_selectable_fd(p: Handle) -> c_int;
                fn pcap_fileno(p: Handle) -> c_int;
                fn pcap_inject(p: Handle, data: *const c_void, len: usize) -> c_int;
                fn pcap_sendpacket(p: Handle, data: *const u8, len: c_int) -> c_int;
                fn pcap_get_required_select_timeout(p: Handle) -> *const c_void;
                fn pcap_setdirection(p: Handle, direction: c_int) -> c_int;
                fn pcap_set_datalink(p: Handle, linktype: c_int) -> c_int;
                fn pcap_setfilter(p: Handle, program: *mut BpfProgram) -> c_int;
                fn pcap_findalldevs(list: *mut Opaque, errbuf: Buffer) -> c_int;
                fn pcap_lib_version() -> Text;
                // From pcap/fanout.h.
                fn pcap_fanout(p: Handle, group: c_int, fanout: Text) -> c_int;
                fn pcap_fanout_group(p: Handle) -> c_int;
                fn pcap_fanout_stats(p: Handle, stats: *mut FanoutStat) -> c_int;
            }
            each {
                fn pcap_set_rfmon(rfmon);
                fn pcap_set_tstamp_type(kind);
                fn pcap_set_tstamp_precision(precision);
            }
            forward {
                // Opening.
                fn pcap_init(options: c_uint, errbuf: Buffer) -> c_int = missing(errbuf, ERROR);
                fn pcap_open_dead(linktype: c_int, snaplen: c_int) -> Handle = null_mut();
                fn pcap_open_dead_with_tstamp_precision(linktype: c_int, snaplen: c_int, precision: c_uint) -> Handle = null_mut();
                fn pcap_open_offline(name: Text, errbuf: Buffer) -> Handle = missing(errbuf, null_mut());
                fn pcap_open_offline_with_tstamp_precision(name: Text, precision: c_uint, errbuf: Buffer) -> Handle = missing(errbuf, null_mut());
                fn pcap_fopen_offline(file: Opaque, errbuf: Buffer) -> Handle = missing(errbuf, null_mut());
                fn pcap_fopen_offline_with_tstamp_precision(file: Opaque, precision: c_uint, errbuf: Buffer) -> Handle = missing(errbuf, null_mut());
                fn pcap_can_set_rfmon(p: Handle) -> c_int = ERROR;
                fn pcap_get_tstamp_precision(p: Handle) -> c_int = ERROR;
                fn pcap_list_tstamp_types(p: Handle, list: *mut *mut c_int) -> c_int = ERROR;
                fn pcap_free_tstamp_types(list: *mut c_int) = ();

                // Reading.
                fn pcap_loop(p: Handle, count: c_int, callback: Callback, user: *mut u8) -> c_int = ERROR;
                fn pcap_dispatch(p: Handle, count: c_int, callback: Callback, user: *mut u8) -> c_int = ERROR;
                fn pcap_next(p: Handle, header: *mut Header) -> *const u8 = std::ptr::null();
                fn pcap_next_ex(p: Handle, header: *mut *mut Header, data: *mut *const u8) -> c_int = ERROR;
                fn pcap_getnonblock(p: Handle, errbuf: Buffer) -> c_int = missing(errbuf, ERROR);

                // About a handle.
                fn pcap_datalink(p: Handle) -> c_int = ERROR;
                fn pcap_datalink_ext(p: Handle) -> c_int = ERROR;
                fn pcap_list_datalinks(p: Handle, list: *mut *mut c_int) -> c_int = ERROR;
                fn pcap_free_datalinks(list: *mut c_int) = ();
                fn pcap_snapshot(p: Handle) -> c_int = ERROR;
                fn pcap_bufsize(p: Handle) -> c_int = ERROR;
                fn pcap_is_swapped(p: Handle) -> c_int = ERROR;
                fn pcap_major_version(p: Handle) -> c_int = ERROR;
                fn pcap_minor_version(p: Handle) -> c_int = ERROR;
                fn pcap_file(p: Handle) -> Opaque = null_mut();
                fn pcap_geterr(p: Handle) -> Buffer = null_mut();
                fn pcap_perror(p: Handle, prefix: Text) = ();

                // Filters.
                fn pcap_compile(p: Handle, program: *mut BpfProgram, text: Text, optimize: c_int, netmask: u32) -> c_int = ERROR;
                fn pcap_compile_nopcap(snaplen: c_int, linktype: c_int, program: *mut BpfProgram, text: Text, optimize: c_int, netmask: u32) -> c_int = ERROR;
                fn pcap_freecode(program: *mut BpfProgram) = ();
                fn pcap_offline_filter(program: *const BpfProgram, header: *const Header, data: *const u8) -> c_int = 0;
                fn bpf_filter(program: *const Classic, data: *const u8, len: c_uint, caplen: c_uint) -> c_uint = 0;
                fn bpf_validate(program: *const Classic, len: c_int) -> c_int = 0;
                fn bpf_image(instruction: *const Classic, index: c_int) -> Buffer = null_mut();
                fn bpf_dump(program: *const BpfProgram, option: c_int) = ();

                // Savefiles.
                fn pcap_dump_open(p: Handle, name: Text) -> Opaque = null_mut();
                fn pcap_dump_fopen(p: Handle, file: Opaque) -> Opaque = null_mut();
                fn pcap_dump_open_append(p: Handle, name: Text) -> Opaque = null_mut();
                fn pcap_dump(dumper: *mut u8, header: *const Header, data: *const u8) = ();
                fn pcap_dump_file(dumper: Opaque) -> Opaque = null_mut();
                fn pcap_dump_ftell(dumper: Opaque) -> c_long = -1;
                fn pcap_dump_ftell64(dumper: Opaque) -> i64 = -1;
                fn pcap_dump_flush(dumper: Opaque) -> c_int = ERROR;
                fn pcap_dump_close(dumper: Opaque) = ();

                // Devices.
                fn pcap_freealldevs(list: Opaque) = ();
                fn pcap_lookupdev(errbuf: Buffer) -> Buffer = missing(errbuf, null_mut());
                fn pcap_lookupnet(device: Text, network: *mut u32, mask: *mut u32, errbuf: Buffer) -> c_int = missing(errbuf, ERROR);

                // Names and numbers.
                fn pcap_statustostr(status: c_int) -> Text = c"no libpcap loaded".as_ptr();
                fn pcap_strerror(error: c_int) -> Text = c"no libpcap loaded".as_ptr();
                fn pcap_datalink_name_to_val(name: Text) -> c_int = ERROR;
                fn pcap_datalink_val_to_name(linktype: c_int) -> Text = std::ptr::null();
                fn pcap_datalink_val_to_description(linktype: c_int) -> Text = std::ptr::null();
                fn pcap_datalink_val_to_description_or_dlt(linktype: c_int) -> Text = c"no libpcap loaded".as_ptr();
                fn pcap_tstamp_type_name_to_val(name: Text) -> c_int = ERROR;
                fn pcap_tstamp_type_val_to_name(kind: c_int) -> Text = std::ptr::null();
                fn pcap_tstamp_type_val_to_description(kind: c_int) -> Text = std::ptr::null();
                fn pcap_nametoaddr(name: Text) -> *mut *mut u32 = null_mut();
                fn pcap_nametoaddrinfo(name: Text) -> Opaque = null_mut();
                fn pcap_nametonetaddr(name: Text) -> u32 = 0;
                fn pcap_nametoport(name: Text, port: *mut c_int, protocol: *mut c_int) -> c_int = 0;
                fn pcap_nametoportrange(name: Text, first: *mut c_int, last: *mut c_int, protocol: *mut c_int) -> c_int = 0;
                fn pcap_nametoproto(name: Text) -> c_int = ERROR;
                fn pcap_nametoeproto(name: Text) -> c_int = ERROR;
                fn pcap_nametollc(name: Text) -> c_int = ERROR;
                fn pcap_ether_aton(text: Text) -> *mut u8 = null_mut();
                fn pcap_ether_hostton(name: Text) -> *mut u8 = null_mut();
                fn pcap_next_etherent(file: Opaque) -> Opaque = null_mut();
            }
        }
    };
}

/// Declares the types of the functions, and the table of their addresses.
macro_rules! table {
    (own { $(fn $own:ident($($o:ident: $ot:ty),*) $(-> $or:ty)?;)* }
     each { $(fn $each:ident($value:ident);)* }
     forward { $(fn $name:ident($($a:ident: $t:ty),*) $(-> $r:ty)? = $default:expr;)* }) => {
        table! {
            $($own: unsafe extern "C-unwind" fn($($ot),*) $(-> $or)?,)*
            $($each: unsafe extern "C-unwind" fn(Handle, c_int) -> c_int,)*
            $($name: unsafe extern "C-unwind" fn($($t),*) $(-> $r)?,)*
        }
    };
    ($($name:ident: $type:ty,)*) => {
        #[allow(non_camel_case_types, reason = "functions of C have such names")]
        mod types {
            use super::*;
            $(pub(crate) type $name = $type;)*
        }

        /// The functions that a library exports; `None` for each function that the library lacks.
        #[derive(Debug)]
        pub struct Symbols {
            $(#[doc = concat!(stringify!($name), "(3PCAP)")] pub $name: Option<types::$name>,)*
        }

        impl Symbols {
            pub(crate) fn find(symbol: Lookup<'_>) -> Self {
                Self {
                    $($name: named(symbol, concat!(stringify!($name), "\0"))
                        // SAFETY: libpcap's function of this name has this type.
                        .map(|it| unsafe { mem::transmute::<NonNull<c_void>, types::$name>(it) }),)*
                }
            }
        }
    };
}

for_each_function!(table);

type Lookup<'a> = &'a dyn Fn(&CStr) -> Option<NonNull<c_void>>;

/// Not inlined, so that the library contains this code only once, and not once for each name.
#[inline(never)]
fn named(symbol: Lookup<'_>, name: &str) -> Option<NonNull<c_void>> {
    symbol(CStr::from_bytes_with_nul(name.as_bytes()).ok()?)
}

/// Declares the table of the functions that must exist.
macro_rules! functions {
    ($($name:ident)*) => {
        /// The functions that every libpcap has since 1.5. Handles in safe Rust use them.
        #[derive(Debug)]
        pub(crate) struct Functions {
            $(pub(crate) $name: types::$name,)*
            pub(crate) pcap_fanout: Option<types::pcap_fanout>,
            pub(crate) pcap_fanout_group: Option<types::pcap_fanout_group>,
            pub(crate) pcap_fanout_stats: Option<types::pcap_fanout_stats>,
        }

        impl Functions {
            /// Takes the functions from `symbols`. If a function is missing, returns its name.
            pub(crate) fn of(symbols: &Symbols) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: symbols.$name.ok_or(stringify!($name))?,)*
                    pcap_fanout: symbols.pcap_fanout,
                    pcap_fanout_group: symbols.pcap_fanout_group,
                    pcap_fanout_stats: symbols.pcap_fanout_stats,
                })
            }
        }
    };
}

functions! {
    pcap_lib_version
    pcap_datalink_val_to_name
    pcap_statustostr
    pcap_geterr
    pcap_create
    pcap_open_dead
    pcap_open_offline_with_tstamp_precision
    pcap_set_snaplen
    pcap_set_promisc
    pcap_set_timeout
    pcap_set_buffer_size
    pcap_set_immediate_mode
    pcap_set_tstamp_precision
    pcap_get_tstamp_precision
    pcap_activate
    pcap_close
    pcap_setnonblock
    pcap_compile
    pcap_setfilter
    pcap_freecode
    pcap_fileno
    pcap_dispatch
    pcap_breakloop
    pcap_stats
    pcap_datalink
    pcap_snapshot
}
