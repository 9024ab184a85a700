//! A shared object that dlopen(3) has loaded. The object is never unloaded.

use crate::elf::{self, LinkMap};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null};

/// A function with the type of socket(2).
pub type SocketFunction = extern "C" fn(c_int, c_int, c_int) -> c_int;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedObject(NonNull<c_void>);

// SAFETY: the handle is only passed to dlsym, which any thread may call.
unsafe impl Send for SharedObject {}
// SAFETY: as above; no method changes the value.
unsafe impl Sync for SharedObject {}

impl SharedObject {
    /// Loads an object with `flags` (`RTLD_*`) and `RTLD_NODELETE`. If this fails, returns the
    /// loader's reason.
    pub(crate) fn open(name: &CStr, flags: c_int) -> Result<Self, String> {
        // SAFETY: `name` is a C string; the object's constructors are those of a libpcap.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags | libc::RTLD_NODELETE) };
        NonNull::new(handle).map(Self).ok_or_else(|| {
            // SAFETY: dlerror has no preconditions.
            let error = unsafe { libc::dlerror() };
            // SAFETY: the result is null, or a C string that stays until the thread's next dl call.
            unsafe { text(error) }
        })
    }

    pub(crate) fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is a loaded object's and `name` is a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// Makes the object's relocations point to the object's own definitions again
    /// ([`elf::rebind`]).
    pub(crate) fn rebind(self) {
        if let Some(map) = self.map() {
            // SAFETY: the object is loaded, and stays loaded because of RTLD_NODELETE.
            unsafe { elf::rebind(map) };
        }
    }

    /// Makes the object call `function` when it calls socket(2) ([`elf::redirect`]).
    pub(crate) fn redirect_socket(self, function: SocketFunction) {
        if let Some(map) = self.map() {
            // SAFETY: as above, and the function has the type of socket(2).
            unsafe { elf::redirect(map, c"socket", function as usize) };
        }
    }

    fn map(self) -> Option<*const LinkMap> {
        let mut map: *const LinkMap = null();
        let (request, target) = (libc::RTLD_DI_LINKMAP, (&raw mut map).cast());
        // SAFETY: RTLD_DI_LINKMAP stores the address of the object's link map in `map`.
        let rc = unsafe { libc::dlinfo(self.0.as_ptr(), request, target) };
        (rc == 0 && !map.is_null()).then_some(map)
    }
}

/// A copy of a C string; empty for null.
///
/// # Safety
/// `string` is null or a C string.
pub(crate) unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: the caller promises that `string` is a C string.
    unsafe { CStr::from_ptr(string) }
        .to_string_lossy()
        .into_owned()
}
