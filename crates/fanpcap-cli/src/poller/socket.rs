//! The name of a device's socket, and the lock that only one poller has. The lock ends with the
//! process, so the name that a killed poller has left can be taken over.

use anyhow::{Context, Error, Result, bail};
use fanpcap_linux::file::directory::{Access, Directory};
use fanpcap_linux::file::{lock, trusted};
use fanpcap_linux::unix::{self, named};
use fanpcap_poll::place;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::place::Place;

/// The name of a device's socket, which this process alone may use. When this value is dropped, the
/// name is removed.
#[derive(Debug)]
pub(super) struct Name {
    directory: Directory,
    path: PathBuf,
    name: OsString,
    /// The lock lasts as long as this file is open.
    _lock: File,
}

/// How often to try to take the lock while other processes make or remove its file, or have the
/// lock and do not listen.
const ATTEMPTS: u32 = 40;

/// The time between two attempts to take a lock that another process has.
const PAUSE: Duration = Duration::from_millis(25);

/// How many connections wait until the poller accepts them.
const BACKLOG: i32 = 64;

/// The longest wait for a process that may listen.
const PATIENCE: Duration = Duration::from_millis(500);

/// Who may connect without `--socket-group`: root. With it, also the users of the group.
const MODE: u32 = 0o660;

/// With a policy file, all users may connect, and the poller answers those who may not become
/// members.
const MODE_FOR_ALL: u32 = 0o666;

impl Name {
    /// Takes the name of a device's socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// Another process serves the device, or the directory can't be made or is not trusted.
    pub(super) fn take(place: &Place) -> Result<Self> {
        let name = place::name(place.kind.name(), &place.device);
        let mut held = None;
        for _ in 0..ATTEMPTS {
            let (directory, path) = place::make().map_err(|error| unmade(place, error))?;
            match try_lock(&directory, &name) {
                Ok(Locked::Own(lock)) => {
                    // Before the value that removes the name.
                    ensure_nobody_listens(&directory, &name, place)?;
                    return Ok(Self {
                        directory,
                        path: path.join(&name),
                        name,
                        _lock: lock,
                    });
                }
                Ok(Locked::By(listener)) => bail!(served(place, pid_of(&listener))),
                Ok(Locked::Held(file)) => {
                    held = Some(file);
                    thread::sleep(PAUSE);
                }
                Ok(Locked::Removed) => {}
                // Another process has removed the empty directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unmade(place, error)),
            }
        }
        let Some(held) = held else {
            bail!("{place}: another process makes and removes the poller's files: try again");
        };
        bail!(served(place, lock::holder(&held, 0).map(|it| it.pid)))
    }

    /// The path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Listens on the name. `group` are the users besides root who may connect, unless all users
    /// may. The caller must not close the socket before it has accepted all that wait there, since
    /// the close waits for what their messages carry. So nothing fails after others can connect.
    pub(super) fn listen(&self, group: Option<u32>, all_may: bool) -> Result<OwnedFd> {
        let mode = if all_may { MODE_FOR_ALL } else { MODE };
        let failed = || format!("the socket {}", self.path.display());
        match self.directory.remove_file(&self.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(failed);
            }
            Ok(()) | Err(_) => {}
        }
        let socket = named::socket().with_context(failed)?;
        let (directory, name) = (&self.directory, &self.name);
        named::bind(socket.as_fd(), directory, name, mode).with_context(failed)?;
        if let Some(group) = group {
            // The user stays the same.
            let user = directory.about(name).with_context(failed)?.uid();
            let given = directory.give(name, (user, group));
            given.with_context(|| format!("{} for group {group}", failed()))?;
        }
        // The umask may have removed permissions, and a change of the group does so.
        let path = directory.path_to(name).with_context(failed)?;
        fs::set_permissions(path, Permissions::from_mode(mode)).with_context(failed)?;
        named::let_connect(socket.as_fd(), BACKLOG).with_context(failed)?;
        Ok(socket)
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        // Best effort: the next poller takes over what is left.
        let _ = self.directory.remove_file(&self.name);
        let _ = self.directory.remove_file(&lock_name(&self.name));
        let _ = place::remove_empty();
    }
}

/// Removes the names that killed pollers have left, in the directories of all network namespaces: a
/// later namespace may have the number of one that has ended. Best effort: without root, the names
/// stay.
pub(super) fn remove_left() {
    let clear = |directory: &Directory| {
        let names = directory.names();
        names.filter(|lock| remove_name(directory, lock)).count() > 0
    };
    let _ = place::clear_all(clear);
}

/// Removes the name of the socket that this lock is for, and the lock, if no poller has the lock.
/// Returns whether it has removed them. A poller that takes the lock meanwhile waits, and makes
/// another file.
fn remove_name(directory: &Directory, lock: &OsStr) -> bool {
    let Some(name) = lock.as_bytes().strip_suffix(LOCK.as_bytes()) else {
        return false;
    };
    let name = OsStr::from_bytes(name);
    let Ok(Some(file)) = directory.file(lock, Access::Write) else {
        return false;
    };
    // A process that has no lock may listen.
    let is_left = matches!(lock::try_take(&file), Ok(true))
        && has_name(&file, directory, lock)
        && named::connect(directory, name, PATIENCE).is_err_and(|error| {
            let kind = error.kind();
            [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound].contains(&kind)
        });
    if is_left {
        let _ = directory.remove_file(name);
    }
    is_left && directory.remove_file(lock).is_ok()
}

/// Checks that no process that has no lock listens on the name.
fn ensure_nobody_listens(directory: &Directory, name: &OsStr, place: &Place) -> Result<()> {
    match named::connect(directory, name, PATIENCE) {
        Ok(connection) => bail!(served(place, pid_of(&connection))),
        // The listener is there, but does not accept connections.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => bail!(served(place, None)),
        Err(_) => Ok(()),
    }
}

enum Locked {
    Own(File),
    /// Another process has the lock, and listens at the other end of this connection.
    By(OwnedFd),
    /// Another process has the lock and does not listen: it starts or ends, or removes what a
    /// killed one has left.
    Held(File),
    /// Another process has removed the file.
    Removed,
}

fn try_lock(directory: &Directory, name: &OsStr) -> io::Result<Locked> {
    let lock_name = lock_name(name);
    let file = directory.file(&lock_name, Access::Make)?;
    let file = file.ok_or(io::ErrorKind::InvalidData)?;
    if !lock::try_take(&file)? {
        let connected = named::connect(directory, name, PATIENCE);
        return Ok(connected.map_or(Locked::Held(file), Locked::By));
    }
    Ok(match has_name(&file, directory, &lock_name) {
        true => Locked::Own(file),
        false => Locked::Removed,
    })
}

/// Whether an open file still has its name.
fn has_name(file: &File, directory: &Directory, name: &OsStr) -> bool {
    let inodes = [directory.about(name), file.metadata()].map(|it| it.map(|it| it.ino()).ok());
    inodes[0].is_some() && inodes[0] == inodes[1]
}

/// The name of the lock for a socket's name.
fn lock_name(name: &OsStr) -> OsString {
    let mut lock = name.to_owned();
    lock.push(LOCK);
    lock
}

/// How the name of a lock ends.
const LOCK: &str = ".lock";

/// The process that listens at the other end of a connection.
fn pid_of(connection: &OwnedFd) -> Option<u32> {
    let peer = unix::peer(connection.as_fd()).ok()?;
    // The process may be in another PID namespace.
    Some(peer.pid).filter(|pid| *pid > 0)
}

fn served(place: &Place, pid: Option<u32>) -> String {
    let who = pid.map_or("another process".to_owned(), |pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("process {pid} ({})", name.trim_end())
    });
    format!("{who} serves {place} already: end it first, or let members use it")
}

fn unmade(place: &Place, error: io::Error) -> Error {
    let is_untrusted = trusted::is_untrusted(&error);
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied && !is_untrusted;
    let what = match is_denied {
        true => format!("{place}: the poller's socket needs root"),
        false => format!("{place}: the poller's socket"),
    };
    Error::new(error).context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with a poller's files for the devices a to d.
    struct Scene(PathBuf);

    impl Scene {
        fn new() -> (Self, Directory) {
            let name = format!("fanpcap-poller-left-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir(&path).unwrap();
            let directory = Directory::open(&path).unwrap();
            (Self(path), directory)
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_names_are_removed_that_no_poller_has() {
        let (_scene, directory) = Scene::new();
        let open = |name: &str| directory.file(OsStr::new(name), Access::Make).unwrap();
        let listen = |name: &str| {
            let socket = named::socket().unwrap();
            let name = OsStr::new(name);
            named::listen(socket.as_fd(), &directory, name, MODE, 1).unwrap();
            socket
        };
        // Killed; killed before it listened; alive; alive, without its lock.
        let locks = ["a", "b", "c", "d"].map(|it| open(&format!("{it}.lock")).unwrap());
        drop(listen("a"));
        let _listens = [listen("c"), listen("d")];
        assert!(lock::try_take(&locks[2]).unwrap());
        let _not_locked = listen("e");
        let names = ["a.lock", "b.lock", "c.lock", "d.lock", "e", "f.lock"].map(OsStr::new);
        let removed = names.map(|name| remove_name(&directory, name));
        assert_eq!(removed, [true, true, false, false, false, false]);
        let mut left: Vec<_> = directory.names().collect();
        left.sort_unstable();
        assert_eq!(left, ["c", "c.lock", "d", "d.lock", "e"]);
    }
}
