//! A copy of a packet's bytes, to which the application may write. With libpcap, an application may
//! write to the packets in the ring. The kernel lets no process write to the records of a BPF
//! program, so those packets are copied.

use fanpcap_ring::LONGEST;

/// The bytes of one packet, until the next packet is copied.
#[derive(Debug)]
pub(crate) struct Copied(Box<[u8]>);

/// Applications also write the byte behind a packet, to end a string there.
const ROOM: usize = LONGEST as usize + 1;

impl Copied {
    /// Allocates zeroed pages. The kernel provides each page when a packet first touches it.
    pub(crate) fn new() -> Self {
        Self(vec![0; ROOM].into_boxed_slice())
    }

    /// Copies the first bytes of a packet, at most [`LONGEST`]. The ring's reader has prefetched
    /// the beginning of most records, so these bytes are usually in the CPU's cache.
    #[inline]
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> *const u8 {
        let to = &mut self.0[..bytes.len()];
        match bytes.len() {
            32..=64 => both_ends::<32>(to, bytes),
            65..=128 => both_ends::<64>(to, bytes),
            _ => to.copy_from_slice(bytes),
        }
        self.0.as_mut_ptr().cast_const()
    }
}

/// Copies N to 2N bytes without a call of memcpy(3). Copies the bytes in the middle twice.
#[inline(always)]
fn both_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk()) {
        *to = *from;
    }
}
