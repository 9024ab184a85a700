//! Type information for a BPF program's functions (BTF, Documentation/bpf/btf.rst). With type
//! information the kernel verifies each function once, not at every call.

use super::{Attributes, bpf, len};
use crate::errno::owned;
use std::io;
use std::os::fd::OwnedFd;

/// Loads the type of functions that take the context and two numbers, and return a number.
/// `context` is the name of the context's struct.
pub(super) fn load(context: &str) -> io::Result<OwnedFd> {
    let blob = blob(context);
    let mut attr = TypesLoad {
        types: blob.as_ptr().expose_provenance() as u64,
        log: 0,
        types_len: len(&blob),
        log_len: 0,
        log_level: 0,
        padding: 0,
    };
    owned(bpf(BPF_BTF_LOAD, &mut attr)?)
}

/// Indices in the list of types. The first index is 1.
const NUMBER: u32 = 1;
const CONTEXT: u32 = 2;
const POINTER: u32 = 3;
const SIGNATURE: u32 = 4;
/// The type of a function that the kernel verifies once, for any values of its two numbers.
pub(super) const GLOBAL: u32 = 5;

fn blob(context: &str) -> Vec<u8> {
    let strings = ["", "number", context].map(|name| format!("{name}\0"));
    let [nothing, number, _] = [0, 1, 2].map(|count: usize| {
        let before: usize = strings.iter().take(count).map(String::len).sum();
        u32::try_from(before).unwrap_or(0)
    });
    let name = number + 7;
    let words: [&[u32]; 6] = [
        &[number, INT << 24, 8, 64],
        &[name, STRUCT << 24, 0],
        &[nothing, PTR << 24, CONTEXT],
        &[nothing, (FUNC_PROTO << 24) | 3, NUMBER, number, POINTER],
        &[number, NUMBER, number, NUMBER],
        &[number, (FUNC << 24) | LINKAGE_GLOBAL, SIGNATURE],
    ];
    let types: Vec<u8> = words
        .concat()
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let strings = strings.concat();
    let header = [
        HEADER_LEN,
        0,
        len(&types),
        len(&types),
        len(strings.as_bytes()),
    ];
    let mut blob = Vec::from(MAGIC.to_ne_bytes());
    blob.extend([VERSION, 0]);
    blob.extend(header.iter().flat_map(|word| word.to_ne_bytes()));
    blob.extend(types);
    blob.extend(strings.as_bytes());
    blob
}

// SAFETY: `btf_load` of union bpf_attr. The types are a slice with its own length, which the kernel
// only reads. The struct has no address for a log.
unsafe impl Attributes for TypesLoad {}

#[repr(C)]
struct TypesLoad {
    types: u64,
    log: u64,
    types_len: u32,
    log_len: u32,
    log_level: u32,
    padding: u32,
}

const BPF_BTF_LOAD: libc::c_long = 18;
/// linux/btf.h.
const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER_LEN: u32 = 24;
const INT: u32 = 1;
const PTR: u32 = 2;
const STRUCT: u32 = 4;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const LINKAGE_GLOBAL: u32 = 1;
