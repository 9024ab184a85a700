//! Maps: values that BPF programs and processes share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use fanpcap_bpf::{Instruction, MapKind, MapSpec};

use super::info::Shape;
use super::{Attributes, bpf, number, short};
use crate::errno::owned;
use crate::process::cpu;

/// A BPF map.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    kind: MapKind,
    key_len: usize,
    value_len: usize,
    entries: u32,
}

impl Map {
    /// Creates a map of at most `entries` values of `value_len` bytes each.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `E2BIG` and `ENOMEM` when the map is too large, `EINVAL` for 0
    /// entries.
    pub fn new(
        kind: MapKind,
        name: &str,
        key_len: u32,
        value_len: u32,
        entries: u32,
    ) -> io::Result<Self> {
        let shape = Shape::new(kind.number(), (key_len, value_len), entries, 0);
        let fd = if kind == MapKind::MapArray {
            create_array_of_rings(name, entries)?
        } else {
            create(name, &shape)?
        };
        Self::behind(fd, kind, &shape)
    }

    /// Opens the map behind `fd`, which must have the shape that `spec` specifies. Duplicates the
    /// descriptor.
    ///
    /// # Errors
    /// `InvalidData` when the map has another shape; `EINVAL` when `fd` is not a BPF object.
    pub fn given(fd: BorrowedFd<'_>, spec: &MapSpec) -> io::Result<Self> {
        let flags = match spec.kind == MapKind::Array && spec.is_given {
            true => BPF_F_MMAPABLE,
            false => 0,
        };
        let lens = (spec.key_len, spec.value_len);
        let shape = Shape::new(spec.kind.number(), lens, spec.entries, flags);
        shape.verify(fd)?;
        Self::behind(fd.try_clone_to_owned()?, spec.kind, &shape)
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        let fd = self.fd.try_clone()?;
        Ok(Self { fd, ..*self })
    }

    fn behind(fd: OwnedFd, kind: MapKind, shape: &Shape) -> io::Result<Self> {
        let bytes = |len: u32| usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput);
        Ok(Self {
            fd,
            kind,
            key_len: bytes(shape.key_len)?,
            value_len: bytes(shape.value_len)?,
            entries: shape.entries,
        })
    }

    /// Creates and fills the map that an object specifies.
    ///
    /// # Errors
    /// As [`Map::new`] and [`Map::insert`].
    pub fn create(name: &str, spec: &MapSpec) -> io::Result<Self> {
        let (kind, entries) = (spec.kind, spec.entries);
        let map = Self::new(kind, name, spec.key_len, spec.value_len, entries)?;
        if !spec.keys.is_empty() {
            map.insert(&spec.keys, &spec.values)?;
        }
        Ok(map)
    }

    /// Creates an array of `rows` entries of `row_len` zero bytes. The kernel stores an entry in a
    /// multiple of eight bytes.
    ///
    /// # Errors
    /// As [`Map::new`].
    pub fn array(name: &str, rows: u32, row_len: usize) -> io::Result<Self> {
        let value_len = u32::try_from(row_len).map_err(|_| io::ErrorKind::InvalidInput)?;
        Self::new(MapKind::Array, name, 4, value_len, rows)
    }

    /// Writes whole entries of an array, one after the other, from index `first` on.
    ///
    /// # Errors
    /// `InvalidInput` when `content` does not consist of whole entries, or does not fit into the
    /// array.
    pub fn write(&self, first: u32, content: &[u8]) -> io::Result<()> {
        let rows = content.len() / self.value_len;
        let end = u32::try_from(rows).ok().and_then(|n| first.checked_add(n));
        let end = end.filter(|&end| end <= self.entries);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        let keys: Vec<u8> = (first..end).flat_map(u32::to_ne_bytes).collect();
        self.insert(&keys, content)
    }

    /// Writes a value for each key (`BPF_MAP_UPDATE_BATCH`, since Linux 5.6). In both slices, the
    /// elements follow one another without gaps.
    ///
    /// # Errors
    /// `InvalidInput` when a slice ends within a key or a value, when there are not as many values
    /// as keys, or for a per-CPU map; `E2BIG` when the map has no room.
    pub fn insert(&self, keys: &[u8], values: &[u8]) -> io::Result<()> {
        let count = keys.len() / self.key_len;
        let whole = count * self.key_len == keys.len() && count * self.value_len == values.len();
        if !whole || self.kind == MapKind::PerCpuArray {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if count == 0 {
            return Ok(());
        }
        let mut attr = MapBatch {
            keys: keys.as_ptr().expose_provenance() as u64,
            values: values.as_ptr().expose_provenance() as u64,
            count: u32::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?,
            map: number(&self.fd),
            ..MapBatch::default()
        };
        bpf(BPF_MAP_UPDATE_BATCH, &mut attr).map(drop)
    }

    /// Reads entry `row` of an array. For a per-CPU array, reads the first CPU's value.
    ///
    /// # Errors
    /// `ENOENT` when there is no such entry.
    pub fn read(&self, row: u32) -> io::Result<Vec<u8>> {
        let mut value = self.look_up(&row.to_ne_bytes())?;
        value.truncate(self.value_len);
        Ok(value)
    }

    /// Reads the 64-bit numbers of entry 0.
    ///
    /// # Errors
    /// No known kernel returns an error.
    pub fn numbers(&self) -> io::Result<Vec<u64>> {
        let row = self.read(0)?;
        let numbers = row.chunks_exact(8).map(|bytes| {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            u64::from_ne_bytes(number)
        });
        Ok(numbers.collect())
    }

    /// Reads the 64-bit numbers of entry 0 of an array into `numbers`. Allocates no memory, so
    /// signal handlers may call this function.
    ///
    /// # Errors
    /// `InvalidInput` when the entry has more numbers than fit into `numbers`, or when the map is
    /// not an array that all CPUs share.
    pub fn read_numbers(&self, numbers: &mut [u64]) -> io::Result<()> {
        let row = 0_u32.to_ne_bytes();
        let has_room = self.value_len.next_multiple_of(8) <= size_of_val(numbers);
        if self.kind != MapKind::Array || self.key_len != row.len() || !has_room {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut attr = MapElement {
            map: number(&self.fd),
            key: row.as_ptr().expose_provenance() as u64,
            value: numbers.as_mut_ptr().expose_provenance() as u64,
            ..MapElement::default()
        };
        bpf(BPF_MAP_LOOKUP_ELEM, &mut attr).map(drop)
    }

    /// Reads the value of a key, padded to a multiple of eight bytes as the kernel writes it. For a
    /// per-CPU map, reads the values of all possible CPUs.
    fn look_up(&self, key: &[u8]) -> io::Result<Vec<u8>> {
        if key.len() != self.key_len {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let values = if self.kind == MapKind::PerCpuArray {
            possible_cpus()?
        } else {
            1
        };
        let mut value = vec![0_u8; self.value_len.next_multiple_of(8) * values];
        let mut attr = MapElement {
            map: number(&self.fd),
            key: key.as_ptr().expose_provenance() as u64,
            value: value.as_mut_ptr().expose_provenance() as u64,
            ..MapElement::default()
        };
        bpf(BPF_MAP_LOOKUP_ELEM, &mut attr)?;
        Ok(value)
    }

    /// Returns the two instructions that load the address of entry 0 of an array into a register.
    /// The map must live until the BPF program is loaded.
    pub fn address(&self, register: u8) -> [Instruction; 2] {
        Instruction::map_value(register, self.fd.as_raw_fd(), 0)
    }

    /// Returns the two instructions that load the map itself into a register, as the helper
    /// `bpf_map_lookup_elem` needs it.
    pub fn reference(&self, register: u8) -> [Instruction; 2] {
        Instruction::map(register, self.fd.as_raw_fd())
    }

    /// The map's descriptor, for instructions that refer to the map.
    pub(super) fn descriptor(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(super) fn create(name: &str, shape: &Shape) -> io::Result<OwnedFd> {
    create_with(name, shape, 0)
}

/// Creates an array of ring buffers, which may differ in size.
pub(super) fn create_array_of_rings(name: &str, entries: u32) -> io::Result<OwnedFd> {
    let shown = create(name, &Shape::new(RING_BUFFER, (0, 0), SMALLEST_RING, 0))?;
    create_array_of(name, shown.as_fd(), entries)
}

/// Creates an array of maps of the same kind as `example`. The kernel allows no other maps in the
/// array.
pub(super) fn create_array_of(
    name: &str,
    example: BorrowedFd<'_>,
    entries: u32,
) -> io::Result<OwnedFd> {
    let shape = Shape::new(MapKind::MapArray.number(), (4, 4), entries, 0);
    create_with(name, &shape, example.as_raw_fd().unsigned_abs())
}

fn create_with(name: &str, shape: &Shape, inner_map: u32) -> io::Result<OwnedFd> {
    let mut attr = MapCreate {
        inner_map,
        kind: shape.kind,
        key_len: shape.key_len,
        value_len: shape.value_len,
        entries: shape.entries,
        flags: shape.flags,
        name: short(name),
        ..MapCreate::default()
    };
    owned(bpf(BPF_MAP_CREATE, &mut attr)?)
}

/// Returns how many values an entry of a per-CPU map has at most. An entry has fewer values if the
/// numbers of the CPUs have gaps.
fn possible_cpus() -> io::Result<usize> {
    usize::try_from(cpu::possible()?).map_err(|_| io::ErrorKind::InvalidData.into())
}

// SAFETY: the part of union bpf_attr for BPF_MAP_CREATE, without addresses.
unsafe impl Attributes for MapCreate {}
// SAFETY: the part of union bpf_attr for BPF_MAP_*_ELEM. The code that makes this struct provides a
// key of the map's key length. The value has the map's value length, or room for all bytes that the
// kernel writes.
unsafe impl Attributes for MapElement {}
// SAFETY: `batch` of union bpf_attr. The code that makes this struct provides `count` whole keys
// and values, which the kernel only reads.
unsafe impl Attributes for MapBatch {}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
    /// 0, because the map is in the host's memory, not on a device. The field is here because
    /// valgrind checks it for every map.
    ifindex: u32,
}

#[repr(C)]
#[derive(Default)]
pub(super) struct MapElement {
    pub(super) map: u32,
    pub(super) padding: u32,
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) flags: u64,
}

#[repr(C)]
#[derive(Default)]
pub(super) struct MapBatch {
    pub(super) in_batch: u64,
    pub(super) out_batch: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) count: u32,
    pub(super) map: u32,
    pub(super) element_flags: u64,
    pub(super) flags: u64,
}

/// `BPF_MAP_TYPE_RINGBUF`.
pub(super) const RING_BUFFER: u32 = 27;
/// Length of the example of a ring buffer: a power of two, and a multiple of every page size.
const SMALLEST_RING: u32 = 1 << 16;
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
pub(super) const BPF_MAP_UPDATE_BATCH: libc::c_long = 26;

/// Lets processes map the array (since Linux 5.5).
pub(super) const BPF_F_MMAPABLE: u32 = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn rows_are_read_as_they_were_written() {
        let array = Map::array("rows", 5, 12).unwrap();
        let content: Vec<u8> = (0..36).collect();
        array.write(1, &content).unwrap();
        assert_eq!(array.read(0).unwrap(), [0; 12]);
        for row in 0..3 {
            let at = 12 * row as usize;
            assert_eq!(array.read(row + 1).unwrap(), content[at..at + 12]);
        }
        assert!(
            array.write(3, &content).is_err(),
            "a write of one row too many"
        );
        assert!(
            array.write(0, &content[1..]).is_err(),
            "a write of part of a row"
        );
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_number_starts_at_nothing() {
        let number = Map::array("packets", 1, 8).unwrap();
        assert_eq!(number.numbers().unwrap(), [0]);
        let mut read = [7, 7];
        number.read_numbers(&mut read).unwrap();
        assert_eq!(read, [0, 7]);
        assert!(
            number.read_numbers(&mut []).is_err(),
            "a read into an empty slice"
        );
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_row_for_each_cpu_is_not_written_at_once() {
        let map = Map::new(MapKind::PerCpuArray, "turns", 4, 12, 1).unwrap();
        assert!(map.insert(&[0; 4], &[0; 12]).is_err());
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn what_is_looked_up_has_room_for_all_cpus() {
        let map = Map::new(MapKind::PerCpuArray, "turns", 4, 12, 1).unwrap();
        let all = map.look_up(&[0; 4]).unwrap();
        assert_eq!(all.len(), 16 * possible_cpus().unwrap());
        assert_eq!(map.read(0).unwrap(), [0; 12]);
        assert_eq!(map.numbers().unwrap(), [0]);
        assert_eq!(map.read(1).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_hash_takes_as_many_values_as_it_has_room_for() {
        let map = Map::new(MapKind::Hash, "set", 8, 1, 2).unwrap();
        let keys: Vec<u8> = (0..24).collect();
        map.insert(&keys[..16], &[1, 2]).unwrap();
        assert_eq!(map.look_up(&keys[8..16]).unwrap()[0], 2);
        assert!(
            map.insert(&keys, &[1, 2, 3]).is_err(),
            "a third value in a map of two"
        );
    }
}
