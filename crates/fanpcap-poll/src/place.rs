//! Where a poller listens for members of a device: the directory of the socket, and its name.
//!
//! Each network namespace has a directory of its own, because devices in two namespaces may have
//! the same name. A member looks there first, and then in the parent directory: a container has a
//! network namespace of its own, and its administrator mounts the directory of another namespace as
//! the parent directory.

use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::file::trusted;
use fanpcap_linux::process::netns;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directory in which all pollers' directories are made.
const BASE: &str = "/run";

/// How often to try to make the directories while other processes remove them when they are empty.
const ATTEMPTS: u32 = 8;

/// The directory of all pollers, in [`BASE`].
const POLLERS: &str = "fanpcap-pollers";

/// The name of the socket that serves a device, for example `packet:eth0`.
pub fn name(engine: &str, device: &str) -> OsString {
    format!("{engine}:{device}").into()
}

/// Where the socket of a device's poller is.
#[derive(Debug)]
pub struct Found {
    /// The directory that has the socket.
    pub directory: Directory,
    /// The socket's name.
    pub name: OsString,
    /// Whether the directory is that of all pollers. The poller and its device are then in another
    /// network namespace, whose administrator mounted the socket there.
    pub is_mounted: bool,
}

/// Finds the socket of a device's poller. Looks in the directory of the calling thread's network
/// namespace, and then in the directory of all pollers. The socket may have no process that
/// listens.
///
/// # Errors
/// `NotFound` if neither directory has the name; [`trusted::Untrusted`] of kind `PermissionDenied`;
/// `InvalidInput` for names with a `/`; the errors of open(2).
pub fn open(engine: &str, device: &str) -> io::Result<Found> {
    open_below(Path::new(BASE), netns::inode()?, engine, device)
}

fn open_below(base: &Path, netns: u64, engine: &str, device: &str) -> io::Result<Found> {
    let name = name(engine, device);
    let all = Trusted::base(base)?.enter(POLLERS)?;
    match all.enter(&of_namespace(netns)) {
        Err(error) if is_absent(&error) => {}
        Err(error) => return Err(error),
        Ok(own) => match own.directory.about(&name) {
            Err(error) if is_absent(&error) => {}
            found => {
                return found.map(|_| Found {
                    directory: own.directory,
                    name,
                    is_mounted: false,
                });
            }
        },
    }
    let found = all.directory.about(&name);
    found.map(|_| Found {
        directory: all.directory,
        name,
        is_mounted: true,
    })
}

/// The names of all sockets that [`open`] finds, in both directories: `packet:eth0`.
pub fn names() -> Vec<OsString> {
    netns::inode().map_or_else(|_| Vec::new(), |netns| names_below(Path::new(BASE), netns))
}

fn names_below(base: &Path, netns: u64) -> Vec<OsString> {
    let Ok(all) = Trusted::base(base).and_then(|base| base.enter(POLLERS)) else {
        return Vec::new();
    };
    let own = all.enter(&of_namespace(netns)).ok();
    let mut names = Vec::new();
    for Trusted { directory, .. } in own.into_iter().chain([all]) {
        let is_socket = |name: &OsString| {
            let about = directory.about(name);
            about.is_ok_and(|it| it.file_type().is_socket())
        };
        names.extend(directory.names().filter(is_socket));
    }
    names.sort();
    names.dedup();
    names
}

/// Opens the directory for the sockets of the calling thread's network namespace, and makes it if
/// needed. Returns the directory and its path.
///
/// # Errors
/// [`trusted::Untrusted`] of kind `PermissionDenied`, and the errors of mkdir(2) and open(2).
pub fn make() -> io::Result<(Directory, PathBuf)> {
    make_below(Path::new(BASE), netns::inode()?)
}

fn make_below(base: &Path, netns: u64) -> io::Result<(Directory, PathBuf)> {
    let base = Trusted::base(base)?;
    let make = || {
        let all = base.enter_or_make(POLLERS)?;
        let own = all.enter_or_make(&of_namespace(netns))?;
        Ok((own.directory, own.path))
    };
    for _ in 1..ATTEMPTS {
        match make() {
            Err(error) if is_absent(&error) => {}
            made => return made,
        }
    }
    make()
}

/// Removes the directory of the calling thread's network namespace, and then the directory of all
/// pollers. Leaves directories that are not empty.
///
/// # Errors
/// `ENOTEMPTY`, and other errors of open(2) and rmdir(2).
pub fn remove_empty() -> io::Result<()> {
    remove_empty_below(Path::new(BASE), netns::inode()?)
}

fn remove_empty_below(base: &Path, netns: u64) -> io::Result<()> {
    let base = Trusted::base(base)?;
    let all = base.enter(POLLERS)?;
    let own = of_namespace(netns);
    all.directory.remove_directory(OsStr::new(&own))?;
    base.directory.remove_directory(OsStr::new(POLLERS))
}

/// Calls `clear` for the directory of each network namespace, those included that no longer exist.
/// `clear` removes what killed pollers have left, and returns whether it has removed anything. Such
/// a directory is then removed if it is empty. Other empty directories stay: a poller that starts
/// may just have made one. Leaves out directories that are not trusted.
///
/// # Errors
/// The errors of open(2) and getdents(2).
pub fn clear_all(clear: impl FnMut(&Directory) -> bool) -> io::Result<()> {
    clear_all_below(Path::new(BASE), clear)
}

fn clear_all_below(base: &Path, mut clear: impl FnMut(&Directory) -> bool) -> io::Result<()> {
    let base = Trusted::base(base)?;
    let all = base.enter(POLLERS)?;
    for name in all.directory.read()? {
        let name = name?;
        let Some(text) = name.to_str().filter(|it| it.starts_with(OF_NAMESPACE)) else {
            continue;
        };
        let Ok(own) = all.enter(text) else { continue };
        if clear(&own.directory) {
            // Best effort: the directory may have other files.
            let _ = all.directory.remove_directory(&name);
        }
    }
    Ok(())
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// How the name of a namespace's directory begins.
const OF_NAMESPACE: &str = "netns-";

fn of_namespace(netns: u64) -> String {
    format!("{OF_NAMESPACE}{netns}")
}

/// A directory that other users can't change, with its path.
struct Trusted {
    directory: Directory,
    path: PathBuf,
}

impl Trusted {
    fn base(path: &Path) -> io::Result<Self> {
        let directory = trusted::base(path)?;
        let path = path.to_owned();
        Ok(Self { directory, path })
    }

    fn enter(&self, name: &str) -> io::Result<Self> {
        self.found(name, trusted::enter(&self.directory, name))
    }

    fn enter_or_make(&self, name: &str) -> io::Result<Self> {
        let made = trusted::enter_or_make_by(&self.directory, name, make_for_all);
        self.found(name, made)
    }

    fn found(&self, name: &str, found: io::Result<Directory>) -> io::Result<Self> {
        Ok(Self {
            directory: found.map_err(|error| trusted::placed(&self.path, error))?,
            path: self.path.join(name),
        })
    }
}

/// Makes a directory that members can read, whatever the umask is.
fn make_for_all(parent: &Directory, name: &OsStr) -> io::Result<()> {
    parent.make(name)?;
    fs::set_permissions(parent.path_to(name)?, Permissions::from_mode(0o755))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
    use std::os::unix::net::UnixListener;

    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let name = format!("fanpcap-place-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            DirBuilder::new().mode(0o755).create(&path).unwrap();
            Self(path)
        }

        fn open(&self, netns: u64) -> io::Result<PathBuf> {
            let found = open_below(&self.0, netns, "packet", "eth0")?;
            let path = found.directory.path_to(&found.name)?.canonicalize()?;
            let path = path.strip_prefix(self.0.canonicalize()?).unwrap();
            assert_eq!(found.is_mounted, path.parent() == Some(Path::new(POLLERS)));
            Ok(path.into())
        }

        fn write(&self, path: &str) {
            fs::write(self.0.join(path), "").unwrap();
        }

        fn set_mode(&self, path: &str, mode: u32) {
            fs::set_permissions(self.0.join(path), Permissions::from_mode(mode)).unwrap();
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn is_untrusted(error: &io::Error) -> bool {
        trusted::is_untrusted(error) && error.kind() == io::ErrorKind::PermissionDenied
    }

    const OWN: &str = "fanpcap-pollers/netns-7";

    #[test]
    fn the_namespaces_own_socket_is_found_before_a_mounted_one() {
        let scene = Scene::new("order");
        let absent = scene.open(7).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        let (_, path) = make_below(&scene.0, 7).unwrap();
        assert_eq!(path, scene.0.join(OWN));
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o755);
        let absent = scene.open(7).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        scene.write("fanpcap-pollers/packet:eth0");
        for netns in [7, 8] {
            let found = scene.open(netns).unwrap();
            assert_eq!(found, Path::new("fanpcap-pollers/packet:eth0"));
        }
        scene.write("fanpcap-pollers/netns-7/packet:eth0");
        let found = scene.open(7).unwrap();
        assert_eq!(found, Path::new("fanpcap-pollers/netns-7/packet:eth0"));
        let other = open_below(&scene.0, 7, "afxdp", "eth0").unwrap_err();
        assert_eq!(other.kind(), io::ErrorKind::NotFound);
        let wrong = open_below(&scene.0, 7, "packet", "../eth0").unwrap_err();
        assert_eq!(wrong.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn directories_that_others_can_change_are_not_trusted() {
        let scene = Scene::new("trust");
        make_below(&scene.0, 7).unwrap();
        scene.write("fanpcap-pollers/netns-7/packet:eth0");
        for path in [OWN, POLLERS] {
            scene.set_mode(path, 0o775);
            assert!(is_untrusted(&scene.open(7).unwrap_err()), "{path}");
            let made = make_below(&scene.0, 7).unwrap_err();
            assert!(is_untrusted(&made), "{path}");
            assert!(made.to_string().contains(path), "{made}");
            scene.set_mode(path, 0o755);
        }
        scene.set_mode("", 0o777);
        assert!(is_untrusted(&scene.open(7).unwrap_err()));
        scene.set_mode("", 0o1777);
        scene.open(7).unwrap();
        fs::rename(scene.0.join(OWN), scene.0.join("moved")).unwrap();
        symlink("../moved", scene.0.join(OWN)).unwrap();
        assert!(is_untrusted(&scene.open(7).unwrap_err()));
    }

    #[test]
    fn directories_are_removed_that_are_empty_after_something_was_removed_from_them() {
        let scene = Scene::new("clear");
        for (netns, files) in [(7, &["left"][..]), (8, &["left", "keep"]), (9, &[])] {
            let (_, path) = make_below(&scene.0, netns).unwrap();
            files
                .iter()
                .for_each(|it| fs::write(path.join(it), "").unwrap());
        }
        let (_, foreign) = make_below(&scene.0, 10).unwrap();
        fs::write(foreign.join("left"), "").unwrap();
        scene.set_mode("fanpcap-pollers/netns-10", 0o777);
        scene.write("fanpcap-pollers/left");
        let clear = |directory: &Directory| directory.remove_file(OsStr::new("left")).is_ok();
        clear_all_below(&scene.0, clear).unwrap();
        let mut left: Vec<_> = fs::read_dir(scene.0.join(POLLERS))
            .unwrap()
            .map(|it| it.unwrap().file_name())
            .collect();
        left.sort_unstable();
        assert_eq!(left, ["left", "netns-10", "netns-8", "netns-9"]);
        assert!(foreign.join("left").exists(), "not trusted");
    }

    #[test]
    fn the_sockets_of_both_directories_are_listed() {
        let scene = Scene::new("names");
        assert!(names_below(&scene.0, 7).is_empty());
        make_below(&scene.0, 7).unwrap();
        let listen = |path: &str| UnixListener::bind(scene.0.join(path)).unwrap();
        let _all = [
            listen("fanpcap-pollers/netns-7/packet:eth0"),
            listen("fanpcap-pollers/afxdp:eth1"),
            listen("fanpcap-pollers/packet:eth0"),
        ];
        scene.write("fanpcap-pollers/netns-7/packet:eth0.lock");
        let expected = ["afxdp:eth1", "packet:eth0"];
        for netns in [7, 8] {
            assert_eq!(names_below(&scene.0, netns), expected, "{netns}");
        }
    }

    #[test]
    fn only_empty_directories_are_removed() {
        let scene = Scene::new("empty");
        make_below(&scene.0, 7).unwrap();
        make_below(&scene.0, 8).unwrap();
        scene.write("fanpcap-pollers/netns-8/packet:eth0");
        remove_empty_below(&scene.0, 8).unwrap_err();
        remove_empty_below(&scene.0, 7).unwrap_err();
        assert!(!scene.0.join(OWN).exists() && scene.0.join(POLLERS).exists());
        fs::remove_file(scene.0.join("fanpcap-pollers/netns-8/packet:eth0")).unwrap();
        remove_empty_below(&scene.0, 8).unwrap();
        assert!(!scene.0.join(POLLERS).exists());
    }
}
