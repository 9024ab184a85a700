//! The name of a device's socket, and the lock that only one poller has. The lock ends with the
//! process, so the name that a killed poller has left can be taken over.

use anyhow::{Context, Error, Result, bail};
use fanpcap_linux::file::directory::{Access, Directory};
use fanpcap_linux::file::lock;
use fanpcap_linux::unix::{self, named};
use fanpcap_poll::place::{self, Untrusted};
use fanpcap_poller::server;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
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

/// How often to try to take the lock while other processes make or remove its file.
const ATTEMPTS: u32 = 8;

/// How many connections wait until the poller accepts them.
const BACKLOG: i32 = 64;

/// The longest wait for a process that may listen.
const PATIENCE: Duration = Duration::from_millis(500);

/// Who may connect without `--socket-group`: root. With it, also the users of the group.
const MODE: u32 = 0o660;

impl Name {
    /// Takes the name of a device's socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// Another process serves the device, or the directory can't be made or is not trusted.
    pub(super) fn take(place: &Place) -> Result<Self> {
        let name = place::name(place.kind.name(), &place.device);
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
                Ok(Locked::By(pid)) => bail!(served(place, pid)),
                Ok(Locked::Removed) => {}
                // Another process has removed the empty directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unmade(place, error)),
            }
        }
        bail!("{place}: another process makes and removes the poller's files: try again")
    }

    /// The path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Listens on the name. `group` are the users besides root who may connect.
    pub(super) fn listen(&self, group: Option<u32>) -> Result<OwnedFd> {
        let failed = || format!("the socket {}", self.path.display());
        match self.directory.remove_file(&self.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(failed);
            }
            Ok(()) | Err(_) => {}
        }
        let socket = server::socket().with_context(failed)?;
        let (directory, name) = (&self.directory, &self.name);
        named::listen(socket.as_fd(), directory, name, MODE, BACKLOG).with_context(failed)?;
        if let Some(group) = group {
            // The user stays the same.
            let user = directory.about(name).with_context(failed)?.uid();
            let given = directory.give(name, (user, group));
            given.with_context(|| format!("{} for group {group}", failed()))?;
        }
        // The umask may have removed permissions, and a change of the group does so.
        let path = directory.path_to(name).with_context(failed)?;
        fs::set_permissions(path, Permissions::from_mode(MODE)).with_context(failed)?;
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
    /// Another process has the lock, with this id if it is known.
    By(Option<u32>),
    /// Another process has removed the file.
    Removed,
}

fn try_lock(directory: &Directory, name: &OsStr) -> io::Result<Locked> {
    let lock_name = lock_name(name);
    let file = directory.file(&lock_name, Access::Make)?;
    let file = file.ok_or(io::ErrorKind::InvalidData)?;
    if !lock::try_take(&file)? {
        let connected = named::connect(directory, name, PATIENCE);
        let pid = connected.ok().and_then(|it| pid_of(&it));
        let holder = || lock::holder(&file, 0).map(|it| it.pid);
        return Ok(Locked::By(pid.or_else(holder)));
    }
    let has_name = directory.about(&lock_name).map(|it| it.ino());
    Ok(match has_name {
        Ok(inode) if inode == file.metadata()?.ino() => Locked::Own(file),
        _ => Locked::Removed,
    })
}

/// A device's name has no `/`, so no socket has this name.
fn lock_name(name: &OsStr) -> OsString {
    let mut lock = name.to_owned();
    lock.push(".lock");
    lock
}

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
    let is_untrusted = error.get_ref().is_some_and(|it| it.is::<Untrusted>());
    let is_denied = error.kind() == io::ErrorKind::PermissionDenied && !is_untrusted;
    let what = match is_denied {
        true => format!("{place}: the poller's socket needs root"),
        false => format!("{place}: the poller's socket"),
    };
    Error::new(error).context(what)
}
