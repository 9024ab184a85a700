//! The poller's socket: members connect, say what they want, and stay connected as long as they
//! live. No member can make the server wait: it neither waits for a message nor for room to send
//! one. It closes the connection of a member that sends anything but the messages of this version.

use crate::device::{Device, Entered, Notice};
use fanpcap_linux::unix::message::{self, Message};
use fanpcap_linux::unix::{self, named};
use fanpcap_linux::wait::{self, Wake, clock};
use fanpcap_poll::message::{Answer, LONGEST, Malformed, Refused, Request};
use std::collections::BTreeMap;
use std::ffi::c_short;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The most connections. Members of other connections than these wait in the socket's backlog.
const CONNECTIONS_MAX: usize = 1024;

/// How long a connection may stay without a *hello*, nanoseconds.
const HELLO_NS: u64 = 5_000_000_000;

/// How long the server accepts no connections after an error, nanoseconds.
const ACCEPTS_NS: u64 = 100_000_000;

/// How many messages of a connection are read in one turn, so that no member keeps the server from
/// the others.
const MESSAGES_MAX: usize = 8;

/// A device, and the connections of its members.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    device: Device,
    connections: BTreeMap<u64, Connection>,
    /// The number of the last connection.
    last: u64,
    /// When to accept connections again, after an error.
    accepts_ns: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    pid: u32,
    since_ns: u64,
    member: Option<u64>,
}

impl Server {
    /// Serves a device on a listening socket ([`named::socket`], [`named::listen`]).
    pub fn new(listener: OwnedFd, device: Device) -> Self {
        Self {
            listener,
            device,
            connections: BTreeMap::new(),
            last: 0,
            accepts_ns: 0,
            buffer: vec![0; LONGEST],
        }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Waits for members, at most for `limit` or until `wake` is signalled, and answers them.
    ///
    /// # Errors
    /// The errors of poll(2).
    pub fn turn(&mut self, wake: Option<&Wake>, limit: Duration) -> io::Result<()> {
        let limit = self.limit(limit);
        let has_room = self.connections.len() < CONNECTIONS_MAX;
        let accepts = has_room && clock::monotonic_ns() >= self.accepts_ns;
        let listener = accepts.then(|| self.listener.as_fd());
        let sockets = self.connections.values().map(|it| Some(it.socket.as_fd()));
        let all = std::iter::once(listener).chain(sockets);
        let (found, _) = match wait::wait_for_any(all, wake, Some(limit)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        };
        let numbers: Vec<u64> = self.connections.keys().copied().collect();
        let events = found.iter().skip(1).zip(numbers);
        let ready: Vec<u64> = events
            .filter(|(events, _): &(&c_short, u64)| **events != 0)
            .map(|(_, number)| number)
            .collect();
        for number in ready {
            if self.take_messages(number).is_none() {
                self.close(number);
            }
        }
        if found.first().is_some_and(|&events| events != 0) && self.accept().is_err() {
            // The process may have as many descriptors as it can have. They may become fewer.
            self.accepts_ns = clock::monotonic_ns() + ACCEPTS_NS;
        }
        let notices = self.device.tick(clock::monotonic_ns());
        self.tell(notices);
        self.close_silent();
        Ok(())
    }

    /// The time until something is due, or `limit` if that is less.
    fn limit(&self, limit: Duration) -> Duration {
        let now_ns = clock::monotonic_ns();
        let due = self.device.due_ns(now_ns).into_iter();
        let due = due.chain(self.accepts_ns.checked_sub(now_ns));
        due.map(Duration::from_nanos).fold(limit, Duration::min)
    }

    fn accept(&mut self) -> io::Result<()> {
        while self.connections.len() < CONNECTIONS_MAX {
            let Some(socket) = named::accept(self.listener.as_fd())? else {
                break;
            };
            self.last += 1;
            let connection = Connection {
                pid: unix::peer(socket.as_fd())?.pid,
                socket,
                since_ns: clock::monotonic_ns(),
                member: None,
            };
            self.connections.insert(self.last, connection);
        }
        Ok(())
    }

    /// Closes connections whose processes have not said *hello* in time.
    fn close_silent(&mut self) {
        let now_ns = clock::monotonic_ns();
        self.connections
            .retain(|_, it| it.member.is_some() || now_ns.saturating_sub(it.since_ns) < HELLO_NS);
    }

    /// Takes the messages of a connection. `None` if the connection is to be closed.
    fn take_messages(&mut self, number: u64) -> Option<()> {
        for _ in 0..MESSAGES_MAX {
            let socket = self.connections.get(&number)?.socket.as_fd();
            // Members send no descriptors.
            let len = match message::receive(socket, &mut self.buffer, 0) {
                Ok(Some(Message { len, .. })) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(()),
                Ok(None) | Err(_) => return None,
            };
            let request = Request::decode(self.buffer.get(..len)?);
            self.handle(number, request)?;
        }
        Some(())
    }

    fn handle(&mut self, number: u64, request: Result<Request, Malformed>) -> Option<()> {
        let now_ns = clock::monotonic_ns();
        let connection = self.connections.get_mut(&number)?;
        let notices = match (connection.member, request) {
            (None, Ok(Request::Hello(hello))) => {
                match self.device.enter(&hello, connection.pid, now_ns) {
                    Ok(entered) => {
                        connection.member = Some(entered.member);
                        welcome(connection.socket.as_fd(), &entered)?;
                    }
                    Err(refused) => {
                        refuse(connection.socket.as_fd(), refused);
                        return None;
                    }
                }
                Vec::new()
            }
            (None, Err(malformed)) => {
                let (slug, text) = ("poller-message".to_owned(), malformed.to_string());
                refuse(connection.socket.as_fd(), Refused { slug, text });
                return None;
            }
            (Some(member), Ok(Request::Reads)) => self.device.reads(member, now_ns),
            (Some(member), Ok(Request::ReadOut(gone))) => {
                self.device.read_out(member, gone, now_ns)
            }
            (Some(member), Ok(Request::Departs)) => {
                self.device.departs(member, now_ns);
                Vec::new()
            }
            (None, Ok(_)) | (Some(_), Ok(Request::Hello(_)) | Err(_)) => return None,
        };
        self.tell(notices);
        Some(())
    }

    /// Sends messages to members. A member that has no room for a message is taken for dead.
    fn tell(&mut self, mut notices: Vec<Notice>) {
        while let Some(notice) = notices.pop() {
            let answer = Answer::Takeover(notice.takeover).encode();
            let mut connections = self.connections.iter();
            let found = connections.find(|(_, it)| it.member == Some(notice.to));
            let Some((&number, connection)) = found else {
                continue;
            };
            let socket = connection.socket.as_fd();
            let sent = answer
                .map_err(|_| io::ErrorKind::InvalidData.into())
                .and_then(|bytes| message::send(socket, &bytes, &[notice.pool.as_fd()]));
            if sent.is_err() {
                notices.extend(self.forget(number));
            }
        }
    }

    fn close(&mut self, number: u64) {
        let notices = self.forget(number);
        self.tell(notices);
    }

    /// Closes a connection. Returns the messages to other members.
    fn forget(&mut self, number: u64) -> Vec<Notice> {
        let connection = self.connections.remove(&number);
        let member = connection.and_then(|it| it.member);
        member.map_or_else(Vec::new, |member| {
            self.device.hang_up(member, clock::monotonic_ns())
        })
    }
}

/// Answers a newcomer that has become a member. `None` if the answer can't be sent.
fn welcome(socket: BorrowedFd<'_>, entered: &Entered) -> Option<()> {
    let bytes = Answer::Welcome(entered.welcome).encode().ok()?;
    let descriptors = entered.descriptors.each_ref().map(AsFd::as_fd);
    message::send(socket, &bytes, &descriptors).ok()
}

/// Answers a newcomer that is refused. Best effort: it may be gone.
fn refuse(socket: BorrowedFd<'_>, refused: Refused) {
    if let Ok(bytes) = Answer::Refused(refused).encode() {
        let _ = message::send(socket, &bytes, &[]);
    }
}
