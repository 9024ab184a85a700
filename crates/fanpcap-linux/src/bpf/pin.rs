//! Pins: names of BPF objects in a BPF file system. A pin keeps its object even if no process has
//! the object open.

use super::{Attributes, bpf};
use crate::errno::owned;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Gives a map, BPF program or link a name in a BPF file system. The object lives until the name is
/// removed, even if no process has the object open.
///
/// # Errors
/// `EEXIST` when the name exists; `EPERM` outside a BPF file system or without `CAP_BPF`.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = Named::new(&path, object.as_raw_fd().unsigned_abs());
    bpf(BPF_OBJ_PIN, &mut attr).map(drop)
}

/// Opens the map, BPF program or link with this name.
///
/// # Errors
/// `ENOENT` when no object has this name; `EACCES` when the path is not in a BPF file system.
pub fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut attr = Named::new(&path, 0);
    owned(bpf(BPF_OBJ_GET, &mut attr)?)
}

// SAFETY: the part of union bpf_attr for BPF_OBJ_*. The address is that of a C string, which the
// callers keep through the call.
unsafe impl Attributes for Named {}

#[repr(C)]
struct Named {
    path: u64,
    object: u32,
    flags: u32,
}

impl Named {
    fn new(path: &CString, object: u32) -> Self {
        Self {
            path: path.as_ptr().expose_provenance() as u64,
            object,
            flags: 0,
        }
    }
}

const BPF_OBJ_PIN: libc::c_long = 6;
const BPF_OBJ_GET: libc::c_long = 7;

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::Table;
    use super::*;
    use crate::file::bpf_fs;

    #[test]
    #[ignore = "needs root: a BPF file system"]
    fn a_pinned_map_outlives_its_descriptors() {
        let name = format!("fanpcap-pin.{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        std::fs::create_dir(&place).unwrap();
        let table = Table::create_rows("kept", 8, 1).unwrap();
        let path = place.join("kept");
        pin(table.as_fd(), &path).unwrap_err();
        bpf_fs::mount(&place).unwrap();
        pin(table.as_fd(), &path).unwrap();
        let again = pin(table.as_fd(), &path).unwrap_err();
        assert_eq!(again.raw_os_error(), Some(libc::EEXIST));
        table.words(0, 1).unwrap()[0].store(7, std::sync::atomic::Ordering::Relaxed);
        drop(table);
        let table = Table::open_rows(open_pinned(&path).unwrap(), 8).unwrap();
        let word = table.words(0, 1).unwrap()[0].load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(word, 7);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            open_pinned(&path).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        bpf_fs::unmount(&place).unwrap();
        std::fs::remove_dir(&place).unwrap();
    }
}
