//! The sysfs of the calling thread's network namespace. `/sys` shows the devices of the namespace
//! in which `/sys` was mounted. That namespace may be another one, with devices of the same names.

use crate::errno::owned;
use crate::netlink::link;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr;

/// A device's directory in sysfs, `/sys/class/net/DEV`.
#[derive(Debug)]
pub struct DeviceDirectory {
    /// The root of a mount of sysfs that has no place in the file system; `None` if `/sys` is used.
    mount: Option<OwnedFd>,
    name: String,
}

impl DeviceDirectory {
    /// Opens the directory of the device with this index and name.
    ///
    /// # Errors
    /// `ENODEV` when sysfs is missing, or shows another network namespace.
    pub fn open(ifindex: u32, name: &str) -> io::Result<Self> {
        let found = Self {
            // Needs CAP_SYS_ADMIN and Linux 5.2.
            mount: mount().ok(),
            name: name.to_owned(),
        };
        match found.is_of(ifindex) {
            true => Ok(found),
            false => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    /// Returns the directory's path. The path is valid only in this process, and as long as `self`
    /// lives.
    pub fn path(&self) -> PathBuf {
        let root = match &self.mount {
            Some(mount) => format!("/proc/self/fd/{}", mount.as_raw_fd()),
            None => "/sys".to_owned(),
        };
        format!("{root}/class/net/{}", self.name).into()
    }

    /// Whether the directory is that of the device with this index. If `/sys` is used, the hardware
    /// address must also be the same, because devices of two namespaces may have the same index.
    fn is_of(&self, ifindex: u32) -> bool {
        let read = |name| fs::read_to_string(self.path().join(name)).unwrap_or_default();
        let has_index = read("ifindex").trim().parse() == Ok(ifindex);
        let address = || link::get(ifindex).map(|link| link.address);
        has_index
            && (self.mount.is_some() || address().is_ok_and(|it| it == read("address").trim()))
    }
}

/// Mounts the sysfs of the calling thread's network namespace, without a place in the file system.
fn mount() -> io::Result<OwnedFd> {
    let (name, flags) = (c"sysfs".as_ptr(), FSOPEN_CLOEXEC);
    // SAFETY: the name is a C string.
    let context = narrow(unsafe { libc::syscall(libc::SYS_fsopen, name, flags) })?;
    let (fd, none) = (context.as_raw_fd(), ptr::null::<u8>());
    // SAFETY: this command of fsconfig(2) needs no key and no value.
    let made = unsafe { libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, none, none, 0) };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fsmount(2) takes plain numbers.
    narrow(unsafe { libc::syscall(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, MOUNT_ATTR) })
}

fn narrow(fd: libc::c_long) -> io::Result<OwnedFd> {
    owned(libc::c_int::try_from(fd).unwrap_or(-1))
}

const FSOPEN_CLOEXEC: libc::c_int = 1;
const FSCONFIG_CMD_CREATE: libc::c_int = 6;
const FSMOUNT_CLOEXEC: libc::c_int = 1;
/// `MOUNT_ATTR_NOSUID`, `MOUNT_ATTR_NODEV` and `MOUNT_ATTR_NOEXEC`.
const MOUNT_ATTR: libc::c_int = 0xe;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::netns;

    #[test]
    fn the_directory_of_the_loopback_device_is_found() {
        let index = crate::interface::index("lo").unwrap();
        let found = DeviceDirectory::open(index, "lo").unwrap();
        let mtu = fs::read_to_string(found.path().join("mtu")).unwrap();
        let expected = link::get(index).unwrap().mtu;
        assert_eq!(mtu.trim().parse(), Ok(expected));
        for (index, name) in [(index + 7000, "lo"), (index, "nonesuch")] {
            let none = DeviceDirectory::open(index, name).unwrap_err();
            assert_eq!(none.raw_os_error(), Some(libc::ENODEV));
        }
    }

    #[test]
    #[ignore = "needs root: a network namespace"]
    fn a_new_namespace_has_a_sysfs_of_its_own() {
        let outside = fs::read_dir("/sys/class/net").unwrap().count();
        std::thread::spawn(move || {
            netns::enter_new().unwrap();
            let found = DeviceDirectory::open(1, "lo").unwrap();
            let devices = found.path().join("..");
            assert!(fs::read_dir(&devices).unwrap().count() <= outside);
            // The device `lo` is down in the test's namespace, and up outside.
            let flags = fs::read_to_string(found.path().join("flags")).unwrap();
            assert_eq!(flags.trim(), "0x8");
        })
        .join()
        .unwrap();
    }
}
