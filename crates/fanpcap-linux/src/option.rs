//! Socket options: getsockopt(2) and setsockopt(2).

use crate::errno::check;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Integers and arrays of integers: any bytes that the kernel writes are a valid value.
pub(crate) trait Plain: Copy + Default {}
impl Plain for c_int {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for [u32; 3] {}
impl Plain for [u64; 6] {}
impl Plain for [u64; 16] {}

pub(crate) fn get<T: Plain>(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut len = socklen::<T>();
    let target: *mut c_void = (&raw mut value).cast();
    // SAFETY: `target` points to `len` writable bytes, and any bytes are a valid `T` (`Plain`).
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, target, &raw mut len) };
    check(rc).map(|()| value)
}

/// Reads an option that is a list of any length.
pub(crate) fn get_list(fd: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<Vec<u32>> {
    let mut list = vec![0_u32; 32];
    loop {
        let bytes = list.len() * mem::size_of::<u32>();
        let mut len = libc::socklen_t::try_from(bytes).unwrap_or(0);
        let target: *mut c_void = list.as_mut_ptr().cast();
        // SAFETY: `target` points to `len` writable bytes, and any bytes are valid numbers.
        let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, target, &raw mut len) };
        let count = len as usize / mem::size_of::<u32>();
        match check(rc) {
            // The kernel has set `len` to the length that it needs.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && count > list.len() => {
                list.resize(count, 0);
            }
            result => {
                list.truncate(count);
                return result.map(|()| list);
            }
        }
    }
}

pub(crate) fn set<T>(fd: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let source: *const c_void = (&raw const *value).cast();
    // SAFETY: `source` points to `size_of::<T>()` readable bytes for the length of the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, source, socklen::<T>()) })
}

pub(crate) fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(mem::size_of::<T>()).unwrap_or(libc::socklen_t::MAX)
}
