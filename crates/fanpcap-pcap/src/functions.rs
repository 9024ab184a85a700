//! The functions of libpcap that are called, with their types, and the structs that they fill.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

/// `pcap_t`.
#[repr(C)]
pub(crate) struct Pcap {
    _opaque: [u8; 0],
}

/// `struct pcap_pkthdr` of a 64-bit system.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// When it was captured: seconds since 1970.
    pub seconds: i64,
    /// Microseconds or nanoseconds of that, by the handle's [`Precision`](crate::Precision).
    pub fraction: i64,
    /// Bytes captured.
    pub caplen: u32,
    /// Bytes on the wire.
    pub len: u32,
}

/// `struct pcap_stat`: counters since activation, which wrap.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets that passed the filter, dropped ones included.
    pub received: u32,
    /// Of these, lost because the ring was full.
    pub dropped: u32,
    /// What the device dropped, for whomever.
    pub interface_dropped: u32,
}

/// `struct bpf_program`.
#[repr(C)]
pub(crate) struct Program {
    pub(crate) len: c_uint,
    pub(crate) instructions: *mut c_void,
}

/// `struct pcap_fanout_stat` of `pcap/fanout.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FanoutStat {
    pub(crate) size: usize,
    pub(crate) valid: u32,
    pub(crate) group: i32,
    pub(crate) received: u64,
    pub(crate) dropped: u64,
    pub(crate) members: u64,
    pub(crate) group_received: u64,
    pub(crate) group_dropped: u64,
    pub(crate) group_age_ns: u64,
}

/// What pcap_fanout_stats(3PCAP) knows of a member and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanoutStats {
    /// The group's number.
    pub group: i32,
    /// Packets for this member since it joined, dropped ones included.
    pub received: Option<u64>,
    /// Of these, lost because its ring was full.
    pub dropped: Option<u64>,
    /// Sockets in the group, of all processes.
    pub members: Option<u64>,
    /// Sum of `received` over the members.
    pub group_received: Option<u64>,
    /// Sum of `dropped` over the members.
    pub group_dropped: Option<u64>,
    /// Age of the oldest counters in these sums, nanoseconds.
    pub group_age_ns: u64,
}

impl From<FanoutStat> for FanoutStats {
    fn from(stat: FanoutStat) -> Self {
        let known = |bit: u32, value: u64| (stat.valid & bit != 0).then_some(value);
        Self {
            group: stat.group,
            received: known(0x01, stat.received),
            dropped: known(0x02, stat.dropped),
            members: known(0x04, stat.members),
            group_received: known(0x08, stat.group_received),
            group_dropped: known(0x10, stat.group_dropped),
            group_age_ns: stat.group_age_ns,
        }
    }
}

/// `pcap_handler`.
pub(crate) type Callback = unsafe extern "C-unwind" fn(*mut u8, *const Header, *const u8);

type Text = *const c_char;
type Buffer = *mut c_char;
type Handle = *mut Pcap;

/// A table of functions, each looked up once by its name.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $(fn $name:ident($($a:ident: $t:ty),*) $(-> $r:ty)?;)* } $(and $more:ident: $of:ty)?) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C-unwind" fn($($a: $t),*) $(-> $r)?,)*
            $(pub(crate) $more: Option<$of>,)?
        }

        impl $table {
            /// Finds them all, or says which is not there.
            pub(crate) fn find(
                symbol: impl Fn(&CStr) -> Option<NonNull<c_void>>,
            ) -> Result<Self, &'static str> {
                let find = |name: &'static str| {
                    let symbol = CStr::from_bytes_with_nul(name.as_bytes()).ok().and_then(&symbol);
                    symbol.ok_or(name.trim_end_matches('\0'))
                };
                Ok(Self {
                    $($name: {
                        let address = find(concat!(stringify!($name), "\0"))?;
                        // SAFETY: libpcap's function of this name has this type.
                        unsafe { std::mem::transmute::<NonNull<c_void>, unsafe extern "C-unwind" fn($($t),*) $(-> $r)?>(address) }
                    },)*
                    $($more: <$of>::find(&symbol).ok(),)?
                })
            }
        }
    };
}

functions! {
    /// What every libpcap has since 1.5.
    Functions {
        fn pcap_lib_version() -> Text;
        fn pcap_datalink_val_to_name(datalink: c_int) -> Text;
        fn pcap_statustostr(status: c_int) -> Text;
        fn pcap_geterr(p: Handle) -> Buffer;
        fn pcap_create(device: Text, errbuf: Buffer) -> Handle;
        fn pcap_open_dead(linktype: c_int, snaplen: c_int) -> Handle;
        fn pcap_open_offline_with_tstamp_precision(file: Text, precision: c_uint, errbuf: Buffer) -> Handle;
        fn pcap_set_snaplen(p: Handle, snaplen: c_int) -> c_int;
        fn pcap_set_promisc(p: Handle, promisc: c_int) -> c_int;
        fn pcap_set_timeout(p: Handle, milliseconds: c_int) -> c_int;
        fn pcap_set_buffer_size(p: Handle, bytes: c_int) -> c_int;
        fn pcap_set_immediate_mode(p: Handle, immediate: c_int) -> c_int;
        fn pcap_set_tstamp_precision(p: Handle, precision: c_int) -> c_int;
        fn pcap_get_tstamp_precision(p: Handle) -> c_int;
        fn pcap_activate(p: Handle) -> c_int;
        fn pcap_close(p: Handle);
        fn pcap_setnonblock(p: Handle, nonblock: c_int, errbuf: Buffer) -> c_int;
        fn pcap_compile(p: Handle, program: *mut Program, text: Text, optimize: c_int, netmask: c_uint) -> c_int;
        fn pcap_setfilter(p: Handle, program: *mut Program) -> c_int;
        fn pcap_freecode(program: *mut Program);
        fn pcap_fileno(p: Handle) -> c_int;
        fn pcap_dispatch(p: Handle, count: c_int, callback: Callback, user: *mut u8) -> c_int;
        fn pcap_breakloop(p: Handle);
        fn pcap_stats(p: Handle, stats: *mut Stats) -> c_int;
        fn pcap_datalink(p: Handle) -> c_int;
        fn pcap_snapshot(p: Handle) -> c_int;
    }
    and fanout: Fanout
}

functions! {
    /// What `pcap/fanout.h` adds.
    Fanout {
        fn pcap_fanout(p: Handle, group: c_int, fanout: Text) -> c_int;
        fn pcap_fanout_group(p: Handle) -> c_int;
        fn pcap_fanout_stats(p: Handle, stat: *mut FanoutStat) -> c_int;
    }
}
