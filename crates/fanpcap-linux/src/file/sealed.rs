//! Text in a memory file (memfd) that no process can change, for other processes.

use crate::errno::{check, owned};
use crate::file::shared;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Creates a memory file with this text. No process can write to it or change its length.
///
/// # Errors
/// The error of memfd_create(2), and the errors of [`shared::write_at`].
pub fn create(text: &str) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    let fd = owned(unsafe { libc::memfd_create(c"fanpcap_text".as_ptr(), flags) })?;
    let file = File::from(fd);
    shared::write_at(&file, text.as_bytes(), 0)?;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    // SAFETY: this command of fcntl takes a number.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) })?;
    Ok(file.into())
}

/// The text of a file that another process has handed over; `None` if it is longer than `longest`
/// bytes, or not UTF-8.
///
/// # Errors
/// The errors of read(2).
pub fn read(fd: OwnedFd, longest: usize) -> io::Result<Option<String>> {
    let file = File::from(fd);
    let mut bytes = vec![0; longest + 1];
    let mut len = 0;
    loop {
        // Not read(2): all processes with this descriptor share the offset.
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
        // A test's output may go to a file.
        let done = limited.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stdout).contains("1 passed"));
    }
}
