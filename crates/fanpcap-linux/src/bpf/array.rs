//! Maps of type array: rows of equal length, by index, which programs and processes share.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{
    Attributes, BPF_MAP_CREATE, BPF_MAP_LOOKUP_ELEM, Instruction, LOAD_WIDE, MAP_ARRAY, MapCreate,
    MapElement, PSEUDO_MAP_VALUE, bpf, descriptor, number, short,
};

/// A map of type array (linux/bpf.h, `BPF_MAP_TYPE_ARRAY`).
#[derive(Debug)]
pub struct Array {
    fd: OwnedFd,
    rows: u32,
    row_len: usize,
}

impl Array {
    /// Makes one of `rows` rows, each of `row_len` zeros. The kernel keeps a row in a multiple of eight
    /// bytes.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`, `E2BIG` and `ENOMEM` when it is too large, `EINVAL` without rows.
    pub fn new(name: &str, rows: u32, row_len: usize) -> io::Result<Self> {
        let value_len = u32::try_from(row_len).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut attr = MapCreate {
            kind: MAP_ARRAY,
            key_len: 4,
            value_len,
            entries: rows,
            name: short(name),
            ..MapCreate::default()
        };
        let fd = descriptor(bpf(BPF_MAP_CREATE, &mut attr)?)?;
        Ok(Self { fd, rows, row_len })
    }

    /// Writes whole rows, one after the other, from row `first` on (`BPF_MAP_UPDATE_BATCH`, since Linux
    /// 5.6).
    ///
    /// # Errors
    /// `InvalidInput` when `content` is not whole rows or does not fit.
    pub fn write(&self, first: u32, content: &[u8]) -> io::Result<()> {
        let rows = content.len() / self.row_len;
        let whole = rows * self.row_len == content.len();
        let end = u32::try_from(rows).ok().and_then(|n| first.checked_add(n));
        let end = end.filter(|&end| whole && end <= self.rows);
        let end = end.ok_or(io::ErrorKind::InvalidInput)?;
        let keys: Vec<u32> = (first..end).collect();
        if keys.is_empty() {
            return Ok(());
        }
        let mut attr = MapBatch {
            keys: keys.as_ptr().expose_provenance() as u64,
            values: content.as_ptr().expose_provenance() as u64,
            count: super::len(&keys),
            map: number(&self.fd),
            ..MapBatch::default()
        };
        bpf(BPF_MAP_UPDATE_BATCH, &mut attr).map(drop)
    }

    /// Reads row `row`.
    ///
    /// # Errors
    /// `ENOENT` when there is none.
    pub fn read(&self, row: u32) -> io::Result<Vec<u8>> {
        // The kernel writes a multiple of eight bytes.
        let mut value = vec![0_u8; self.row_len.next_multiple_of(8)];
        let mut attr = MapElement {
            map: number(&self.fd),
            key: (&raw const row).expose_provenance() as u64,
            value: value.as_mut_ptr().expose_provenance() as u64,
            ..MapElement::default()
        };
        bpf(BPF_MAP_LOOKUP_ELEM, &mut attr)?;
        value.truncate(self.row_len);
        Ok(value)
    }

    /// The two instructions that put the address of row 0 into a register of a program that is loaded
    /// while this value lives.
    pub fn address(&self, register: u8) -> [Instruction; 2] {
        self.load(register, PSEUDO_MAP_VALUE)
    }

    /// The two instructions that put the map itself into a register, as the helper
    /// `bpf_map_lookup_elem` wants it.
    pub fn reference(&self, register: u8) -> [Instruction; 2] {
        self.load(register, PSEUDO_MAP_FD)
    }

    fn load(&self, register: u8, what: u8) -> [Instruction; 2] {
        [
            Instruction::new(LOAD_WIDE, register, what, 0, self.fd.as_raw_fd()),
            Instruction::new(0, 0, 0, 0, 0),
        ]
    }
}

impl Attributes for MapBatch {}

/// linux/bpf.h: the part of `union bpf_attr` for commands on many elements.
#[repr(C)]
#[derive(Default)]
struct MapBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

const BPF_MAP_UPDATE_BATCH: libc::c_long = 26;
const PSEUDO_MAP_FD: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn rows_are_read_as_they_were_written() {
        let array = Array::new("rows", 5, 12).unwrap();
        let content: Vec<u8> = (0..36).collect();
        array.write(1, &content).unwrap();
        assert_eq!(array.read(0).unwrap(), [0; 12]);
        for row in 0..3 {
            let at = 12 * row as usize;
            assert_eq!(array.read(row + 1).unwrap(), content[at..at + 12]);
        }
        assert!(array.write(3, &content).is_err(), "one row too many");
        assert!(array.write(0, &content[1..]).is_err(), "not whole rows");
    }
}
