//! Shared objects that dlopen(3) has loaded. An object is never unloaded.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

/// A loaded object.
#[derive(Clone, Copy, Debug)]
pub struct SharedObject(NonNull<c_void>);

// SAFETY: the handle is only passed to functions that any thread may call (dlsym, dlinfo).
unsafe impl Send for SharedObject {}
// SAFETY: as above; no method changes the value.
unsafe impl Sync for SharedObject {}

impl SharedObject {
    /// Loads an object with `flags` (`RTLD_*`) and `RTLD_NODELETE`.
    ///
    /// # Errors
    /// The loader's reason.
    ///
    /// # Safety
    /// The object's constructors may run in this process.
    pub unsafe fn load(name: &CStr, flags: c_int) -> Result<Self, String> {
        // SAFETY: `name` is a C string. The caller promises the rest.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags | libc::RTLD_NODELETE) };
        NonNull::new(handle).map(Self).ok_or_else(|| {
            // SAFETY: dlerror has no preconditions.
            let error = unsafe { libc::dlerror() };
            // SAFETY: the result is null, or a C string that stays until the thread's next dl call.
            unsafe { text(error) }
        })
    }

    /// The address of a symbol of the object, or of an object that it needs.
    pub fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is a loaded object's and `name` is a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// The handle, for dlinfo(3).
    pub fn handle(self) -> NonNull<c_void> {
        self.0
    }
}

/// A copy of a C string; empty for null.
///
/// # Safety
/// `string` is null or a C string.
pub unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: the caller promises that `string` is a C string.
    unsafe { CStr::from_ptr(string) }
        .to_string_lossy()
        .into_owned()
}
