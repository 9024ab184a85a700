//! The kernel's description of the BPF object behind a descriptor (`BPF_OBJ_GET_INFO_BY_FD`, since
//! Linux 4.13).

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Attributes, bpf};

/// A description of a BPF object.
///
/// # Safety
/// The struct is `repr(C)`, has only integers and no hidden padding, and is the beginning of one of
/// the kernel's structs for this command. In the struct's default value, all addresses are 0.
pub(super) unsafe trait Described: Default {}

pub(super) fn of<T: Described>(fd: BorrowedFd<'_>) -> io::Result<T> {
    let mut described = T::default();
    let mut attr = Info {
        fd: fd.as_raw_fd().unsigned_abs(),
        len: u32::try_from(size_of::<T>()).unwrap_or(0),
        info: (&raw mut described).expose_provenance() as u64,
    };
    bpf(BPF_OBJ_GET_INFO_BY_FD, &mut attr)?;
    Ok(described)
}

/// Kind, sizes and flags of a map, in the kernel's numbers (linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// `BPF_MAP_TYPE_*`.
    pub(super) kind: u32,
    pub(super) key_len: u32,
    pub(super) value_len: u32,
    pub(super) entries: u32,
    /// The `BPF_F_*` flags with which the map was created.
    pub(super) flags: u32,
}

impl Shape {
    pub(super) const fn new(
        kind: u32,
        (key_len, value_len): (u32, u32),
        entries: u32,
        flags: u32,
    ) -> Self {
        Self {
            kind,
            key_len,
            value_len,
            entries,
            flags,
        }
    }

    /// Returns the shape of the map behind `fd`, which may come from another process. Needs no
    /// capability.
    ///
    /// # Errors
    /// `EINVAL` when `fd` is not a BPF object.
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let map: MapInfo = match of(fd) {
            // Before Linux 5.19 the kernel refuses this command if kernel.unprivileged_bpf_disabled
            // is set.
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Self::from_proc(fd),
            map => map?,
        };
        let lens = (map.key_len, map.value_len);
        Ok(Self::new(map.kind, lens, map.entries, map.flags))
    }

    /// Reads the shape from /proc (kernel/bpf/syscall.c, `bpf_map_show_fdinfo`).
    fn from_proc(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd()))?;
        let no_map = || io::Error::from_raw_os_error(libc::EINVAL);
        Self::parse(&text).ok_or_else(no_map)
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines.find(|(key, _)| *key == name).map(|(_, it)| it.trim())
        };
        let number = |name: &str| value(name)?.parse().ok();
        Some(Self {
            kind: number("map_type")?,
            key_len: number("key_size")?,
            value_len: number("value_size")?,
            entries: number("max_entries")?,
            flags: u32::from_str_radix(value("map_flags")?.strip_prefix("0x")?, 16).ok()?,
        })
    }

    /// Ensures that the map behind `fd` has this shape.
    ///
    /// # Errors
    /// `InvalidData` if the shapes differ, with a message that names both; the errors of
    /// [`Shape::of`].
    pub(super) fn verify(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let found = Self::of(fd)?;
        if found == *self {
            return Ok(());
        }
        let text = format!("the map is {found}, not {self}");
        Err(io::Error::new(io::ErrorKind::InvalidData, text))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            key_len,
            value_len,
            entries,
            flags,
        } = self;
        write!(
            f,
            "of type {kind} with {entries} values of {value_len} bytes, keys of {key_len} bytes, flags {flags:#x}"
        )
    }
}

// SAFETY: `info` of union bpf_attr. The kernel writes only to the struct at the address, and at
// most `len` bytes, which is the struct's size. `Described` guarantees that the struct's own
// addresses are valid.
unsafe impl Attributes for Info {}
// SAFETY: the beginning of struct bpf_map_info, which has no addresses.
unsafe impl Described for MapInfo {}

#[repr(C)]
struct Info {
    fd: u32,
    len: u32,
    info: u64,
}

/// The part of struct bpf_map_info that is used here.
#[repr(C)]
#[derive(Default)]
pub(super) struct MapInfo {
    kind: u32,
    pub(super) id: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
    flags: u32,
}

const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;

#[cfg(test)]
mod tests {
    use super::super::map;
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn proc_says_the_same_as_the_command() {
        for (kind, key_len, flags) in [(2, 4, 0), (2, 4, map::BPF_F_MMAPABLE), (9, 12, 0)] {
            let shape = Shape {
                kind,
                key_len,
                value_len: 40,
                entries: 3,
                flags,
            };
            let fd = map::create("map", &shape).unwrap();
            assert_eq!(Shape::of(fd.as_fd()).unwrap(), shape);
            assert_eq!(Shape::from_proc(fd.as_fd()).unwrap(), shape);
        }
    }

    #[test]
    fn what_is_no_map_has_no_shape() {
        let file = fs::File::open("/dev/null").unwrap();
        for shape in [Shape::of(file.as_fd()), Shape::from_proc(file.as_fd())] {
            assert_eq!(shape.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
        let whole =
            "map_type:\t2\nkey_size:\t4\nvalue_size:\t8\nmax_entries:\t1\nmap_flags:\t0x0\n";
        assert!(Shape::parse(whole).is_some());
        for line in whole.lines() {
            assert_eq!(Shape::parse(&whole.replace(line, "")), None, "{line}");
        }
    }
}
