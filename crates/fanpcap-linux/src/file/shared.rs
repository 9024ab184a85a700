//! A small mapped file of 64-bit counters. One process updates the counters, and all others can
//! read them at any time.

use crate::errno::check;
use crate::mapping::Mapping;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One counter. Any thread and any forked child can use it. The counter stays valid as long as a
/// copy of this value exists, even if the file is removed.
#[derive(Clone, Debug)]
pub struct Word {
    at: NonNull<AtomicU64>,
    _memory: Arc<Memory>,
}

// SAFETY: the memory lives as long as the word, and all accesses to it are atomic.
unsafe impl Send for Word {}

// SAFETY: as for `Send`.
unsafe impl Sync for Word {}

#[derive(Debug)]
enum Memory {
    /// A mapped file. All processes that map the file share this memory. A child shares it with its
    /// parent.
    Mapped(Mapping),
    /// Memory of this process, with its number of words. A forked child has a copy.
    Own(NonNull<AtomicU64>, usize),
}

// SAFETY: the memory belongs to the process, not to a thread, and is freed once.
unsafe impl Send for Memory {}

// SAFETY: only the words access the memory, by atomics.
unsafe impl Sync for Memory {}

/// Writes `content` to the start of the file, in native byte order, and maps the file. The file
/// must be open for reading and writing.
///
/// If the file system is full, the write returns an error. Without the write, the first store to
/// the mapping would kill the process (`SIGBUS`).
///
/// # Errors
/// The errors of [`write_at`], such as `ENOSPC`, and of mmap(2).
pub fn map<const N: usize>(file: &File, content: &[u64; N]) -> io::Result<[Word; N]> {
    let bytes: Vec<u8> = content.iter().flat_map(|word| word.to_ne_bytes()).collect();
    write_at(file, &bytes, 0)?;
    map_first(file)
}

/// Writes `bytes` at offset `at` of a file, which may be a memory file.
///
/// # Errors
/// The errors of write(2). `EFBIG` if the process may not write files of that size, even if the
/// file is already that large. Without this check, the write would kill the process (`SIGXFSZ`,
/// setrlimit(2)).
pub fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    if file_size_limit()? < at + bytes.len() as u64 {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    file.write_all_at(bytes, at)
}

/// Maps the first words of a file, which another process has written. The file must be open for
/// reading and writing.
///
/// # Errors
/// `InvalidData` when the file is shorter than these words, and the error of mmap(2).
pub fn join<const N: usize>(file: &File) -> io::Result<[Word; N]> {
    match file.metadata()?.len() < (N * 8) as u64 {
        true => Err(io::ErrorKind::InvalidData.into()),
        false => map_first(file),
    }
}

fn map_first<const N: usize>(file: &File) -> io::Result<[Word; N]> {
    let memory = Mapping::shared(file.as_raw_fd(), N * 8)?;
    Ok(words(Memory::Mapped(memory)))
}

/// The words of a mapping from byte `at` on, which is a multiple of 8. `None` if the mapping is too
/// short.
pub fn within<const N: usize>(mapping: Mapping, at: usize) -> Option<[Word; N]> {
    let end = at.checked_add(N * 8)?;
    (at % 8 == 0 && end <= mapping.len()).then(|| words_at(Memory::Mapped(mapping), at / 8))
}

/// Returns the size in bytes of the largest file that the process may write (`RLIMIT_FSIZE`).
///
/// # Errors
/// The error of getrlimit(2).
pub fn file_size_limit() -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the target is a live struct rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) })?;
    Ok(limit.rlim_cur)
}

/// Makes counters in the process's own memory, without a file.
pub fn own<const N: usize>(content: &[u64; N]) -> [Word; N] {
    let memory: Box<[AtomicU64]> = content.iter().map(|&word| AtomicU64::new(word)).collect();
    let base = NonNull::from(Box::leak(memory)).cast();
    words(Memory::Own(base, N))
}

fn words<const N: usize>(memory: Memory) -> [Word; N] {
    words_at(memory, 0)
}

/// The words from the word with number `first` on. The memory has all of them.
fn words_at<const N: usize>(memory: Memory, first: usize) -> [Word; N] {
    let base = match &memory {
        Memory::Mapped(mapping) => mapping.base().cast(),
        Memory::Own(base, _) => *base,
    };
    let memory = Arc::new(memory);
    std::array::from_fn(|index| Word {
        // SAFETY: the memory has N words from `first` on, which both callers have made sure of.
        at: unsafe { base.add(first + index) },
        _memory: Arc::clone(&memory),
    })
}

impl Word {
    /// The current value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.atomic().load(Ordering::Relaxed)
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, value: u64) {
        self.atomic().store(value, Ordering::Relaxed);
    }

    /// Adds to the value atomically.
    #[inline]
    pub fn add(&self, more: u64) {
        self.atomic().fetch_add(more, Ordering::Relaxed);
    }

    /// Sets the value and returns the former value.
    pub fn swap(&self, value: u64) -> u64 {
        self.atomic().swap(value, Ordering::AcqRel)
    }

    /// Sets the value to `to` if it is `from`. Returns whether the value was `from`.
    pub fn replace(&self, from: u64, to: u64) -> bool {
        let word = self.atomic();
        let replaced = word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        replaced.is_ok()
    }

    /// Increments the word by one, runs `work`, and decrements the word. If the process is killed
    /// during `work`, the word stays incremented.
    pub fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        self.add(1);
        let done = work();
        self.atomic().fetch_sub(1, Ordering::Relaxed);
        done
    }

    #[inline]
    fn atomic(&self) -> &AtomicU64 {
        // SAFETY: the word is aligned, because mappings and boxes of words are aligned. The word is
        // valid as long as `self`.
        unsafe { self.at.as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Self::Own(base, len) = *self {
            let words = NonNull::slice_from_raw_parts(base, len);
            // SAFETY: `own` has leaked the box, and no word refers to it any more.
            drop(unsafe { Box::from_raw(words.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::directory::Directory;

    fn in_file(file: &File) -> [u64; 2] {
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        [word(0), word(8)]
    }

    fn unnamed() -> File {
        let directory = Directory::open(&std::env::temp_dir()).unwrap();
        directory.create_unnamed().unwrap()
    }

    #[test]
    fn what_is_counted_is_in_the_file_at_once() {
        let file = unnamed();
        let [first, second] = map(&file, &[7, 0]).unwrap();
        assert_eq!(in_file(&file), [7, 0]);
        second.set(40);
        second.add(2);
        drop(second);
        first.set(8);
        assert_eq!(in_file(&file), [8, 42]);
    }

    #[test]
    fn threads_lose_nothing_to_each_other() {
        let file = unnamed();
        for [word] in [map(&file, &[0]).unwrap(), own(&[0])] {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| (0..1000).for_each(|_| word.add(1)));
                }
            });
            assert_eq!(word.get(), 4000);
        }
    }

    #[test]
    fn a_file_system_without_room_says_so_before_anything_is_mapped() {
        // Every write to this file fails as on a full file system (full(4)).
        let full = File::options().read(true).write(true).open("/dev/full");
        let error = map(&full.unwrap(), &[0; 2]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    }
}
