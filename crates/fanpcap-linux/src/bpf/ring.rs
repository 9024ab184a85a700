//! BPF ring buffers (`BPF_MAP_TYPE_RINGBUF`, since Linux 5.8): BPF programs append records, and one
//! process reads these from mapped memory (kernel/bpf/ringbuf.c).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use super::info::Shape;
use super::map;
use crate::errno::owned;
use crate::mapping::{Mapping, READ_AND_WRITE};

/// A ring buffer.
#[derive(Debug)]
pub struct RingBuffer {
    fd: OwnedFd,
    len: usize,
}

impl RingBuffer {
    /// Creates a ring buffer of `len` bytes. The length must be a power of two, and a multiple of
    /// the page size.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`. `EINVAL` before Linux 5.8, or for another length. `ENOMEM` and
    /// `E2BIG` when the ring buffer is too large.
    pub fn create(name: &str, len: u32) -> io::Result<Self> {
        Self::behind(map::create(name, &shape(len))?, len)
    }

    /// Creates the smallest ring buffer, with the length of a page.
    ///
    /// # Errors
    /// As [`RingBuffer::create`].
    pub fn smallest(name: &str) -> io::Result<Self> {
        let page = u32::try_from(page()?).map_err(|_| io::ErrorKind::InvalidData)?;
        Self::create(name, page)
    }

    /// Opens the ring buffer behind `fd`, which may come from another process. Needs no capability.
    ///
    /// # Errors
    /// `InvalidData` when the map is not a ring buffer, with a message that names both shapes;
    /// `EINVAL` when `fd` is not a BPF object.
    pub fn open(fd: OwnedFd) -> io::Result<Self> {
        let len = Shape::of(fd.as_fd())?.entries;
        shape(len).verify(fd.as_fd())?;
        Self::behind(fd, len)
    }

    fn behind(fd: OwnedFd, len: u32) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self { fd, len })
    }

    /// Bytes of the ring buffer.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the ring buffer has a length of 0. The kernel creates no such ring buffer.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Maps the ring buffer. The mapping keeps the ring buffer alive. Needs no capability.
    ///
    /// # Errors
    /// The error of mmap(2).
    pub fn map(&self) -> io::Result<RingMapping> {
        let page = page()?;
        let fd = self.fd.as_raw_fd();
        let twice = self
            .len
            .checked_mul(2)
            .and_then(|len| len.checked_add(page));
        let twice = twice.ok_or(io::ErrorKind::OutOfMemory)?;
        // The kernel lets processes write only to the consumer's page, so this page needs its own
        // mapping. The other mapping has the data twice.
        let consumer = Mapping::shared(fd, page)?;
        let producer = Mapping::new(twice, libc::PROT_READ, 0, fd, page)?;
        Ok(RingMapping::new(consumer, producer, page, self.len))
    }
}

impl AsFd for RingBuffer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A ring buffer's memory, mapped until dropped.
#[derive(Debug)]
pub struct RingMapping {
    consumer: Mapping,
    /// The page with the producer's position, then the data twice.
    producer: Mapping,
    data: NonNull<u8>,
    /// Bytes of the data, less 1.
    mask: usize,
}

// SAFETY: `data` points into `producer`, which is `Send`.
unsafe impl Send for RingMapping {}

// SAFETY: `data` points into `producer`, which is `Sync`.
unsafe impl Sync for RingMapping {}

/// Offset of the reader's own word in the consumer's page. The kernel uses only the page's first
/// word, and reads that word for each record. The offset keeps the reader's word out of the pair of
/// cache lines that the kernel reads.
const READ: usize = 256;

impl RingMapping {
    /// Makes memory with the layout of a ring buffer, without a ring buffer in the kernel: for
    /// tests, and for producers that are not BPF programs. All of the memory is writable. `len`
    /// must be a power of two, and a multiple of the page size.
    ///
    /// # Errors
    /// `InvalidInput` for another length; the errors of memfd_create(2), ftruncate(2) and mmap(2).
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let page = page()?;
        if !len.is_power_of_two() || len % page != 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the name is a C string.
        let fd = owned(unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_CLOEXEC) })?;
        let end = libc::off_t::try_from(2 * page + len).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: takes plain numbers.
        crate::errno::check(unsafe { libc::ftruncate(fd.as_raw_fd(), end) })?;
        let fd = fd.as_raw_fd();
        let producer = Mapping::new(page + 2 * len, READ_AND_WRITE, 0, fd, page)?;
        producer.remap(page + len, len, fd, 2 * page)?;
        let consumer = Mapping::shared(fd, page)?;
        Ok(Self::new(consumer, producer, page, len))
    }

    /// Makes a value of two mappings. `producer` maps one page, then the `len` bytes of the data
    /// twice.
    fn new(consumer: Mapping, producer: Mapping, page: usize, len: usize) -> Self {
        debug_assert!(producer.len() >= page + 2 * len);
        Self {
            // SAFETY: the data begin one page after the start.
            data: unsafe { producer.base().add(page) },
            mask: len - 1,
            consumer,
            producer,
        }
    }

    /// The consumer's position, which the reader sets. The producer may write records up to this
    /// position plus the length of the ring buffer.
    #[inline]
    pub fn consumer(&self) -> &AtomicU64 {
        self.consumer.word(0)
    }

    /// The position up to which the reader has taken records. The kernel ignores this word. If the
    /// reader dies, the next reader begins at this position.
    #[inline]
    pub fn read(&self) -> &AtomicU64 {
        self.consumer.word(READ)
    }

    /// The position up to which records are reserved. Only the kernel sets it.
    #[inline]
    pub fn producer(&self) -> &AtomicU64 {
        self.producer.word(0)
    }

    /// Takes all records, and ignores their content.
    pub fn clear(&self) {
        let position = self.producer().load(Ordering::Acquire);
        self.consumer().store(position, Ordering::Release);
    }

    /// The first byte of the data. Twice [`RingMapping::len`] bytes can be read from this address
    /// on. The second half repeats the first, so that each record is contiguous.
    #[inline]
    pub fn data(&self) -> NonNull<u8> {
        self.data
    }

    /// Bytes of the ring buffer, a power of two.
    #[inline]
    pub fn len(&self) -> usize {
        self.mask + 1
    }

    /// Always false: every ring buffer has a length above 0.
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Mapping {
    /// Replaces `len` bytes of the mapping, from byte `at` on, by another part of the file.
    fn remap(&self, at: usize, len: usize, fd: RawFd, offset: usize) -> io::Result<()> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        if at.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the check above shows that byte `at` is in the mapping.
        let base = unsafe { self.base().as_ptr().add(at) };
        // SAFETY: the bytes belong to this mapping, to which there is no reference yet.
        let mapped = unsafe { libc::mmap(base.cast(), len, READ_AND_WRITE, flags, fd, offset) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// The word at byte `at` of the first page.
    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at % 8 == 0 && at + 8 <= self.len());
        // SAFETY: each mapping has at least a page.
        let word = unsafe { self.base().add(at) };
        // SAFETY: the word is aligned, and mapped as long as `self`. The kernel also accesses it
        // atomically.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast()) }
    }
}

fn page() -> io::Result<usize> {
    // SAFETY: takes a plain number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).map_err(|_| io::ErrorKind::InvalidData)?;
    (page > READ)
        .then_some(page)
        .ok_or(io::ErrorKind::InvalidData.into())
}

const fn shape(len: u32) -> Shape {
    Shape::new(map::RING_BUFFER, (0, 0), len, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    const LEN: usize = 1 << 16;

    /// The address of a byte of the data, which are mapped twice.
    fn at(mapping: &RingMapping, byte: usize) -> *mut u8 {
        assert!(byte < 2 * mapping.len());
        // SAFETY: the assertion has checked the bounds.
        unsafe { mapping.data().add(byte).as_ptr() }
    }

    #[test]
    fn the_same_memory_without_a_kernel() {
        let mapping = RingMapping::anonymous(LEN).unwrap();
        // SAFETY: the byte is in the first half.
        unsafe { at(&mapping, 5).write_volatile(7) };
        // SAFETY: the byte is in the second half, which repeats the first.
        let again = unsafe { at(&mapping, LEN + 5).read_volatile() };
        assert_eq!(again, 7);
        mapping.consumer().store(1, Relaxed);
        mapping.read().store(2, Relaxed);
        mapping.producer().store(3, Relaxed);
        let words = [mapping.consumer(), mapping.read(), mapping.producer()];
        assert_eq!(words.map(|word| word.load(Relaxed)), [1, 2, 3]);
        assert!(RingMapping::anonymous(LEN + 4096).is_err());
        assert!(RingMapping::anonymous(64).is_err());
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_process_without_privilege_reads_a_ring_buffer() {
        let ring = RingBuffer::create("ring", 1 << 16).unwrap();
        let sent = ring.as_fd().try_clone_to_owned().unwrap();
        let nobody = move || {
            // SAFETY: takes plain numbers. The raw system call changes the user of this thread
            // alone.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
            assert_eq!(rc, 0);
            let created = RingBuffer::create("ring", 1 << 16).unwrap_err();
            assert_eq!(created.raw_os_error(), Some(libc::EPERM));
            let ring = RingBuffer::open(sent).unwrap();
            assert_eq!(ring.len(), LEN);
            let mapping = ring.map().unwrap();
            mapping.read().store(8, Relaxed);
            mapping.producer().load(Relaxed)
        };
        assert_eq!(std::thread::spawn(nobody).join().unwrap(), 0);
        let mapping = ring.map().unwrap();
        drop(ring);
        assert_eq!(mapping.read().load(Relaxed), 8);
        assert_eq!(mapping.consumer().load(Relaxed), 0);
        // SAFETY: this is the last byte of the second half.
        let last = unsafe { at(&mapping, 2 * LEN - 1).read_volatile() };
        assert_eq!(last, 0);
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
