//! The numbers by which a poller knows which handles of this process belong together.

use fanpcap_linux::wait::clock;
use std::process;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that this process has in common with its forked children alone; 0: none yet.
static COMMON: AtomicU64 = AtomicU64::new(0);

/// The number of a handle on several devices, or of all other handles of this process with `handle`
/// 0. Other processes have other numbers, also forked children of this one. The process id alone
/// would not do: in two containers, two processes may have the same one.
pub(crate) fn of(handle: u32) -> u64 {
    let mut common = COMMON.load(Ordering::Relaxed);
    if common == 0 {
        // The library is at another address in each process that has begun (ld.so(8)).
        let address = ptr::from_ref(&COMMON).addr() as u64;
        let new = mixed(clock::monotonic_ns() ^ address.rotate_left(32)).max(1);
        // No lock: a forked child would find it taken by a thread that it does not have.
        let before = COMMON.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        common = before.map_or_else(|other| other, |_| new);
    }
    number(common, process::id(), handle)
}

fn number(common: u64, process: u32, handle: u32) -> u64 {
    mixed(common ^ ((u64::from(process) << 32) | u64::from(handle)))
}

/// The finalizer of MurmurHash3, a bijection: two handles of a process have two numbers.
fn mixed(mut hash: u64) -> u64 {
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_of_a_process_have_its_number_and_handles_on_several_devices_their_own() {
        assert_eq!(of(0), of(0));
        assert!(of(0) != of(1) && of(1) != of(2));
    }

    #[test]
    fn a_forked_child_has_other_numbers() {
        assert_ne!(number(7, 100, 0), number(7, 101, 0));
        assert_ne!(number(7, 100, 0), number(8, 100, 0));
    }

    /// The poller ignores the lowest byte.
    #[test]
    fn numbers_differ_in_their_upper_bits() {
        let upper = |handle| number(7, 100, handle) >> 8;
        let all: std::collections::BTreeSet<u64> = (0..1000).map(upper).collect();
        assert_eq!(all.len(), 1000);
    }
}
