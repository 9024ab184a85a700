//! Prefetches memory.

/// How many packets ahead the reader prefetches. The packets were written on another core, so a
/// cache line comes from that core's cache or from memory. In measurements, 24 and 32 were best,
/// and 16 was a tenth slower. Without prefetching, a prototype took 1.5 times as long
/// (docs/decisions, 7).
pub(crate) const AHEAD: u64 = 32;

/// A cache line.
const LINE: usize = 64;

/// Prefetches the packet that is [`AHEAD`] packets after that at `address`, which takes `stride`
/// bytes. Computes its address as if all packets had the length of this one.
#[inline(always)]
pub(crate) fn prefetch_ahead(address: *const u8, stride: u64) {
    #[expect(clippy::cast_possible_truncation, reason = "any address is allowed")]
    let [ahead, stride] = [AHEAD.wrapping_mul(stride), stride].map(|bytes| bytes as usize);
    let there = address.wrapping_add(ahead);
    prefetch(there);
    prefetch(there.wrapping_add(LINE));
    if stride > 2 * LINE {
        prefetch(there.wrapping_add(2 * LINE));
    }
}

/// Starts to load the beginning of a packet that will be read soon.
#[inline(always)]
pub fn prefetch_packet(bytes: &[u8]) {
    prefetch(bytes.as_ptr());
}

/// Starts to load the cache line at `address`, which may be any address: a prefetch never faults.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction has no effect on values, and never faults.
    unsafe {
        core::arch::x86_64::_mm_prefetch(address.cast(), core::arch::x86_64::_MM_HINT_T0);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}
