//! Where the root is, and foreign files in its place.

use super::*;
use fanpcap_linux::file::trusted::Untrusted;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

/// A path that is on no file system in memory.
const DISK: &str = "/proc";

/// A directory in memory with the mode of `/dev/shm`.
struct Memory(PathBuf);

impl Memory {
    fn new(name: &str) -> Self {
        let name = format!("fanpcap-root-{name}-{}", std::process::id());
        let path = Path::new(SHM).join(name);
        fs::create_dir(&path).unwrap();
        let memory = Self(path);
        memory.set_mode("", 0o1777);
        memory
    }

    fn root(&self) -> Root {
        Root::of(Path::new(DISK), &self.0).unwrap()
    }

    fn set_mode(&self, name: &str, mode: u32) {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(self.0.join(name), permissions).unwrap();
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_foreign(result: io::Result<Directory>) -> bool {
    result.is_err_and(|error| {
        let is = error.get_ref().is_some_and(|inner| inner.is::<Untrusted>());
        is && error.kind() == io::ErrorKind::PermissionDenied
    })
}

#[test]
fn run_comes_first_if_it_is_in_memory() {
    let memory = Memory::new("first");
    let found = Root::of(&memory.0, Path::new(DISK)).unwrap();
    assert_eq!(found.path(), memory.0.join("fanpcap/v7"));
}

#[test]
fn without_memory_there_is_none() {
    let error = Root::of(Path::new(DISK), Path::new(DISK)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(ENODEV));
}

#[test]
fn who_only_reads_makes_nothing() {
    let memory = Memory::new("reads");
    let error = memory.root().open().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(!memory.0.join(NAME).exists());
}

#[test]
fn what_others_may_have_put_there_is_refused() {
    let memory = Memory::new("others");
    let planted = memory.0.join(NAME);
    let is_refused = || is_foreign(memory.root().open());
    symlink("/", &planted).unwrap();
    assert!(is_refused(), "a link to a directory that belongs to root");
    fs::remove_file(&planted).unwrap();
    fs::write(&planted, "").unwrap();
    assert!(is_refused(), "a file instead of the directory");
    fs::remove_file(&planted).unwrap();
    fs::create_dir(&planted).unwrap();
    for mode in [0o775, 0o757, 0o1777] {
        memory.set_mode(NAME, mode);
        assert!(is_refused(), "{mode:o}");
    }
    memory.set_mode(NAME, 0o755);
    fs::create_dir(planted.join(VERSION)).unwrap();
    memory.set_mode("fanpcap/v7", 0o777);
    assert!(
        is_refused(),
        "every user can write to this version's directory"
    );
    let versions = planted.join(VERSION);
    let begin = format!("{} is not trusted", versions.display());
    for error in [memory.root().open(), memory.root().make()] {
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(&begin), "{error}");
    }
}

#[test]
fn a_base_in_which_others_rename_is_refused() {
    let memory = Memory::new("base");
    for mode in [0o777, 0o775] {
        memory.set_mode("", mode);
        assert!(is_foreign(memory.root().make()), "{mode:o}");
        assert!(!memory.0.join(NAME).exists());
    }
}

#[test]
#[ignore = "needs root: makes the directory as root and changes its owner"]
fn root_makes_it_and_moves_aside_what_others_made() {
    let memory = Memory::new("makes");
    let own = memory.0.join(NAME);
    let is_roots = || {
        memory.root().make().unwrap();
        let about = fs::symlink_metadata(&own).unwrap();
        about.is_dir() && about.uid() == 0 && about.mode() & 0o777 == 0o755
    };
    assert!(is_roots());
    fs::write(own.join("kept"), "").unwrap();
    chown(&own, Some(65_534), None).unwrap();
    let error = memory.root().open().unwrap_err().to_string();
    assert!(error.contains("(user 65534, mode 755)"), "{error}");
    assert!(is_roots() && !own.join("kept").exists());
    fs::remove_dir_all(&own).unwrap();
    symlink("/etc", &own).unwrap();
    assert!(is_roots());
    fs::remove_dir_all(&own).unwrap();
    fs::write(&own, "").unwrap();
    assert!(is_roots());
    // The directory `fanpcap`, and the three foreign files that it has replaced.
    assert_eq!(fs::read_dir(&memory.0).unwrap().count(), 4);
    assert!(is_roots() && fs::read_dir(&memory.0).unwrap().count() == 4);
}
