//! The kernel's own type information (BTF, Documentation/bpf/btf.rst): the numbers by which BPF
//! programs call kernel functions.

use crate::bytes::u32_at;
use std::fs;

/// Returns the number by which BPF programs call this kernel function (a kfunc). `None` if the
/// kernel has no such function, or does not publish its type information.
pub fn kernel_function(name: &str) -> Option<i32> {
    function(&fs::read("/sys/kernel/btf/vmlinux").ok()?, name)
}

/// Returns the number of the function's type. Types have numbers from 1 on, in the order in which
/// `blob` stores them.
fn function(blob: &[u8], name: &str) -> Option<i32> {
    let [head, types_at, types_len, strings_at] = [4, 8, 12, 16].map(|at| word(blob, at));
    let types = blob.get(head?..)?.get(types_at?..)?;
    let mut types = types.get(..types_len?)?;
    let strings = blob.get(head?..)?.get(strings_at?..)?;
    let is_named = |at: usize| {
        let found = strings.get(at..)?.strip_prefix(name.as_bytes())?;
        Some(*found.first()? == 0)
    };
    for number in 1.. {
        let info = word(types, 4)?;
        let (kind, count) = ((info >> 24) & 31, info & 0xffff);
        if kind == FUNC && is_named(word(types, 0)?) == Some(true) {
            return Some(number);
        }
        let more = match kind {
            INT | VAR | DECL_TAG => 4,
            ARRAY => 12,
            STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
            ENUM | FUNC_PROTO => 8 * count,
            _ => 0,
        };
        types = types.get(HEADER_LEN + more..)?;
    }
    None
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32_at(bytes, at)?).ok()
}

/// Bytes of a type's header. Some kinds of types have more data after the header.
const HEADER_LEN: usize = 12;

// linux/btf.h.
const INT: usize = 1;
const ARRAY: usize = 3;
const STRUCT: usize = 4;
const UNION: usize = 5;
const ENUM: usize = 6;
const FUNC: usize = 12;
const FUNC_PROTO: usize = 13;
const VAR: usize = 14;
const DATASEC: usize = 15;
const DECL_TAG: usize = 17;
const ENUM64: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information with four types: a number, a struct with two members, and two functions.
    fn blob() -> Vec<u8> {
        let strings = b"\0tags\0tag\0";
        let kind = |kind: usize, count: usize| u32::try_from((kind << 24) | count).unwrap();
        let types: [&[u32]; 4] = [
            &[0, kind(INT, 0), 4, 32],
            &[0, kind(STRUCT, 2), 8, 0, 1, 0, 0, 1, 32],
            &[1, kind(FUNC, 1), 1],
            &[6, kind(FUNC, 1), 1],
        ];
        let types = types.concat();
        let len = u32::try_from(4 * types.len()).unwrap();
        let head = [0xeb9f | (1 << 16), 24, 0, len, len, 10];
        let words = head.iter().chain(&types).flat_map(|it| it.to_ne_bytes());
        words.chain(*strings).collect()
    }

    #[test]
    fn a_function_has_the_number_of_its_type() {
        let blob = blob();
        assert_eq!(function(&blob, "tags"), Some(3));
        assert_eq!(function(&blob, "tag"), Some(4));
        assert_eq!(function(&blob, "ta"), None);
        for len in 0..blob.len() {
            let found = function(&blob[..len], "tag");
            assert!(found.is_none_or(|number| number == 4), "{len}");
        }
    }

    #[test]
    fn the_kernel_tells_its_own() {
        if fs::exists("/sys/kernel/btf/vmlinux").unwrap() {
            assert!(kernel_function("bpf_prog_free").is_some());
        }
        assert_eq!(kernel_function("no such function"), None);
    }
}
