//! Group directories that root has given to another user.
//!
//! The parent of such a directory is root's, so its user can't remove it. Root's processes take it
//! back when it has no living page. They don't trust what is in it: they only look whether a file
//! is locked, rename the directory, and remove names. The user may have made subdirectories, so
//! that the directory can't be removed, but its name is free.

use fanpcap_engine::root;
use fanpcap_linux::file::directory::{Access, Directory};
use fanpcap_linux::file::lock;
use fanpcap_linux::file::trusted::is_untrusted;
use fanpcap_linux::process::{self, child::is_lack_of_descriptors};
use fanpcap_linux::wait::clock;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;

/// The largest number of directories that are visited on each level when files of dead members are
/// removed.
pub(super) const DIRECTORIES_MAX: usize = 256;

/// The file that keeps a directory given away while a process has it open.
const SERVED: &str = "served";

/// The beginning of the name of a directory that is not given away yet, or that is taken back.
const ASIDE: &str = "aside-";

/// The largest number of names in such a directory that are looked at in one call. The user could
/// make any number of files, and every newcomer of root's comes here.
const NAMES_MAX: usize = 1024;

/// Makes a group directory that belongs to a user and a group of users. Root's processes do not
/// take it back while the result is open.
///
/// # Errors
/// `ENOENT` if another process removed the directory before a file was in it.
pub(super) fn give(netns: &Directory, name: &OsStr, to: (u32, u32)) -> io::Result<File> {
    if netns.about(name).is_ok() {
        remove(netns, name)?;
    }
    // Under the group's name the directory is the user's from the first: root's processes watch
    // only directories that they trust.
    let aside = aside();
    netns.make(&aside)?;
    let made = || {
        let served = netns.enter(&aside)?.create(OsStr::new(SERVED), 0o600)?;
        lock::try_take(&served)?;
        netns.give(&aside, to)?;
        netns.rename(&aside, name).map(|()| served)
    };
    made().inspect_err(|_| _ = clear(netns, &aside))
}

/// A name for a directory that is no group's. No other process has it.
fn aside() -> OsString {
    format!("{ASIDE}{}-{}", std::process::id(), clock::monotonic_ns()).into()
}

/// Takes back a directory that root has given away, if the caller is root and no page in the
/// directory lives. Returns whether the name is free.
pub(super) fn take_back(netns: &Directory, name: &OsStr) -> bool {
    let is_users = || netns.about(name).is_ok_and(|about| about.uid() != 0);
    process::effective_user() == 0 && is_users() && remove(netns, name).is_ok()
}

/// Takes back all directories that root has given away and in which no page lives.
pub(super) fn sweep(netns: &Directory) {
    let is_given = |name: &str| root::enter(netns, name).is_err_and(|it| is_untrusted(&it));
    for name in netns.names().take(DIRECTORIES_MAX) {
        if name.to_str().is_some_and(is_given) {
            take_back(netns, &name);
        }
    }
}

/// Frees the name of a group directory.
fn remove(netns: &Directory, name: &OsStr) -> io::Result<()> {
    let directory = netns.enter(name)?;
    let names = names(&directory)?;
    ensure_dead(&directory, &names)?;
    let is_users = directory.metadata()?.uid() != 0;
    if is_users {
        move_aside(netns, name)
    } else {
        empty(&directory, &names);
        netns.remove_directory(name)
    }
}

/// Checks that none of the files is locked. A file that can't be opened because too many files are
/// open may be locked.
fn ensure_dead(directory: &Directory, names: &[OsString]) -> io::Result<()> {
    let exists = |reason: String| io::Error::new(io::ErrorKind::AlreadyExists, reason);
    if names.len() == NAMES_MAX {
        return Err(exists(format!("{NAMES_MAX} files or more are in it")));
    }
    for name in names {
        let file = match directory.file(name, Access::Read) {
            Err(error) if is_lack_of_descriptors(&error) => return Err(error),
            opened => opened.ok().flatten(),
        };
        let Some(file) = file.filter(|file| lock::is_taken(file).unwrap_or(true)) else {
            continue;
        };
        let by = lock::holder(&file, 0).map_or_else(
            || "a process".to_owned(),
            |holder| format!("process {}", holder.pid),
        );
        let file = name.to_string_lossy().escape_debug().to_string();
        return Err(exists(format!("{by} holds the lock of its file {file}")));
    }
    Ok(())
}

/// Renames a user's directory, and removes it if that is possible. Renames it first: from then on
/// no process takes it for the group's directory.
fn move_aside(netns: &Directory, name: &OsStr) -> io::Result<()> {
    if name.as_encoded_bytes().starts_with(ASIDE.as_bytes()) {
        return clear(netns, name);
    }
    let aside = aside();
    netns.rename(name, &aside)?;
    let moved = netns.enter(&aside)?;
    if let Err(error) = names(&moved).and_then(|names| ensure_dead(&moved, &names)) {
        // A process of the user, or another one of root's, has just begun the group.
        netns.rename(&aside, name)?;
        return Err(error);
    }
    // Best effort: a subdirectory of the user's stays, and then the renamed directory does.
    let _ = clear(netns, &aside);
    Ok(())
}

/// Removes a directory with the files in it. The directory becomes root's first, so that root may
/// remove the files also without `CAP_DAC_OVERRIDE`.
fn clear(netns: &Directory, name: &OsStr) -> io::Result<()> {
    netns.give(name, (0, 0))?;
    let directory = netns.enter(name)?;
    empty(&directory, &names(&directory)?);
    netns.remove_directory(name)
}

fn names(directory: &Directory) -> io::Result<Vec<OsString>> {
    directory.read()?.take(NAMES_MAX).collect()
}

fn empty(directory: &Directory, names: &[OsString]) {
    for name in names {
        let _ = directory.remove_file(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;
    use std::fs;
    use std::os::unix::fs::symlink;

    const NOBODY: (u32, u32) = (65_534, 65_534);

    /// Closes the file. Children that other tests fork have copies of its descriptor until they
    /// execute a program, so the lock is released first.
    fn end(served: File) {
        lock::release_byte(&served, 0).unwrap();
        drop(served);
    }

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
        end(served);
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

    #[test]
    #[ignore = "needs root: chown"]
    fn a_user_keeps_a_group_only_by_a_lock_or_many_files() {
        let scratch = Scratch::new().unwrap();
        fs::create_dir(scratch.file("netns")).unwrap();
        let netns = Directory::open(&scratch.file("netns")).unwrap();
        let (name, path) = (OsStr::new("2.5"), scratch.file("netns/2.5"));
        end(give(&netns, name, NOBODY).unwrap());
        fs::create_dir(path.join("mine")).unwrap();
        fs::write(path.join("mine/file"), "").unwrap();
        // The name is free, though the directory is not removed.
        let served = give(&netns, name, NOBODY).unwrap();
        assert!(!path.join("mine").exists() && path.join(SERVED).exists());
        let kept = give(&netns, name, NOBODY).unwrap_err().to_string();
        let own = std::process::id();
        assert_eq!(
            kept,
            format!("process {own} holds the lock of its file served")
        );
        end(served);
        // A later sweep leaves one directory of each user's subdirectory, under a name of no group.
        sweep(&netns);
        let left: Vec<_> = netns.names().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        assert!(left[0].to_string_lossy().starts_with(ASIDE));
        end(give(&netns, name, NOBODY).unwrap());
        for file in 0..=NAMES_MAX {
            fs::write(path.join(file.to_string()), "").unwrap();
        }
        assert!(!take_back(&netns, name));
        let kept = give(&netns, name, NOBODY).unwrap_err().to_string();
        assert_eq!(kept, "1024 files or more are in it");
    }
}
