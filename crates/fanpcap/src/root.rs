//! Where the pages of all network namespaces are: in memory, and where nobody but root can have put them.

use fanpcap_linux::{file, process};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Only root makes names here.
const RUN: &str = "/run";

/// Where `/run` is on a disk, as in many containers. Here everybody makes names.
const SHM: &str = "/dev/shm";

const NAME: &str = "fanpcap";

/// Bits of a directory's mode that let group or others write.
const OTHERS_WRITE: u32 = 0o022;

/// The directory of all pages, which need not be there yet below `/run`.
///
/// # Errors
/// `ENOENT` before root has made it below `/dev/shm`; `EPERM` when what is there is not root's alone;
/// `ENODEV` when neither place is in memory. There are no pages then.
pub fn root() -> io::Result<PathBuf> {
    find(Path::new(RUN), Path::new(SHM), |_| Ok(()))
}

/// The same for a member, or who waits for one: it is made if that may be.
///
/// # Errors
/// As [`root`].
pub fn make_root() -> io::Result<PathBuf> {
    find(Path::new(RUN), Path::new(SHM), make)
}

fn find(run: &Path, shm: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<PathBuf> {
    let in_run = run.join(NAME);
    // It may be a mount of its own.
    if file::is_in_memory(&in_run)
        .or_else(|_| file::is_in_memory(run))
        .unwrap_or(false)
    {
        return Ok(in_run);
    }
    if !file::is_in_memory(shm).unwrap_or(false) {
        return Err(io::Error::from_raw_os_error(ENODEV));
    }
    let in_shm = shm.join(NAME);
    make(&in_shm)?;
    // It can't be replaced after this: others can't rename or remove what is root's in a sticky directory.
    ensure_roots_alone(&in_shm)?;
    Ok(in_shm)
}

fn make(directory: &Path) -> io::Result<()> {
    if process::effective_user() != 0 {
        return Ok(());
    }
    match DirBuilder::new().mode(0o755).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

fn ensure_roots_alone(directory: &Path) -> io::Result<()> {
    // Not followed, should it be a link.
    let about = fs::symlink_metadata(directory)?;
    if about.is_dir() && about.uid() == 0 && about.mode() & OTHERS_WRITE == 0 {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

const ENODEV: i32 = 19;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    /// On no file system in memory.
    const DISK: &str = "/proc";

    /// A directory in memory.
    struct Memory(PathBuf);

    impl Memory {
        fn new(name: &str) -> Self {
            let name = format!("fanpcap-root-{name}-{}", std::process::id());
            let path = Path::new(SHM).join(name);
            fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn run_comes_first_if_it_is_in_memory() {
        let memory = Memory::new("first");
        let refuse = |_: &Path| Err(io::ErrorKind::Other.into());
        let found = find(&memory.0, Path::new(DISK), refuse).unwrap();
        assert_eq!(found, memory.0.join(NAME));
    }

    #[test]
    fn without_memory_there_is_none() {
        let error = find(Path::new(DISK), Path::new(DISK), make).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(ENODEV));
    }

    #[test]
    fn who_only_reads_makes_nothing() {
        let memory = Memory::new("reads");
        let error = find(Path::new(DISK), &memory.0, |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(!memory.0.join(NAME).exists());
    }

    #[test]
    fn what_others_may_have_put_there_is_refused() {
        let memory = Memory::new("others");
        let planted = memory.0.join(NAME);
        let is_refused = || {
            let error = find(Path::new(DISK), &memory.0, make).unwrap_err();
            error.kind() == io::ErrorKind::PermissionDenied
        };
        symlink("/", &planted).unwrap();
        assert!(is_refused(), "a link to a directory of root's");
        fs::remove_file(&planted).unwrap();
        fs::write(&planted, "").unwrap();
        assert!(is_refused(), "a file");
        fs::remove_file(&planted).unwrap();
        fs::create_dir(&planted).unwrap();
        for mode in [0o775, 0o757] {
            fs::set_permissions(&planted, fs::Permissions::from_mode(mode)).unwrap();
            assert!(is_refused(), "{mode:o}");
        }
    }

    #[test]
    #[ignore = "needs root: makes the directory as root and gives it away"]
    fn root_makes_it_and_only_roots_is_taken() {
        let memory = Memory::new("makes");
        let found = find(Path::new(DISK), &memory.0, make).unwrap();
        assert_eq!(fs::metadata(&found).unwrap().mode() & 0o777, 0o755);
        assert!(find(Path::new(DISK), &memory.0, |_| Ok(())).is_ok());
        chown(&found, Some(65_534), None).unwrap();
        let error = find(Path::new(DISK), &memory.0, make).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
