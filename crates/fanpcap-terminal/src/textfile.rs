//! Replaces a metrics file atomically, as node_exporter's textfile collector requires. Follows no
//! link of another user.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use fanpcap_linux::file::directory::{Directory, is_roots_or_own};

/// Longest chain of links, as in the kernel (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Mode of the written file if it replaces no file, or replaces a file that belongs neither to root
/// nor to this user.
const MODE: u32 = 0o644;

/// Writes `text` to `path`. The file gets its name only when it is complete. Until then it has a
/// name that the collector ignores, because the collector reads only `*.prom`. If the file that
/// it replaces belongs to root or to this user, the new file keeps that file's mode and group.
///
/// # Errors
/// `path` does not lead to a regular file, or leads through another user's link; or a system call
/// failed.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let Destination {
        directory,
        name,
        before,
    } = Destination::of(path)?;
    let mut unfinished = OsString::from(".");
    unfinished.push(&name);
    unfinished.push(format!(".{}.part", std::process::id()));
    let written = write_new(&directory, &unfinished, before.as_ref(), text)
        .and_then(|()| directory.rename(&unfinished, &name));
    if written.is_err() {
        // An error here is ignored, because the first error is reported.
        let _ = directory.remove_file(&unfinished);
    }
    written
}

/// Checks that [`write`] finds the directory of `path`, and no directory or other thing than a file
/// at `path`.
///
/// # Errors
/// As [`write`].
pub fn check(path: &Path) -> io::Result<()> {
    Destination::of(path).map(drop)
}

/// The directory and name of the file to write.
#[derive(Debug)]
struct Destination {
    directory: Directory,
    name: OsString,
    /// The file to replace, if it exists.
    before: Option<Metadata>,
}

impl Destination {
    /// Resolves `path` to the file to replace. The kernel follows links to directories, by its own
    /// rules. This function follows links to the file one by one, to check the owner of each link.
    fn of(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        let mut parent = None;
        for _ in 0..LINKS_MAX {
            let (directory, name) = split(parent.as_deref(), &path)?;
            let place = Directory::open(&directory)?;
            let about = match place.about(&name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                about => Some(about?),
            };
            let Some((target, link)) = about.as_ref().map_or(Ok(None), |_| place.link(&name))?
            else {
                return Self::at(place, name, about, parent.is_some());
            };
            if !is_roots_or_own(&link) {
                let user = link.uid();
                return Err(wrong(&format!(
                    "this is a link of user {user}'s: remove it"
                )));
            }
            path = target;
            parent = Some(directory);
        }
        Err(wrong("this link leads to ever more links"))
    }

    fn at(
        directory: Directory,
        name: OsString,
        before: Option<Metadata>,
        is_linked: bool,
    ) -> io::Result<Self> {
        match &before {
            None if is_linked => Err(wrong("this link leads nowhere: remove it")),
            Some(about) if !about.is_file() => Err(wrong(
                "this is no regular file: name a file, or a name that is free",
            )),
            _ => Ok(Self {
                directory,
                name,
                before,
            }),
        }
    }
}

/// Splits `path` into a directory and a name. A link's target is relative to the directory of the
/// link.
fn split(parent: Option<&Path>, path: &Path) -> io::Result<(PathBuf, OsString)> {
    let name = path
        .file_name()
        .ok_or_else(|| wrong("this names no file"))?;
    let directory = path.parent().unwrap_or(Path::new(""));
    let directory = parent.unwrap_or(Path::new("")).join(directory);
    let directory = match directory.as_os_str().is_empty() {
        true => ".".into(),
        false => directory,
    };
    Ok((directory, name.to_owned()))
}

/// Writes a new file. `O_EXCL` prevents the kernel from following a link with that name.
fn write_new(
    directory: &Directory,
    name: &OsStr,
    before: Option<&Metadata>,
    text: &str,
) -> io::Result<()> {
    let mut file = directory.create(name, MODE)?;
    if let Some(before) = before.filter(|before| is_roots_or_own(before)) {
        keep(&file, before)?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn keep(file: &File, before: &Metadata) -> io::Result<()> {
    // fchown(2) fails if this user is neither root nor a member of the group.
    let is_kept = fchown(file, None, Some(before.gid())).is_ok();
    let mode = before.mode() & 0o777;
    // The group bits of the mode were meant for the old group. Another group must not get them.
    let mode = if is_kept { mode } else { mode & !0o070 };
    file.set_permissions(fs::Permissions::from_mode(mode))
}

fn wrong(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;
    use std::os::unix::fs::{FileTypeExt, lchown, symlink};
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_stays_beside_it() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("fanpcap.prom");
        for text in ["a long first text", "short"] {
            write(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let beside = fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(beside.count(), 1);
    }

    #[test]
    fn links_stay_and_what_is_no_file_is_not_replaced() {
        let scratch = Scratch::new().unwrap();
        let (file, link, socket) = (
            scratch.file("file"),
            scratch.file("link"),
            scratch.file("s"),
        );
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        write(&link, "new").unwrap();
        assert!(link.is_symlink() && fs::read_to_string(&file).unwrap() == "new");
        let _listener = UnixListener::bind(&socket).unwrap();
        let nowhere = scratch.file("nowhere");
        symlink(scratch.file("absent"), &nowhere).unwrap();
        for wrong in [&socket, &nowhere] {
            let error = write(wrong, "text").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        assert!(!fs::metadata(&socket).unwrap().is_file() && nowhere.is_symlink());
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 4);
    }

    #[test]
    fn a_file_keeps_its_mode() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("fanpcap.prom");
        for mode in [0o640, 0o604] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            write(&path, "new").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode);
        }
    }

    #[test]
    #[ignore = "needs root: gives a link and a file to another user"]
    fn links_of_others_are_not_followed_and_their_files_not_kept() {
        let scratch = Scratch::new().unwrap();
        let [file, first, second] = ["file", "first", "second"].map(|name| scratch.file(name));
        fs::write(&file, "old").unwrap();
        symlink("file", &second).unwrap();
        symlink(&second, &first).unwrap();
        write(&first, "new").unwrap();
        lchown(&second, Some(65_534), None).unwrap();
        for link in [&first, &second] {
            let error = write(link, "text").unwrap_err().to_string();
            assert!(error.contains("a link of user 65534's"), "{error}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        lchown(&file, Some(65_534), None).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        write(&file, "root's").unwrap();
        let about = fs::metadata(&file).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o777), (0, 0o644));
    }

    #[test]
    fn what_can_not_be_written_leaves_nothing() {
        let scratch = Scratch::new().unwrap();
        let taken = scratch.file("directory");
        fs::create_dir(&taken).unwrap();
        write(&taken, "text").unwrap_err();
        write(Path::new(".."), "text").unwrap_err();
        assert_eq!(fs::read_dir(taken.parent().unwrap()).unwrap().count(), 1);
    }

    /// The test uses a FIFO instead of a device: if `write` has a bug, the test must not replace a
    /// device of the machine.
    #[test]
    fn a_device_or_a_fifo_is_not_replaced() {
        let scratch = Scratch::new().unwrap();
        let (fifo, link) = (scratch.file("fifo"), scratch.file("link"));
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success(), "{made}");
        symlink(&fifo, &link).unwrap();
        let before = fs::symlink_metadata(&fifo).unwrap().ino();
        for path in [&fifo, &link] {
            let error = write(path, "text").unwrap_err().to_string();
            assert!(error.contains("no regular file"), "{error}");
        }
        let after = fs::symlink_metadata(&fifo).unwrap();
        assert!(after.ino() == before && after.file_type().is_fifo() && link.is_symlink());
        assert_eq!(fs::read_dir(fifo.parent().unwrap()).unwrap().count(), 2);
    }
}
