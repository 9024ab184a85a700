//! Memory files (memfd) for other processes, of two kinds. A file with a text: no process can
//! change it. A file that processes share as memory: they can write to it, but can't change its
//! length.

use crate::errno::{check, owned};
use crate::file::shared;
use crate::memory::Memory;
use std::ffi::{CStr, c_int};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Creates a memory file with this text. No process can write to it or change its length.
///
/// # Errors
/// The error of memfd_create(2), and the errors of [`shared::write_at`].
pub fn create(text: &str) -> io::Result<OwnedFd> {
    let file = new(c"fanpcap_text")?;
    shared::write_at(&file, text.as_bytes(), 0)?;
    seal(&file, FIXED | libc::F_SEAL_WRITE)?;
    Ok(file.into())
}

/// Creates and maps a memory file of `len` zeros. No process can change the file's length. Needs no
/// capability.
///
/// # Errors
/// The error of memfd_create(2), the errors of [`shared::write_at`], and `EINVAL` for length 0.
pub fn create_memory(name: &CStr, len: u32) -> io::Result<Memory> {
    let file = new(name)?;
    if let Some(last) = len.checked_sub(1) {
        shared::write_at(&file, &[0], last.into())?;
    }
    seal(&file, FIXED)?;
    Memory::map(file.into(), len)
}

/// Maps a memory file of `len` bytes that another process has made with [`create_memory`].
///
/// # Errors
/// `InvalidData` when the file has another length, or when a process could change the length.
/// `EINVAL` when the file is not a memory file.
pub fn open_memory(fd: OwnedFd, len: u32) -> io::Result<Memory> {
    let file = File::from(fd);
    let is_fixed = seals(&file)? & FIXED == FIXED;
    match is_fixed && file.metadata()?.len() == u64::from(len) {
        true => Memory::map(file.into(), len),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Whether a descriptor is that of a memory file.
pub fn is_memory(fd: BorrowedFd<'_>) -> bool {
    seals(&fd).is_ok()
}

fn new(name: &CStr) -> io::Result<File> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = owned(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
    Ok(File::from(fd))
}

/// The seals that prevent every change of a file's length and of its seals.
const FIXED: c_int = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

fn seal(file: &File, seals: c_int) -> io::Result<()> {
    // SAFETY: this command of fcntl takes a number.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })
}

fn seals(file: &impl AsRawFd) -> io::Result<c_int> {
    // SAFETY: this command of fcntl takes no argument.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    check(seals).map(|()| seals)
}

/// Reads the text of a file that another process has handed over. `None` if the text is longer than
/// `longest` bytes, or is not UTF-8.
///
/// # Errors
/// The errors of read(2).
pub fn read(fd: OwnedFd, longest: usize) -> io::Result<Option<String>> {
    let file = File::from(fd);
    let mut bytes = vec![0; longest + 1];
    let mut len = 0;
    loop {
        // Reads at an offset (pread(2)), because all processes with this descriptor share the
        // offset that read(2) uses.
        match file.read_at(&mut bytes[len..], len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    bytes.truncate(len);
    Ok(String::from_utf8(bytes).ok().filter(|_| len <= longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn the_text_is_read_whole_and_cannot_be_changed() {
        let fd = create("main = steer_flow").unwrap();
        let mut writer = File::from(fd.as_fd().try_clone_to_owned().unwrap());
        assert!(writer.write_all(b"x").is_err() && writer.set_len(3).is_err());
        let again = |longest| read(fd.as_fd().try_clone_to_owned().unwrap(), longest).unwrap();
        for _ in 0..2 {
            assert_eq!(again(17).as_deref(), Some("main = steer_flow"));
        }
        assert_eq!(again(16), None);
    }

    #[test]
    fn memory_is_shared_and_keeps_its_length() {
        let memory = create_memory(c"fanpcap_test", 65_536).unwrap();
        let file = || File::from(memory.as_fd().try_clone_to_owned().unwrap());
        assert!(file().set_len(65_535).is_err() && file().set_len(65_537).is_err());
        assert!(is_memory(memory.as_fd()));
        let other = open_memory(file().into(), 65_536).unwrap();
        other.bytes()[65_535].store(7, Relaxed);
        assert_eq!(memory.bytes()[65_535].load(Relaxed), 7);
        let part = other.part_to_read(61_440, 4096).unwrap();
        // SAFETY: the mapping has 4096 bytes.
        let last = unsafe { part.base().add(4095) };
        // SAFETY: as above.
        assert_eq!(unsafe { last.read_volatile() }, 7);
        assert!(other.part(61_440, 4097).is_err() && other.part(usize::MAX, 2).is_err());
        let wrong = open_memory(file().into(), 65_535).unwrap_err();
        assert_eq!(wrong.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_file_that_could_be_shortened_is_refused() {
        let open = new(c"fanpcap_test").unwrap();
        open.set_len(4096).unwrap();
        let refused = open_memory(open.into(), 4096).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        let null = File::open("/dev/null").unwrap();
        assert!(!is_memory(null.as_fd()));
        let refused = open_memory(null.into(), 4096).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_process_that_may_make_no_files_gets_an_error_and_no_signal() {
        const NAME: &str =
            "file::sealed::tests::a_process_that_may_make_no_files_gets_an_error_and_no_signal";
        if std::env::var_os("FANPCAP_NO_FILES").is_some() {
            let error = create("main = steer_flow").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EFBIG));
            return;
        }
        let own = std::env::current_exe().unwrap();
        let mut limited = std::process::Command::new("prlimit");
        limited.args(["--fsize=0", "--core=0"]).arg(own);
        limited.args(["--exact", NAME]).env("FANPCAP_NO_FILES", "1");
        // The test's output may go to a file, where the limit forbids writes. So a pipe takes the
        // output.
        let done = limited.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"));
    }
}
