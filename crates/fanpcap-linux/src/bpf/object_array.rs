//! Maps whose values are other objects: ring buffers, arrays, BPF programs for tail calls, and
//! AF_XDP sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use fanpcap_bpf::MapKind;

use super::info::Shape;
use super::map::{self, BPF_MAP_UPDATE_BATCH, MapBatch, MapElement};
use super::shared_array::SharedArray;
use super::{bpf, len, number};

/// An array of maps ([`MapKind::MapArray`]), of BPF programs ([`MapKind::ProgArray`]), or of AF_XDP
/// sockets ([`MapKind::SocketArray`]).
/// Since Linux 5.19, changes to the array need no capability. On earlier kernels, changes need
/// `CAP_BPF` if kernel.unprivileged_bpf_disabled is set.
#[derive(Debug)]
pub struct ObjectArray {
    fd: OwnedFd,
    kind: MapKind,
}

impl ObjectArray {
    /// Creates an empty array of ring buffers, of BPF programs, or of AF_XDP sockets.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`; `InvalidInput` when `kind` is not one of the kinds above.
    pub fn create(name: &str, kind: MapKind, entries: u32) -> io::Result<Self> {
        let fd = match kind {
            MapKind::MapArray => map::create_array_of_rings(name, entries),
            MapKind::ProgArray | MapKind::SocketArray => map::create(name, &shape(kind, entries)),
            MapKind::Array
            | MapKind::PerCpuArray
            | MapKind::Hash
            | MapKind::LruHash
            | MapKind::RingBuffer => Err(io::ErrorKind::InvalidInput.into()),
        }?;
        Ok(Self { fd, kind })
    }

    /// Creates an empty array of arrays that are made like `example`.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`.
    pub fn of_arrays(name: &str, example: &SharedArray, entries: u32) -> io::Result<Self> {
        Ok(Self {
            fd: map::create_array_of(name, example.as_fd(), entries)?,
            kind: MapKind::MapArray,
        })
    }

    /// Opens the array behind `fd`, which comes from another process.
    ///
    /// # Errors
    /// `InvalidData` when the map is not such an array, with a message that names both shapes;
    /// `EINVAL` when `fd` is not a BPF object.
    pub fn open(fd: OwnedFd, kind: MapKind, entries: u32) -> io::Result<Self> {
        shape(kind, entries).verify(fd.as_fd())?;
        Ok(Self { fd, kind })
    }

    /// Puts `objects` at the indices from `first` on. When this function returns, no BPF program
    /// uses the maps that it has replaced (`maybe_wait_bpf_programs`).
    ///
    /// # Errors
    /// `E2BIG` beyond the array's end; `EINVAL` for another kind of object. After an error, the
    /// array may have the objects before the refused object.
    pub fn put(&self, first: u32, objects: &[BorrowedFd<'_>]) -> io::Result<()> {
        let keys: Vec<u32> = (first..).take(objects.len()).collect();
        let values: Vec<u32> = objects
            .iter()
            .map(|fd| fd.as_raw_fd().unsigned_abs())
            .collect();
        // The kernel has no batch command for an array of BPF programs, and Linux 5.18 has none for
        // an array of maps either. Since Linux 6.8, the kernel waits only once for a batch of maps.
        if self.kind == MapKind::MapArray && objects.len() > 1 {
            let mut attr = MapBatch {
                keys: keys.as_ptr().expose_provenance() as u64,
                values: values.as_ptr().expose_provenance() as u64,
                count: len(&keys),
                map: number(&self.fd),
                ..MapBatch::default()
            };
            return bpf(BPF_MAP_UPDATE_BATCH, &mut attr).map(drop);
        }
        let mut each = keys.iter().zip(&values);
        each.try_for_each(|(key, value)| self.change(BPF_MAP_UPDATE_ELEM, *key, Some(value)))
    }

    /// Empties `count` entries from index `first` on. When this function returns, no BPF program
    /// uses the maps that it has removed. For this, the kernel waits some milliseconds at each map.
    ///
    /// # Errors
    /// `E2BIG` beyond the array's end.
    pub fn remove(&self, first: u32, count: u32) -> io::Result<()> {
        for key in (first..).take(count as usize) {
            match self.change(BPF_MAP_DELETE_ELEM, key, None) {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                removed => removed?,
            }
        }
        Ok(())
    }

    fn change(&self, command: libc::c_long, key: u32, value: Option<&u32>) -> io::Result<()> {
        let mut attr = MapElement {
            map: number(&self.fd),
            key: (&raw const key).expose_provenance() as u64,
            value: value.map_or(0, |value| {
                std::ptr::from_ref(value).expose_provenance() as u64
            }),
            ..MapElement::default()
        };
        bpf(command, &mut attr).map(drop)
    }
}

impl AsFd for ObjectArray {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const fn shape(kind: MapKind, entries: u32) -> Shape {
    Shape::new(kind.number(), (4, 4), entries, 0)
}

const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;

#[cfg(test)]
mod tests {
    use super::super::LoadedProgram;
    use super::*;
    use fanpcap_bpf::{Instruction, ProgramKind};

    fn ring(len: u32) -> OwnedFd {
        let shape = Shape {
            kind: map::RING_BUFFER,
            key_len: 0,
            value_len: 0,
            entries: len,
            flags: 0,
        };
        map::create("ring", &shape).unwrap()
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn ring_buffers_of_any_size_are_put_and_removed() {
        let array = ObjectArray::create("rings", MapKind::MapArray, 4).unwrap();
        let (small, large) = (ring(1 << 16), ring(1 << 20));
        array.put(1, &[small.as_fd(), large.as_fd()]).unwrap();
        array.put(1, &[large.as_fd()]).unwrap();
        array.remove(0, 4).unwrap();
        assert!(array.remove(0, 5).is_err(), "a removal beyond the end");
        assert!(array.put(3, &[small.as_fd(), large.as_fd()]).is_err());
        assert!(
            array.put(0, &[array.as_fd()]).is_err(),
            "an array in place of a ring buffer"
        );
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn arrays_of_any_number_of_entries_of_one_length_are_put() {
        let made = |len, entries| SharedArray::create("pool", len, entries).unwrap();
        let array = ObjectArray::of_arrays("pools", &made(1 << 16, 1), 2).unwrap();
        let (few, many, long) = (made(1 << 16, 2), made(1 << 16, 7), made(1 << 17, 2));
        array.put(0, &[few.as_fd(), many.as_fd()]).unwrap();
        assert!(array.put(0, &[long.as_fd()]).is_err(), "longer entries");
        assert!(array.put(0, &[ring(1 << 16).as_fd()]).is_err());
        array.remove(0, 2).unwrap();
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn programs_are_put_and_removed_by_a_process_without_privilege() {
        let array = ObjectArray::create("programs", MapKind::ProgArray, 2).unwrap();
        let code = [Instruction::set(0, 2), Instruction::exit()];
        let program = LoadedProgram::load(ProgramKind::Xdp, "pass", &code).unwrap();
        let nobody = move || {
            // SAFETY: takes plain numbers. The raw system call changes the user of this thread
            // alone.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(rc, 0);
            array.put(1, &[program.as_fd()]).unwrap();
            array.remove(0, 2).unwrap();
            let fd = array.as_fd().try_clone_to_owned().unwrap();
            assert!(ObjectArray::open(fd, MapKind::ProgArray, 3).is_err());
            let fd = array.as_fd().try_clone_to_owned().unwrap();
            ObjectArray::open(fd, MapKind::ProgArray, 2).unwrap();
        };
        std::thread::spawn(nobody).join().unwrap();
    }
}
