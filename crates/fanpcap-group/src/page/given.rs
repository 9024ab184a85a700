//! Group directories that root has given to another user.
//!
//! The parent of such a directory is root's, so its user can't remove it. Root's processes take it
//! back when it has no living page. They don't trust what is in it: they only look whether a file
//! is locked, and remove names.

use fanpcap_engine::root;
use fanpcap_linux::file::directory::{Access, Directory};
use fanpcap_linux::file::lock;
use fanpcap_linux::process;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The largest number of directories that are visited on each level when files of dead members are
/// removed.
pub(super) const DIRECTORIES_MAX: usize = 256;

/// The file that keeps a directory given away while a process has it open.
const SERVED: &str = "served";

/// The largest number of names in such a directory that are looked at in one call. The user could
/// make any number of files, and every newcomer of root's comes here.
const NAMES_MAX: usize = 1024;

/// How often to try: another process may remove the directory before a file is in it.
const ATTEMPTS: u32 = 8;

/// Makes a group directory that belongs to a user and a group of users. Root's processes do not
/// take it back while the result is open.
pub(super) fn give(netns: &Directory, name: &OsStr, to: (u32, u32)) -> io::Result<File> {
    for _ in 1..ATTEMPTS {
        match try_to_give(netns, name, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            given => return given,
        }
    }
    try_to_give(netns, name, to)
}

fn try_to_give(netns: &Directory, name: &OsStr, to: (u32, u32)) -> io::Result<File> {
    if netns.about(name).is_ok() && !remove(netns, name) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    netns.make(name)?;
    let served = netns.enter(name)?.create(OsStr::new(SERVED), 0o600)?;
    lock::try_take(&served)?;
    netns.give(name, to)?;
    Ok(served)
}

/// Removes a directory that root has given away, if the caller is root and no page in the
/// directory lives. Returns whether the directory is removed.
pub(super) fn take_back(netns: &Directory, name: &OsStr) -> bool {
    let is_users = || netns.about(name).is_ok_and(|about| about.uid() != 0);
    process::effective_user() == 0 && is_users() && remove(netns, name)
}

/// Removes all directories that root has given away and in which no page lives.
pub(super) fn sweep(netns: &Directory) {
    let is_given = |name: &str| root::enter(netns, name).is_err_and(|it| root::is_foreign(&it));
    for name in netns.names().take(DIRECTORIES_MAX) {
        if name.to_str().is_some_and(is_given) {
            take_back(netns, &name);
        }
    }
}

fn remove(netns: &Directory, name: &OsStr) -> bool {
    let Ok(directory) = netns.enter(name) else {
        return false;
    };
    let lives = |name: &OsStr| {
        let file = directory.file(name, Access::Read).ok().flatten();
        file.is_some_and(|file| lock::is_taken(&file).unwrap_or(true))
    };
    let names: Vec<_> = directory.names().take(NAMES_MAX).collect();
    if names.iter().any(|name| lives(name)) {
        return false;
    }
    for name in names {
        // A subdirectory stays, and then the group directory does.
        let _ = directory.remove_file(&name);
    }
    netns.remove_directory(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;
    use std::fs;
    use std::os::unix::fs::symlink;

    const NOBODY: (u32, u32) = (65_534, 65_534);

    #[test]
    #[ignore = "needs root: chown"]
    fn a_given_directory_is_taken_back_when_nothing_in_it_lives() {
        let scratch = Scratch::new().unwrap();
        let outside = scratch.write("outside", "kept").unwrap();
        fs::create_dir(scratch.file("netns")).unwrap();
        let netns = Directory::open(&scratch.file("netns")).unwrap();
        let (name, path) = (OsStr::new("2.5"), scratch.file("netns/2.5"));
        let served = give(&netns, name, NOBODY).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().uid(), NOBODY.0);
        sweep(&netns);
        assert!(path.exists() && give(&netns, name, NOBODY).is_err());
        drop(served);
        // What the user may leave there.
        symlink(&outside, path.join("9.9")).unwrap();
        fs::write(path.join("1.1"), "no page").unwrap();
        sweep(&netns);
        assert!(!path.exists());
        assert_eq!(fs::read_to_string(outside).unwrap(), "kept");
        // A directory of root's is not given away, whoever may write to it.
        fs::create_dir(&path).unwrap();
        assert!(!take_back(&netns, name) && path.exists());
    }
}
