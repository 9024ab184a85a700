//! The system's libpcap: its functions, and the entry points that are nothing but a jump to them.

use crate::{message, several};
use fanpcap_bpf::Classic;
use fanpcap_linux::process::{self, signal::Uncancelled};
use fanpcap_pcap::loader::{Library, NotFound};
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::panic;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// `pcap_t`, the system library's.
#[repr(C)]
pub struct Pcap {
    _opaque: [u8; 0],
}

/// `struct pcap_pkthdr`; see [`fanpcap_reader::Packet`], which begins as one.
#[repr(C)]
pub struct Header {
    _opaque: [u8; 0],
}

/// `struct bpf_program`.
#[repr(C)]
pub struct BpfProgram {
    pub(crate) len: c_uint,
    pub(crate) instructions: *const Classic,
}

/// `struct pcap_stat`.
#[repr(C)]
#[derive(Default)]
pub struct PcapStat {
    /// Packets received, dropped ones included.
    pub ps_recv: c_uint,
    /// Packets dropped because the ring was full.
    pub ps_drop: c_uint,
    /// Packets dropped by the interface.
    pub ps_ifdrop: c_uint,
}

/// `pcap_handler`. It may throw or longjmp.
pub type Callback = Option<unsafe extern "C-unwind" fn(*mut u8, *const Header, *const u8)>;

type Text = *const c_char;
type Buffer = *mut c_char;
type Opaque = *mut c_void;
type Handle = *mut Pcap;

/// Status that says "this handle is not activated yet".
pub(crate) const NOT_ACTIVATED: c_int = -3;
/// `PCAP_ERROR`.
pub(crate) const ERROR: c_int = -1;

/// Declares the table of functions of the system's library and, for those after `forward`, the entry
/// point that jumps there. The value after `=` is what a caller gets when no such function could be
/// loaded. Those after `each` set something, on every device of a handle.
macro_rules! functions {
    (own { $(fn $own:ident($($o:ident: $ot:ty),*) $(-> $or:ty)?;)* }
     each { $(fn $each:ident($value:ident);)* }
     forward { $(fn $name:ident($($a:ident: $t:ty),*) $(-> $r:ty)? = $default:expr;)* }) => {
        /// The functions of the system's library; none where it lacks one.
        pub(crate) struct System {
            library: Option<Library>,
            missing: String,
            $(pub(crate) $own: Option<unsafe extern "C-unwind" fn($($ot),*) $(-> $or)?>,)*
            $($each: Option<unsafe extern "C-unwind" fn(Handle, c_int) -> c_int>,)*
            $($name: Option<unsafe extern "C-unwind" fn($($t),*) $(-> $r)?>,)*
        }

        impl System {
            fn of(library: Result<Library, NotFound>) -> Self {
                let (library, missing) = match library {
                    Ok(library) => (Some(library), String::new()),
                    Err(error) => (None, error.to_string()),
                };
                let symbol = |name: &str| {
                    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
                    library.as_ref()?.symbol(name)
                };
                Self {
                    $($own: symbol(concat!(stringify!($own), "\0"))
                        // SAFETY: libpcap's function of this name has this type.
                        .map(|address| unsafe { std::mem::transmute(address) }),)*
                    $($each: symbol(concat!(stringify!($each), "\0"))
                        // SAFETY: libpcap's function of this name has this type.
                        .map(|address| unsafe { std::mem::transmute(address) }),)*
                    $($name: symbol(concat!(stringify!($name), "\0"))
                        // SAFETY: libpcap's function of this name has this type.
                        .map(|address| unsafe { std::mem::transmute(address) }),)*
                    library,
                    missing,
                }
            }
        }

        $(
            #[doc = concat!("See ", stringify!($each), "(3PCAP).")]
            ///
            /// # Safety
            /// As its man page asks.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $each(p: Handle, $value: c_int) -> c_int {
                let function = system().$each;
                // SAFETY: the caller's promise, passed on.
                let set = |p| function.map_or(ERROR, |function| unsafe { function(p, $value) });
                // SAFETY: as above.
                unsafe { several::each(p, set) }
            }
        )*

        $(
            #[doc = concat!("See ", stringify!($name), "(3PCAP).")]
            ///
            /// # Safety
            /// As its man page asks.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($a: $t),*) $(-> $r)? {
                match system().$name {
                    // SAFETY: the caller's promise, passed on.
                    Some(function) => unsafe { function($($a),*) },
                    None => $default,
                }
            }
        )*
    };
}

functions! {
    own {
        fn pcap_create(device: Text, errbuf: Buffer) -> Handle;
        fn pcap_open_live(device: Text, snaplen: c_int, promisc: c_int, timeout: c_int, errbuf: Buffer) -> Handle;
        fn pcap_activate(p: Handle) -> c_int;
        fn pcap_close(p: Handle);
        fn pcap_stats(p: Handle, stats: *mut PcapStat) -> c_int;
        fn pcap_set_snaplen(p: Handle, snaplen: c_int) -> c_int;
        fn pcap_set_protocol_linux(p: Handle, protocol: c_int) -> c_int;
        fn pcap_set_timeout(p: Handle, milliseconds: c_int) -> c_int;
        fn pcap_set_buffer_size(p: Handle, bytes: c_int) -> c_int;
        fn pcap_breakloop(p: Handle);
        fn pcap_setnonblock(p: Handle, nonblock: c_int, errbuf: Buffer) -> c_int;
        fn pcap_get_selectable_fd(p: Handle) -> c_int;
        fn pcap_get_required_select_timeout(p: Handle) -> *const c_void;
        fn pcap_setdirection(p: Handle, direction: c_int) -> c_int;
        fn pcap_set_datalink(p: Handle, linktype: c_int) -> c_int;
        fn pcap_setfilter(p: Handle, program: *mut BpfProgram) -> c_int;
        fn pcap_lib_version() -> Text;
    }
    each {
        fn pcap_set_promisc(promisc);
        fn pcap_set_rfmon(rfmon);
        fn pcap_set_immediate_mode(immediate);
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
        fn pcap_fileno(p: Handle) -> c_int = ERROR;
        fn pcap_inject(p: Handle, data: *const c_void, len: usize) -> c_int = ERROR;
        fn pcap_sendpacket(p: Handle, data: *const u8, len: c_int) -> c_int = ERROR;

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
        fn pcap_compile(p: Handle, program: Opaque, text: Text, optimize: c_int, netmask: u32) -> c_int = ERROR;
        fn pcap_compile_nopcap(snaplen: c_int, linktype: c_int, program: Opaque, text: Text, optimize: c_int, netmask: u32) -> c_int = ERROR;
        fn pcap_freecode(program: Opaque) = ();
        fn pcap_offline_filter(program: *const c_void, header: *const Header, data: *const u8) -> c_int = 0;
        fn bpf_filter(program: *const c_void, data: *const u8, len: c_uint, caplen: c_uint) -> c_uint = 0;
        fn bpf_validate(program: *const c_void, len: c_int) -> c_int = 0;
        fn bpf_image(instruction: *const c_void, index: c_int) -> Buffer = null_mut();
        fn bpf_dump(program: *const c_void, option: c_int) = ();

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
        fn pcap_findalldevs(list: *mut Opaque, errbuf: Buffer) -> c_int = missing(errbuf, ERROR);
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

impl System {
    fn load() -> Self {
        let _cancelled_later = Uncancelled::new();
        // Our own copy of the standard library: this silences our panics, nobody else's.
        panic::set_hook(Box::new(|_| {}));
        let chosen = std::env::var_os("FANPCAP_LIBPCAP")
            .filter(|path| !path.is_empty() && !process::is_secure());
        Self::of(Library::find(chosen.as_deref().map(Path::new)))
    }

    /// Whether `address` lies in the system's library.
    pub(crate) fn holds(&self, address: *const c_void) -> bool {
        self.library
            .as_ref()
            .is_some_and(|library| library.holds(address))
    }

    /// Whether the call comes from the system's library itself, which the program has loaded on its
    /// own: then it gets what it would without us.
    pub(crate) fn is_calling(&self) -> bool {
        self.library.as_ref().is_some_and(Library::is_calling)
    }
}

/// The system's library, loaded at the first call. Threads that come first together load it each; no
/// lock is held meanwhile, as the loader has one of its own, under which constructors may call us. That it
/// could not be loaded may pass, such as a want of descriptors: the next call tries again.
pub(crate) fn system() -> &'static System {
    static SYSTEM: OnceLock<System> = OnceLock::new();
    static MISSING: OnceLock<System> = OnceLock::new();
    SYSTEM.get().unwrap_or_else(|| {
        let loaded = System::load();
        let place = match loaded.library {
            Some(_) => &SYSTEM,
            None => &MISSING,
        };
        place.get_or_init(|| loaded)
    })
}

/// Tells in `errbuf` why there is no such function, and returns `value`.
pub(crate) fn missing<T>(errbuf: Buffer, value: T) -> T {
    let text = match system().missing.as_str() {
        "" => "the system's libpcap lacks this function; fanpcap needs libpcap 1.10 or newer",
        text => text,
    };
    // SAFETY: libpcap's callers pass PCAP_ERRBUF_SIZE bytes, or null.
    unsafe { message::write(errbuf, text) };
    value
}
