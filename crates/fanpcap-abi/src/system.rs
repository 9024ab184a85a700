//! The system's libpcap, and the entry points that only jump to it.

use crate::errbuf;
use fanpcap_bpf::Classic;
use fanpcap_linux::process::{self, signal::Uncancelled};
use fanpcap_pcap::functions::{Buffer, Handle, Opaque, Symbols, Text};
use fanpcap_pcap::{System, for_each_function};
use std::ffi::{c_int, c_long, c_uint};
use std::panic;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;

pub use fanpcap_pcap::{BpfProgram, Callback, Header, Pcap, Stats};

/// `PCAP_ERROR_NOT_ACTIVATED`.
pub(crate) const NOT_ACTIVATED: c_int = -3;
/// `PCAP_ERROR`.
pub(crate) const ERROR: c_int = -1;

/// Finds, in the table of the system's library, a function that sets a number of a handle.
pub(crate) type Setter =
    fn(&Symbols) -> Option<unsafe extern "C-unwind" fn(*mut Pcap, c_int) -> c_int>;

/// Declares the entry points that jump to the system's function.
macro_rules! entry_points {
    (own { $($own:tt)* } each { $($each:tt)* }
     forward { $(fn $name:ident($($a:ident: $t:ty),*) $(-> $r:ty)? = $default:expr;)* }) => {
        $(
            #[doc = concat!("See ", stringify!($name), "(3PCAP).")]
            ///
            /// # Safety
            /// As the man page requires.
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

for_each_function!(entry_points);

fn load() -> System {
    let _cancelled_later = Uncancelled::new();
    // This library has its own copy of Rust's standard library, so the hook silences only our own
    // panics.
    panic::set_hook(Box::new(|_| {}));
    let chosen = std::env::var_os("FANPCAP_LIBPCAP")
        .filter(|path| !path.is_empty() && !process::is_secure());
    System::find(chosen.as_deref().map(Path::new))
}

/// The system's library, loaded at the first call. Threads that call at the same time may each load
/// it. This function holds no lock of ours while it loads: the loader has its own lock, and
/// constructors that run under that lock may call us. If loading fails, for example for lack of
/// descriptors, the next call tries again.
pub(crate) fn system() -> &'static System {
    static SYSTEM: OnceLock<System> = OnceLock::new();
    static MISSING: OnceLock<System> = OnceLock::new();
    SYSTEM.get().unwrap_or_else(|| {
        let loaded = load();
        let place = if loaded.is_loaded() {
            &SYSTEM
        } else {
            &MISSING
        };
        place.get_or_init(|| loaded)
    })
}

/// The snapshot length of a compiled filter, in bytes.
const SNAPLEN: c_int = 262_144;

/// Compiles a filter expression of a steering program.
///
/// # Errors
/// The error of the system's library.
pub(crate) fn compile(expression: &str) -> Result<Vec<Classic>, String> {
    system().compile(expression, SNAPLEN)
}

/// Writes to `errbuf` that a function is missing, and returns `value`.
pub(crate) fn missing<T>(errbuf: Buffer, value: T) -> T {
    // SAFETY: libpcap's callers pass PCAP_ERRBUF_SIZE bytes, or null.
    unsafe { errbuf::write(errbuf, system().missing()) };
    value
}
