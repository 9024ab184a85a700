//! Unix sockets with a name in a directory: listen, connect, accept.

use crate::errno::{check, owned};
use crate::file::directory::{Directory, single};
use crate::option::{get, set};
use crate::wait::clock;
use std::ffi::{OsStr, c_int};
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

/// Opens a socket without a name, for [`listen`]. The socket does not block and is closed on exec.
///
/// # Errors
/// The error of socket(2).
pub fn socket() -> io::Result<OwnedFd> {
    super::open(libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK)
}

/// Whether a descriptor is a socket like those of [`socket`]. Callers check descriptors from other
/// processes with this function.
///
/// # Errors
/// `ENOTSOCK` when `fd` is not a socket.
pub fn is_for_names(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let domain: c_int = get(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)?;
    let kind: c_int = get(fd, libc::SOL_SOCKET, libc::SO_TYPE)?;
    // SAFETY: takes plain numbers.
    let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) };
    check(flags)?;
    let is_unix = (domain, kind) == (libc::AF_UNIX, libc::SOCK_SEQPACKET);
    Ok(is_unix && flags & libc::O_NONBLOCK != 0)
}

/// Gives a socket this name in `directory`, so that processes can connect to the socket. `mode` and
/// the umask determine who may connect, because a process needs write permission to connect. At
/// most `backlog` connections wait for [`accept`].
///
/// # Errors
/// Those of [`bind`] and [`let_connect`].
pub fn listen(
    socket: BorrowedFd<'_>,
    directory: &Directory,
    name: &OsStr,
    mode: u32,
    backlog: i32,
) -> io::Result<()> {
    bind(socket, directory, name, mode)?;
    let_connect(socket, backlog)
}

/// Gives a socket this name in `directory`, as [`listen`] does. No process can connect before
/// [`let_connect`].
///
/// # Errors
/// - `EADDRINUSE` when the name exists, even if no process listens on the socket with that name.
/// - `EINVAL` when the socket already has a name.
/// - `InvalidInput` for a name of more than about 70 bytes (sun_path, unix(7)).
/// - Other errors of bind(2).
pub fn bind(
    socket: BorrowedFd<'_>,
    directory: &Directory,
    name: &OsStr,
    mode: u32,
) -> io::Result<()> {
    let fd = socket.as_raw_fd();
    // SAFETY: takes plain numbers. The file that bind(2) makes gets the socket's mode (af_unix.c,
    // `unix_bind_bsd`).
    check(unsafe { libc::fchmod(fd, mode) })?;
    let mut path = place(directory.fd());
    path.push(b'/');
    path.extend(single(name)?.as_bytes());
    let (address, len) = address(&path)?;
    // SAFETY: the address is live and has `len` bytes.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), len) })
}

/// Lets processes connect to a socket that has a name. At most `backlog` connections wait for
/// [`accept`].
///
/// # Errors
/// The error of listen(2).
pub fn let_connect(socket: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: takes plain numbers.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) })
}

/// Connects to the socket with this name in `directory`. Waits until the listener has room for one
/// more connection, at most for `limit`. Does not follow a link.
///
/// # Errors
/// - `ENOENT` when the name does not exist.
/// - `ENOTSOCK` when the name is that of a file that is not a socket.
/// - `EPROTOTYPE` when the name is that of another kind of socket.
/// - `ECONNREFUSED` when no process listens.
/// - `EACCES` when the caller has no write permission for the socket.
/// - `TimedOut` after `limit`.
pub fn connect(directory: &Directory, name: &OsStr, limit: Duration) -> io::Result<OwnedFd> {
    connect_as(libc::SOCK_SEQPACKET, directory, name, limit)
}

/// Connects as [`connect`] does, for a socket that carries a stream of bytes (`SOCK_STREAM`).
/// `limit` is also the socket's time limit for sending.
///
/// # Errors
/// As [`connect`].
pub fn connect_stream(directory: &Directory, name: &OsStr, limit: Duration) -> io::Result<OwnedFd> {
    connect_as(libc::SOCK_STREAM, directory, name, limit)
}

fn connect_as(
    kind: c_int,
    directory: &Directory,
    name: &OsStr,
    limit: Duration,
) -> io::Result<OwnedFd> {
    let place_of_socket = directory.place(name)?;
    if !place_of_socket.metadata()?.file_type().is_socket() {
        return Err(io::Error::from_raw_os_error(libc::ENOTSOCK));
    }
    let (address, len) = address(&place(place_of_socket.as_raw_fd()))?;
    let socket = super::open(kind)?;
    let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    let due = clock::monotonic_ns().saturating_add(limit);
    loop {
        wait_until(&socket, due)?;
        // SAFETY: the address is live and has `len` bytes.
        match check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) })
        {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            result => return result.map(|()| socket),
        }
    }
}

/// Accepts the next connection, and returns its socket; `None` when no connection waits. The socket
/// does not block and is closed on exec.
///
/// # Errors
/// `EINVAL` when the socket has no name yet, and other errors of accept(2).
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    let (address, len) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the call writes no address, because both pointers are null.
    match owned(unsafe { libc::accept4(listener.as_raw_fd(), address, len, flags) }) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        result => result.map(Some),
    }
}

/// Makes connect(2) wait at most until `due` (`SO_SNDTIMEO`). poll(2) could not do the waiting,
/// because it does not report that the listener has room.
fn wait_until(socket: &OwnedFd, due: u64) -> io::Result<()> {
    // A time of zero would mean no limit.
    let microseconds = (due.saturating_sub(clock::monotonic_ns()) / 1000).max(1);
    let time = libc::timeval {
        tv_sec: libc::time_t::try_from(microseconds / 1_000_000).unwrap_or(libc::time_t::MAX),
        tv_usec: libc::suseconds_t::try_from(microseconds % 1_000_000).unwrap_or(0),
    };
    set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, &time)
}

/// Returns a path to the file behind a descriptor. The path is valid even if the file has been
/// renamed.
fn place(fd: i32) -> Vec<u8> {
    format!("/proc/thread-self/fd/{fd}").into_bytes()
}

fn address(path: &[u8]) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let mut address = libc::sockaddr_un {
        sun_family: 1, // AF_UNIX, in the type of this field
        sun_path: [0; 108],
    };
    if path.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    let len = offset_of!(libc::sockaddr_un, sun_path) + path.len() + 1;
    debug_assert!(len <= size_of::<libc::sockaddr_un>());
    Ok((address, libc::socklen_t::try_from(len).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unix::message::{receive, send};
    use crate::unix::peer;
    use crate::wait::pipe::hangs_up;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;

    const SOON: Duration = Duration::from_millis(20);

    /// A directory for one test, with a path longer than a socket address can hold.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> (Self, Directory) {
            let name = format!("fanpcap-unix-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let inner = path.join("x".repeat(200));
            fs::create_dir_all(&inner).unwrap();
            let directory = Directory::open(&inner).unwrap();
            (Self(path), directory)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join("x".repeat(200)).join(name)
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    fn listener(directory: &Directory, name: &str, backlog: i32) -> io::Result<OwnedFd> {
        let socket = socket()?;
        listen(socket.as_fd(), directory, OsStr::new(name), 0o600, backlog)?;
        Ok(socket)
    }

    #[test]
    fn nobody_connects_to_a_name_before_its_socket_listens() {
        let (_scene, directory) = Scene::new("bound");
        let socket = socket().unwrap();
        bind(socket.as_fd(), &directory, name("join"), 0o600).unwrap();
        let error = connect(&directory, name("join"), SOON).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let_connect(socket.as_fd(), 1).unwrap();
        assert!(connect(&directory, name("join"), SOON).is_ok());
    }

    #[test]
    fn a_connection_carries_messages_and_tells_its_ends() {
        let (scene, directory) = Scene::new("connection");
        let listener = listener(&directory, "join", 1).unwrap();
        let mode = fs::metadata(scene.path("join")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        assert!(accept(listener.as_fd()).unwrap().is_none());
        let client = connect(&directory, name("join"), SOON).unwrap();
        let server = accept(listener.as_fd()).unwrap().unwrap();
        for end in [&client, &server] {
            let peer = peer(end.as_fd()).unwrap();
            assert_eq!(peer.pid, std::process::id());
            assert_eq!(peer.user, crate::process::effective_user());
        }
        send(client.as_fd(), b"hello", &[listener.as_fd()]).unwrap();
        let mut buffer = [0; 8];
        let message = receive(server.as_fd(), &mut buffer, 1).unwrap().unwrap();
        assert_eq!((message.len, message.descriptors.len()), (5, 1));
        drop(client);
        assert!(hangs_up(server.as_fd()));
        assert!(receive(server.as_fd(), &mut buffer, 1).unwrap().is_none());
    }

    #[test]
    fn another_kind_of_descriptor_is_told() {
        assert!(is_for_names(socket().unwrap().as_fd()).unwrap());
        let [blocks, _other] = crate::unix::pair().unwrap();
        assert!(!is_for_names(blocks.as_fd()).unwrap());
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        assert!(!is_for_names(udp.as_fd()).unwrap());
        let file = fs::File::open("/proc/self/stat").unwrap();
        assert!(is_for_names(file.as_fd()).is_err());
    }

    #[test]
    fn a_listener_for_streams_that_does_not_accept_is_not_waited_for_for_ever() {
        let (scene, _) = Scene::new("stream");
        let directory = Directory::open(&scene.0).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(scene.0.join("s")).unwrap();
        // SAFETY: takes plain numbers; the descriptor is open.
        check(unsafe { libc::listen(listener.as_raw_fd(), 0) }).unwrap();
        let other = connect(&directory, name("s"), SOON).unwrap_err();
        assert_eq!(other.raw_os_error(), Some(libc::EPROTOTYPE));
        let _first = connect_stream(&directory, name("s"), SOON).unwrap();
        let full = connect_stream(&directory, name("s"), SOON).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn who_does_not_accept_is_not_waited_for_for_ever() {
        let (_scene, directory) = Scene::new("full");
        let _listener = listener(&directory, "join", 0).unwrap();
        let _first = connect(&directory, name("join"), SOON).unwrap();
        let begin = clock::monotonic_ns();
        let full = connect(&directory, name("join"), SOON).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::TimedOut);
        let waited = Duration::from_nanos(clock::monotonic_ns() - begin);
        assert!(waited >= SOON / 2, "{waited:?}");
    }

    #[test]
    fn names_that_lead_nowhere_are_refused() {
        let (scene, directory) = Scene::new("nowhere");
        let failed = |name: &str| {
            let error = connect(&directory, OsStr::new(name), SOON).unwrap_err();
            error.raw_os_error()
        };
        assert_eq!(failed("none"), Some(libc::ENOENT));
        fs::write(scene.path("file"), "").unwrap();
        assert_eq!(failed("file"), Some(libc::ENOTSOCK));
        drop(listener(&directory, "left", 1).unwrap());
        // A child of another test may have a copy of the socket until exec(2), so the first
        // attempts may still connect.
        let refused = |_| {
            let connected = connect(&directory, name("left"), SOON);
            connected.is_err_and(|error| error.raw_os_error() == Some(libc::ECONNREFUSED))
        };
        assert!((0..500).any(refused));
        let taken = listener(&directory, "left", 1).unwrap_err();
        assert_eq!(taken.raw_os_error(), Some(libc::EADDRINUSE));
        let _listener = listener(&directory, "join", 1).unwrap();
        symlink("join", scene.path("link")).unwrap();
        assert_eq!(failed("link"), Some(libc::ENOTSOCK));
        for path in ["", "a/b", &"y".repeat(100)] {
            let refused = listener(&directory, path, 1).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}
