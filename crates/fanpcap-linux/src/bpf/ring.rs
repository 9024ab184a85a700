//! BPF ring buffers (`BPF_MAP_TYPE_RINGBUF`, since Linux 5.8; kernel/bpf/ringbuf.c), by which BPF
//! programs wake processes. Processes ignore the content of the records.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use super::info::Shape;
use super::map;
use crate::mapping::Mapping;

/// A ring buffer.
#[derive(Debug)]
pub struct RingBuffer(OwnedFd);

impl RingBuffer {
    /// Creates a ring buffer of `len` bytes. The length must be a power of two, and a multiple of
    /// the page size.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`. `EINVAL` before Linux 5.8, or for another length. `ENOMEM` and
    /// `E2BIG` when the ring buffer is too large.
    pub fn create(name: &str, len: u32) -> io::Result<Self> {
        map::create(name, &shape(len)).map(Self)
    }

    /// Creates the smallest ring buffer, with the length of a page.
    ///
    /// # Errors
    /// As [`RingBuffer::create`].
    pub fn smallest(name: &str) -> io::Result<Self> {
        Self::create(name, page()?)
    }

    /// Opens the ring buffer behind `fd`, which may come from another process. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` when the map is not a ring buffer, with a message that names both shapes;
    /// `EINVAL` when `fd` is not a BPF object.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        shape(Shape::of(fd.as_fd())?.entries).verify(fd.as_fd())?;
        Ok(Self(fd))
    }

    /// Maps the positions of the ring buffer. The mapping keeps the ring buffer alive. Needs no
    /// capability.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn map(&self) -> io::Result<RingMapping> {
        let (page, fd) = (page()? as usize, self.0.as_raw_fd());
        // The kernel lets processes write only to the consumer's page, so this page needs its own
        // mapping.
        Ok(RingMapping {
            consumer: Mapping::shared(fd, page)?,
            producer: Mapping::new(page, libc::PROT_READ, 0, fd, page)?,
        })
    }
}

impl AsFd for RingBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The positions of a ring buffer, mapped until dropped.
#[derive(Debug)]
pub struct RingMapping {
    /// The page with the reader's position.
    consumer: Mapping,
    /// The page with the position up to which records are reserved. Only the kernel writes to it.
    producer: Mapping,
}

// SAFETY: all accesses to the mappings are atomic.
unsafe impl Sync for RingMapping {}

impl RingMapping {
    /// Takes all records, and ignores their content.
    pub fn clear(&self) {
        let position = self.producer.first_word().load(Ordering::Acquire);
        self.consumer
            .first_word()
            .store(position, Ordering::Release);
    }
}

impl Mapping {
    #[inline]
    fn first_word(&self) -> &AtomicU64 {
        // SAFETY: each mapping has at least a page, so the word is mapped as long as `self`. It is
        // aligned. The kernel also accesses it atomically.
        unsafe { AtomicU64::from_ptr(self.base().as_ptr().cast()) }
    }
}

fn page() -> io::Result<u32> {
    // SAFETY: takes a plain number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u32::try_from(page).map_err(|_| io::ErrorKind::InvalidData.into())
}

const fn shape(len: u32) -> Shape {
    Shape::new(map::RING_BUFFER, (0, 0), len, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_process_without_privilege_clears_a_ring_buffer() {
        let ring = RingBuffer::create("ring", 1 << 16).unwrap();
        let sent = ring.as_fd().try_clone_to_owned().unwrap();
        let nobody = move || {
            // SAFETY: takes plain numbers. The raw system call changes the user of this thread
            // alone.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(rc, 0);
            let created = RingBuffer::create("ring", 1 << 16).unwrap_err();
            assert_eq!(created.raw_os_error(), Some(libc::EPERM));
            let mapping = RingBuffer::open(sent).unwrap().map().unwrap();
            mapping.consumer.first_word().store(8, Relaxed);
        };
        std::thread::spawn(nobody).join().unwrap();
        let mapping = ring.map().unwrap();
        drop(ring);
        assert_eq!(mapping.consumer.first_word().load(Relaxed), 8);
        mapping.clear();
        assert_eq!(mapping.consumer.first_word().load(Relaxed), 0);
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn other_maps_are_no_ring_buffers() {
        let array = Shape {
            kind: 2,
            key_len: 4,
            value_len: 8,
            entries: 4096,
            flags: 0,
        };
        let error = RingBuffer::open(map::create("array", &array).unwrap()).unwrap_err();
        assert!(error.to_string().contains("of type 2 "), "{error}");
        assert!(RingBuffer::create("ring", 4095).is_err());
    }
}
