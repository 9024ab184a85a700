//! BPF file systems, in which BPF objects have names (mount(2), `bpf`).

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::errno::check;

/// Mounts a new BPF file system on a directory. Only root can enter it.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `ENODEV` if the kernel lacks BPF file systems, and other errors
/// of mount(2).
pub fn mount(directory: &Path) -> io::Result<()> {
    let place = CString::new(directory.as_os_str().as_bytes())?;
    let (name, kind, options) = (c"fanpcap", c"bpf", c"mode=0700");
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    let data = options.as_ptr().cast();
    // SAFETY: all arguments are C strings that live through the call.
    check(unsafe { libc::mount(name.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, data) })
}

/// Unmounts the file system that is mounted on a directory. The kernel removes the file system's
/// names as soon as no process has one of its directories open.
///
/// # Errors
/// `EINVAL` when no file system is mounted on the directory.
pub fn unmount(directory: &Path) -> io::Result<()> {
    let place = CString::new(directory.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | libc::MNT_DETACH;
    // SAFETY: the path is a C string that lives through the call.
    check(unsafe { libc::umount2(place.as_ptr(), flags) })
}

/// Whether a directory is on a BPF file system.
///
/// # Errors
/// The errors of open(2) and fstatfs(2).
pub fn is_bpf(directory: &Path) -> io::Result<bool> {
    let place = File::open(directory)?;
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the target is as large as the struct that the call writes.
    check(unsafe { libc::fstatfs(place.as_raw_fd(), about.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so it has written the whole struct.
    let about = unsafe { about.assume_init() };
    Ok(about.f_type == BPF_FS_MAGIC)
}

/// linux/magic.h.
const BPF_FS_MAGIC: libc::__fsword_t = 0xcafe_4a11;
