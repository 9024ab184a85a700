//! Handles and copies that wait for a device that is gone. Each of them has a Unix socket with an
//! abstract name that contains the device's name, so that every process of the network namespace
//! sees who waits for which device. Nothing is sent to these sockets.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The room for a device's name and a NUL (linux/if.h).
const IFNAMSIZ: usize = 16;

/// The beginning of the sockets' names.
const PREFIX: &str = "fanpcap-waits/";

/// The socket whose name shows what its owner waits for, until it is dropped.
#[derive(Debug)]
pub struct Sign(#[expect(dead_code, reason = "holds the name")] UnixDatagram);

impl Sign {
    /// Shows that the handle whose packet socket has this inode waits for `device`.
    ///
    /// # Errors
    /// The errors of socket(2) and bind(2).
    pub fn of_handle(device: &str, inode: u64) -> io::Result<Self> {
        Self::named(device, &inode.to_string())
    }

    /// Shows that a copy of this process's `fanpcap run`, which does not run now, waits for
    /// `device`.
    ///
    /// # Errors
    /// As [`Sign::of_handle`].
    pub fn of_copy(device: &str, copy: usize) -> io::Result<Self> {
        let pid = std::process::id();
        Self::named(device, &format!("{pid}.{copy}"))
    }

    fn named(device: &str, who: &str) -> io::Result<Self> {
        let name = SocketAddr::from_abstract_name(format!("{PREFIX}{device}/{who}"))?;
        UnixDatagram::bind_addr(&name).map(Self)
    }
}

/// Somebody who waits for a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The device's name.
    pub device: String,
    /// The inode of the packet socket of the handle that waits; `None` for a copy. Any process may
    /// make such a name, so the caller checks that this socket is bound to no device.
    pub socket: Option<u32>,
}

/// Everybody who waits for a device in the calling thread's network namespace.
///
/// # Errors
/// The error of reading `/proc/thread-self/net/unix`.
pub fn all() -> io::Result<Vec<Waiting>> {
    let sockets = fs::read("/proc/thread-self/net/unix")?;
    let sockets = String::from_utf8_lossy(&sockets);
    Ok(sockets.lines().filter_map(waiting).collect())
}

/// The owner of a socket in this line of the kernel's list (net/unix/af_unix.c, `unix_seq_show`).
fn waiting(line: &str) -> Option<Waiting> {
    let (_, name) = line.split_once(" @")?;
    let (device, who) = name.strip_prefix(PREFIX)?.split_once('/')?;
    // As `dev_valid_name` (net/core/dev.c). Such a name may come from any process.
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || c == ':';
    if device.is_empty() || device.len() >= IFNAMSIZ || device.contains(is_odd) {
        return None;
    }
    let socket = who.parse().ok();
    let is_copys = || {
        who.split_once('.')
            .is_some_and(|it| it.1.parse::<u32>().is_ok())
    };
    (socket.is_some() || is_copys()).then(|| Waiting {
        device: device.to_owned(),
        socket,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who waits for `device`.
    fn of(device: &str) -> Vec<Option<u32>> {
        let all = all().unwrap().into_iter();
        let mut found: Vec<_> = all.filter(|it| it.device == device).collect();
        found.sort_by_key(|it| it.socket);
        found.into_iter().map(|it| it.socket).collect()
    }

    #[test]
    fn everybody_sees_who_waits_until_it_ends() {
        // No other process uses this name.
        let device = format!("w.{}", std::process::id());
        assert!(of(&device).is_empty());
        let handle = Sign::of_handle(&device, 4711).unwrap();
        let copies = [0, 1].map(|copy| Sign::of_copy(&device, copy).unwrap());
        let taken = Sign::of_copy(&device, 1).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(of(&device), [None, None, Some(4711)]);
        drop(copies);
        assert_eq!(of(&device), [Some(4711)]);
        drop(handle);
        assert!(of(&device).is_empty());
    }

    #[test]
    fn other_names_are_nobodys() {
        let line = |name: &str| {
            let line = format!("0000000000000000: 00000002 00000000 00000000 0002 01 71216 {name}");
            waiting(&line).map(|it| (it.device, it.socket))
        };
        let eth0 = |socket| Some(("eth0".to_owned(), socket));
        assert_eq!(line("@fanpcap-waits/eth0/7"), eth0(Some(7)));
        assert_eq!(line("@fanpcap-waits/eth0/7.0"), eth0(None));
        for other in [
            "",
            "/run/x",
            "fanpcap-waits/eth0/7",
            "@fanpcap-waits/eth0",
            "@fanpcap-waits/eth0/",
            "@fanpcap-waits/eth0/x",
            "@fanpcap-waits/eth0/7.x",
            "@fanpcap-waits//7",
            "@fanpcap-waits/eth0\u{1b}[2J/7",
            "@fanpcap-waits/eth0:1/7",
            "@fanpcap-waits/a234567890123456/7",
            "@other/eth0/7",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
    }
}
