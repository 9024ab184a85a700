//! Changes which functions a loaded libpcap calls.

use crate::elf::{self, LinkMap};
use fanpcap_linux::object::SharedObject;
use std::ffi::c_int;
use std::ptr::null;

/// A function with the type of socket(2).
pub type SocketFunction = extern "C" fn(c_int, c_int, c_int) -> c_int;

/// Makes the object's relocations point to the object's own definitions again ([`elf::rebind`]).
pub(crate) fn rebind(object: SharedObject) {
    if let Some(map) = map(object) {
        // SAFETY: the object is loaded, and is never unloaded.
        unsafe { elf::rebind(map) };
    }
}

/// Makes the object call `function` when it calls socket(2) ([`elf::redirect`]).
pub(crate) fn redirect_socket(object: SharedObject, function: SocketFunction) {
    if let Some(map) = map(object) {
        // SAFETY: as above, and the function has the type of socket(2).
        unsafe { elf::redirect(map, c"socket", function as usize) };
    }
}

fn map(object: SharedObject) -> Option<*const LinkMap> {
    let mut map: *const LinkMap = null();
    let (request, target) = (libc::RTLD_DI_LINKMAP, (&raw mut map).cast());
    // SAFETY: RTLD_DI_LINKMAP stores the address of the object's link map in `map`.
    let rc = unsafe { libc::dlinfo(object.handle().as_ptr(), request, target) };
    (rc == 0 && !map.is_null()).then_some(map)
}
