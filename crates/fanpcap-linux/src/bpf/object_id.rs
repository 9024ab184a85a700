//! BPF objects by the kernel's ids. Finds which objects a process holds, and whether an object
//! still exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use super::info::{self, MapInfo};
use super::{Attributes, bpf};
use crate::errno::owned;

/// The kernel's id of a BPF object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectId {
    /// A BPF program.
    Program(u32),
    /// A map.
    Map(u32),
    /// A link.
    Link(u32),
}

impl ObjectId {
    /// Returns the objects for which a process has descriptors, and the BPF programs of its links.
    /// The set is empty if the process has ended. If the process has mapped an object and then
    /// closed its descriptor, the object is missing.
    pub fn held_by(pid: u32) -> BTreeSet<Self> {
        let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"));
        let entries = entries.into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        texts.flat_map(|text| Self::parse(&text)).collect()
    }

    /// Returns the id of the map behind `fd`.
    ///
    /// # Errors
    /// `EINVAL` when `fd` is not a map.
    pub fn of_map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        info::of::<MapInfo>(fd).map(|map| Self::Map(map.id))
    }

    /// Finds the maps with values of `value_len` bytes for which a process has descriptors. Returns
    /// the kernel's id of each map, with one of the process's descriptors for the map. The result
    /// is empty if the process has ended.
    pub fn maps_of(pid: u32, value_len: u32) -> BTreeMap<u32, RawFd> {
        let entries = fs::read_dir(format!("/proc/{pid}/fdinfo"));
        let entries = entries.into_iter().flatten().flatten();
        let map = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).ok()?;
            let has_len = |line: &str| line == format!("value_size:\t{value_len}");
            let held = text.lines().any(has_len).then(|| Self::parse(&text))?;
            let id = held.into_iter().find_map(|object| match object {
                Self::Map(id) => Some(id),
                Self::Program(_) | Self::Link(_) => None,
            });
            Some((id?, entry.file_name().to_str()?.parse().ok()?))
        };
        entries.filter_map(map).collect()
    }

    /// Returns the objects that a file of /proc/PID/fdinfo names (kernel/bpf/syscall.c).
    fn parse(text: &str) -> BTreeSet<Self> {
        let object = |line: &str| {
            let (key, number) = line.split_once(":\t")?;
            let number = number.trim().parse().ok()?;
            match key {
                "prog_id" => Some(Self::Program(number)),
                "map_id" => Some(Self::Map(number)),
                "link_id" => Some(Self::Link(number)),
                _ => None,
            }
        };
        text.lines().filter_map(object).collect()
    }

    /// Whether the kernel still has the object. Needs `CAP_SYS_ADMIN`.
    ///
    /// This function does not open the object, because the object may be an array of BPF programs
    /// that is about to be freed. When a new descriptor of such an array is closed, the kernel can
    /// keep the array for ever: `prog_array_map_clear` (kernel/bpf/arraymap.c) takes a reference
    /// even if the work that clears the array is already pending.
    ///
    /// # Errors
    /// `EPERM` without the capability.
    pub fn exists(self) -> io::Result<bool> {
        let (command, id) = match self {
            Self::Program(id) => (BPF_PROG_GET_NEXT_ID, id),
            Self::Map(id) => (BPF_MAP_GET_NEXT_ID, id),
            Self::Link(id) => (BPF_LINK_GET_NEXT_ID, id),
        };
        let mut attr = GetNextId {
            start: id.saturating_sub(1),
            next: 0,
            flags: 0,
        };
        match bpf(command, &mut attr) {
            Ok(_) => Ok(attr.next == id),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Opens the BPF program with this id.
pub(super) fn open_program(id: u32) -> io::Result<OwnedFd> {
    let mut attr = GetNextId {
        start: id,
        next: 0,
        flags: 0,
    };
    owned(bpf(BPF_PROG_GET_FD_BY_ID, &mut attr)?)
}

// SAFETY: the part of union bpf_attr for BPF_*_GET_*_ID, without addresses.
unsafe impl Attributes for GetNextId {}

#[repr(C)]
struct GetNextId {
    start: u32,
    next: u32,
    flags: u32,
}

const BPF_PROG_GET_FD_BY_ID: libc::c_long = 13;
const BPF_PROG_GET_NEXT_ID: libc::c_long = 11;
const BPF_MAP_GET_NEXT_ID: libc::c_long = 12;
const BPF_LINK_GET_NEXT_ID: libc::c_long = 31;

#[cfg(test)]
mod tests {
    use super::super::{Hook, LoadedProgram, Map};
    use super::*;
    use fanpcap_bpf::{Instruction, MapKind, MapSpec, ProgramKind};
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    #[ignore = "needs root: eBPF, a network namespace"]
    fn objects_are_found_and_gone_with_their_last_descriptor() {
        let in_own_namespace = || {
            // SAFETY: takes plain numbers; the namespace is this thread's alone.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            let before = ObjectId::held_by(std::process::id());
            let code = [Instruction::set(0, 2), Instruction::exit()];
            let program = LoadedProgram::load(ProgramKind::Xdp, "mine", &code).unwrap();
            let map = MapSpec::new("mine", MapKind::Array, 4, 8, 1);
            let map = Map::create("mine", &map).unwrap();
            let lo = crate::interface::index("lo").unwrap();
            let link = program.attach(lo, Hook::Generic).unwrap();
            let maps = ObjectId::maps_of(std::process::id(), 8);
            assert!(maps.values().any(|fd| *fd == map.as_fd().as_raw_fd()));
            let mut held = ObjectId::held_by(std::process::id());
            held.retain(|it| !before.contains(it));
            assert!(held.contains(&ObjectId::Program(program.id().unwrap())));
            // Other tests of this process may have objects too.
            let kinds = |held: &BTreeSet<ObjectId>| {
                let has = |is_it: fn(&ObjectId) -> bool| held.iter().any(is_it);
                has(|it| matches!(it, ObjectId::Map(_)))
                    && has(|it| matches!(it, ObjectId::Link(_)))
            };
            assert!(kinds(&held));
            assert!(held.contains(&ObjectId::Program(link.program_id().unwrap())));
            let program_id = ObjectId::Program(program.id().unwrap());
            assert!(program_id.exists().unwrap());
            drop((program, map));
            // The link keeps the BPF program.
            assert!(program_id.exists().unwrap());
            drop(link);
            let is_gone = || {
                std::thread::sleep(std::time::Duration::from_millis(10));
                !program_id.exists().unwrap()
            };
            assert!((0..6000).any(|_| is_gone()));
        };
        std::thread::spawn(in_own_namespace).join().unwrap();
    }

    #[test]
    fn fdinfo_names_objects() {
        let link =
            "pos:\t0\nlink_type:\txdp\nlink_id:\t7\nprog_tag:\t3b\nprog_id:\t9\nifindex:\t2\n";
        let both = BTreeSet::from([ObjectId::Link(7), ObjectId::Program(9)]);
        assert_eq!(ObjectId::parse(link), both);
        assert!(ObjectId::parse("pos:\t0\nflags:\t02\nmnt_id:\t15\n").is_empty());
    }
}
