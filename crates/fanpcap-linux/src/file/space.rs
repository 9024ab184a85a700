//! Space on a file system.

use crate::errno::check;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes that this process may still write to the file system of `path` (statvfs(3)). Follows
/// links. Without privileges it may not use the blocks that are reserved for root.
///
/// # Errors
/// The error of statvfs(3).
pub fn available(path: &Path) -> io::Result<u64> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut about = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the path is a C string, and the target has the size of what the call writes.
    check(unsafe { libc::statvfs(path.as_ptr(), about.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so it has written the whole struct.
    let about = unsafe { about.assume_init() };
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_has_space_and_what_is_not_there_has_none() {
        assert!(available(Path::new("/")).is_ok());
        let absent = available(Path::new("/absent/file")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
