//! Reports a service's state to systemd (sd_notify(3)), by a datagram to the socket that
//! `NOTIFY_SOCKET` names. Without this variable, nothing is sent.

use std::env;
use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager's socket.
#[derive(Debug)]
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
}

impl Notify {
    /// The socket that the environment names. Without `NOTIFY_SOCKET`, nothing is sent.
    pub fn from_environment() -> Self {
        Self::to(env::var_os("NOTIFY_SOCKET"))
    }

    fn to(path: Option<OsString>) -> Self {
        let address = path.and_then(|path| match path.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
            _ => SocketAddr::from_pathname(&path).ok(),
        });
        let socket = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        if let Some((socket, _)) = &socket {
            // A service manager that does not read must not stop the service.
            let _ = socket.set_nonblocking(true);
        }
        Self { socket }
    }

    /// Reports that the service has started.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// Reports that the service is alive. Call this at least twice in each `WatchdogSec`.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Reports that the service is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Reports what the service does, in one line, for `systemctl status`.
    pub fn status(&self, line: &str) {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        self.send(&format!("STATUS={line}"));
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            // An error can't be reported anywhere, so it is ignored.
            let _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }
}

#[cfg(test)]
mod tests {
    use fanpcap_testkit::Scratch;

    use super::*;

    #[test]
    fn messages_arrive_by_path_and_by_abstract_name() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("notify");
        let name = format!("fanpcap-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (receiver, told) in [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
                format!("@{name}").into(),
            ),
        ] {
            let notify = Notify::to(Some(told));
            notify.ready();
            notify.status("topology 7\nMAINPID=1");
            let mut buffer = [0; 64];
            let read = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..read], b"READY=1");
            let read = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..read], b"STATUS=topology 7MAINPID=1");
        }
        Notify::to(None).ready();
        Notify::to(Some("/absent".into())).alive();
    }
}
