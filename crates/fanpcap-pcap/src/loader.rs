//! Finds the system's libpcap and loads it beside ours.
//!
//! The library is opened with RTLD_LAZY | RTLD_LOCAL. Then its relocations are changed so that it
//! calls its own functions, not ours of the same names (`elf.rs`). RTLD_DEEPBIND would have the
//! same effect, but would break applications that use sanitizers or replace malloc. A separate
//! namespace (dlmopen) would load a second libc.

use crate::ldcache;
use crate::object::{self, SocketFunction};
use fanpcap_linux::object::SharedObject;
use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Debian's name for libpcap, then the name in other distributions.
const NAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];

#[cfg(target_arch = "x86_64")]
const DIRECTORIES: [&str; 3] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"];
#[cfg(target_arch = "aarch64")]
const DIRECTORIES: [&str; 3] = ["/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const DIRECTORIES: [&str; 2] = ["/usr/lib64", "/usr/lib"];

/// A function that only our library exports.
const OURS: &CStr = c"pcap_fanout_group";

/// A loaded libpcap that is not ours. It is never unloaded.
#[derive(Debug)]
pub(crate) struct SystemLibrary {
    object: SharedObject,
    preloaded: bool,
}

/// The error if no libpcap could be loaded: every path that was tried, with the loader's reason.
#[derive(Debug, Default)]
pub(crate) struct NotFound {
    tried: Vec<(PathBuf, String)>,
}

impl SystemLibrary {
    /// Loads the first candidate that is a libpcap; see [`crate::System::find`].
    ///
    /// # Errors
    /// The error names every path that was tried.
    pub(crate) fn find(chosen: Option<&Path>) -> Result<Self, NotFound> {
        let mut failed = NotFound::default();
        if let Some(path) = chosen {
            match Self::open(path) {
                Ok(library) => return Ok(library),
                Err(Refused::IsOurs) => failed.add(path, Refused::IsOurs),
                Err(reason) => {
                    failed.add(path, reason);
                    return Err(failed);
                }
            }
        }
        let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
        for path in candidates(&cache) {
            match Self::open(&path) {
                Ok(library) => return Ok(library),
                Err(reason) => failed.add(&path, reason),
            }
        }
        Err(failed)
    }

    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        self.object.symbol(name)
    }

    /// Whether the call of our function that is running now came from this library. This happens
    /// only if the application had loaded this library before ours.
    pub(crate) fn is_calling(&self) -> bool {
        let own = self.symbol(c"pcap_create").filter(|_| self.preloaded);
        own.is_some_and(|own| caller() == object_of(own.as_ptr()))
    }

    /// Whether `address`, for example of a function, lies in this library.
    pub(crate) fn holds(&self, address: *const c_void) -> bool {
        let own = self.symbol(c"pcap_create");
        own.is_some_and(|own| object_of(address) == object_of(own.as_ptr()))
    }

    /// Makes this library call `function` in the place of socket(2).
    pub(crate) fn redirect_socket(&self, function: SocketFunction) {
        object::redirect_socket(self.object, function);
    }

    fn open(path: &Path) -> Result<Self, Refused> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Refused::Missing)?;
        if !path.exists() {
            return Err(Refused::Missing);
        }
        let preloaded = is_loaded(&name);
        // SAFETY: the object's constructors are those of a libpcap.
        let object = unsafe { SharedObject::load(&name, libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        let object = object.map_err(Refused::Loader)?;
        let library = Self { object, preloaded };
        if library.symbol(OURS).is_some() {
            return Err(Refused::IsOurs);
        }
        if library.symbol(c"pcap_create").is_none() {
            return Err(Refused::NotLibpcap);
        }
        object::rebind(object);
        Ok(library)
    }
}

/// The reason why a path is not the system's libpcap.
enum Refused {
    Missing,
    IsOurs,
    NotLibpcap,
    Loader(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("no such file"),
            Self::IsOurs => f.write_str("is fanpcap itself"),
            Self::NotLibpcap => f.write_str("is no libpcap"),
            Self::Loader(reason) => f.write_str(reason),
        }
    }
}

impl NotFound {
    fn add(&mut self, path: &Path, reason: Refused) {
        self.tried.push((path.to_owned(), reason.to_string()));
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fanpcap needs the system's libpcap; set FANPCAP_LIBPCAP. Tried: ")?;
        for (index, (path, reason)) in self.tried.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let path = path.display().to_string();
            // The text of dlerror begins with the path, which is printed already.
            let reason = reason.strip_prefix(&path).unwrap_or(reason);
            write!(f, "{comma}{path} ({})", reason.trim_start_matches(": "))?;
        }
        Ok(())
    }
}

fn candidates(cache: &[u8]) -> Vec<PathBuf> {
    let fixed = DIRECTORIES.iter().flat_map(|directory| {
        NAMES
            .iter()
            .map(move |name| Path::new(directory).join(name))
    });
    let mut paths: Vec<PathBuf> = fixed.filter(|path| path.exists()).collect();
    let cached = NAMES.iter().flat_map(|name| ldcache::paths(cache, name));
    paths.extend(cached.map(PathBuf::from));
    if paths.is_empty() {
        // If none of these files exists, adds one path nevertheless, so that the error names it.
        paths.push(Path::new(DIRECTORIES[0]).join(NAMES[0]));
    }
    paths
}

fn is_loaded(name: &CStr) -> bool {
    // SAFETY: `name` is a C string. RTLD_NOLOAD loads nothing.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    !handle.is_null()
}

/// The load address of the object that holds `address`; 0 if no object holds `address`.
fn object_of(address: *const c_void) -> usize {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: dladdr takes any address and fills `info`, which is live.
    unsafe { libc::dladdr(address, &raw mut info) };
    info.dli_fbase as usize
}

unsafe extern "C" {
    // These functions are in libgcc_s, which the standard library needs anyway (Itanium C++ ABI,
    // level I).
    safe fn _Unwind_Backtrace(
        step: extern "C" fn(*mut c_void, &mut Walk) -> c_int,
        walk: &mut Walk,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

/// A walk up the stack until it leaves our own object.
#[repr(C)]
struct Walk {
    own: usize,
    caller: usize,
}

/// The load address of the object whose code called into ours.
fn caller() -> usize {
    let own = object_of(step as *const c_void);
    let mut walk = Walk { own, caller: 0 };
    _Unwind_Backtrace(step, &mut walk);
    walk.caller
}

extern "C" fn step(context: *mut c_void, walk: &mut Walk) -> c_int {
    const CONTINUE: c_int = 0;
    const STOP: c_int = 5; // _URC_END_OF_STACK
    // SAFETY: the unwinder passes its own context.
    let address = unsafe { _Unwind_GetIP(context) };
    let object = object_of(address as *const c_void);
    if object == walk.own {
        return CONTINUE;
    }
    walk.caller = object;
    STOP
}
