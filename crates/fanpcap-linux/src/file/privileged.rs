//! Executable files that run with more privileges than their user has.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::ptr;

/// Whether the loader ignores environment variables such as `LD_LIBRARY_PATH` for this executable:
/// the file is set-user-ID or set-group-ID, or has file capabilities (ld.so(8), secure-execution
/// mode).
///
/// # Errors
/// The error of stat(2).
pub fn is_privileged(path: &Path) -> io::Result<bool> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & SET_ID != 0 {
        return Ok(true);
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = c"security.capability";
    // SAFETY: both are C strings. Without a buffer, the call only returns the attribute's length.
    let len = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), ptr::null_mut(), 0) };
    Ok(len > 0)
}

const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::fs::Permissions;

    #[test]
    fn set_user_id_is_seen() {
        let path = env::temp_dir().join(format!("fanpcap-privileged-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        let told = [0o755, 0o4755].map(|mode| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            is_privileged(&path).unwrap()
        });
        fs::remove_file(&path).unwrap();
        assert_eq!(told, [false, true]);
        assert!(is_privileged(&path).is_err());
    }
}
