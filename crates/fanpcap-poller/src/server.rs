//! The poller's socket: members connect, say what they want, and stay connected as long as they
//! live. No member can make the server wait: it neither waits for a message nor for room to send
//! one. It closes the connection of a member that sends anything but the messages of this version.

mod closer;
mod questions;
mod times;

use crate::access::{Grant, STRANGER};
use crate::device::{Device, Entered, MANY_CONNECTIONS, Notice, refused};
use crate::limits::Taken;
use closer::Closer;
use fanpcap_linux::process::child::open_files_max;
use fanpcap_linux::unix::plain::PlainConnection;
use fanpcap_linux::unix::{self, Peer, message, named};
use fanpcap_linux::wait::{self, Wake, clock};
use fanpcap_poll::message::{Answer, Hello, LONGEST, Malformed, Question, Refused, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_short;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use times::Times;

/// How long a connection may stay without a *hello*, nanoseconds.
const HELLO_NS: u64 = 5_000_000_000;

/// How long the server does not try again after an error for which a member has no fault, such as
/// too many open files, nanoseconds.
const AGAIN_NS: u64 = 100_000_000;

/// How many connections are accepted in one turn.
const ACCEPTS_MAX: usize = 64;

/// Which part of its open files the process gives to refused connections that are not closed yet:
/// one in so many. The process may have a server for each of several devices.
const PART_OF_FILES: u64 = 8;

/// A device, and the connections of its members.
#[derive(Debug)]
pub struct Server {
    listener: OwnedFd,
    device: Device,
    connections: BTreeMap<u64, Connection>,
    closer: Closer,
    /// How many refused connections may be open. With more of them, the server accepts nobody.
    refused_max: u64,
    /// The number of the last connection.
    last: u64,
    /// When to accept connections again, after an error.
    accepts_ns: u64,
    /// The users of whom a newcomer has said *hello* in this turn. Their next newcomers wait for
    /// the next turn, so that a user with many newcomers delays another user's newcomer by one of
    /// its own at most: to make a pool takes milliseconds.
    greeted: BTreeSet<u32>,
    times: Times,
    /// Messages that the kernel could not send now, and when to try again.
    unsent: Vec<Notice>,
    sends_ns: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Connection {
    socket: PlainConnection,
    peer: Peer,
    /// The user for whom it counts.
    account: u32,
    /// What it may take.
    grant: Grant,
    since_ns: u64,
    /// The answer to the *hello* of a process that may not become a member.
    refused: Option<Refused>,
    member: Option<u64>,
    /// Whether the process watches a group.
    watches: bool,
}

impl Server {
    /// Serves a device on a listening socket ([`named::listen`]).
    pub fn new(listener: OwnedFd, device: Device) -> Self {
        Self {
            listener,
            device,
            connections: BTreeMap::new(),
            closer: Closer::default(),
            refused_max: open_files_max().unwrap_or(1024) / PART_OF_FILES,
            last: 0,
            accepts_ns: 0,
            greeted: BTreeSet::new(),
            times: Times::default(),
            unsent: Vec::new(),
            sends_ns: 0,
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
        let accepts = self.has_room() && clock::monotonic_ns() >= self.accepts_ns;
        let listener = accepts.then(|| self.listener.as_fd());
        let sockets = self.connections.values().map(|it| Some(it.socket.as_fd()));
        let all = std::iter::once(listener).chain(sockets);
        let (found, _) = match wait::wait_for_any(all, wake, Some(limit)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        };
        let connections = self.connections.iter();
        let connections = connections.map(|(number, it)| (it.account, *number));
        let events = found.iter().skip(1).zip(connections);
        let is_ready = |(events, _): &(&c_short, (u32, u64))| **events != 0;
        let ready: Vec<(u32, u64)> = events.filter(is_ready).map(|(_, it)| it).collect();
        self.take_turns(ready);
        if found.first().is_some_and(|&events| events != 0) && self.accept().is_err() {
            // The process may have as many descriptors as it can have. They may become fewer.
            self.accepts_ns = clock::monotonic_ns() + AGAIN_NS;
        }
        let notices = self.device.tick(clock::monotonic_ns());
        self.tell(notices);
        self.send_again();
        self.close_silent();
        Ok(())
    }

    /// The time until something is due, or `limit` if that is less.
    fn limit(&self, limit: Duration) -> Duration {
        let now_ns = clock::monotonic_ns();
        let due = self.device.due_ns(now_ns).into_iter();
        let due = due.chain(self.accepts_ns.checked_sub(now_ns));
        let sends_ns = self.sends_ns.saturating_sub(now_ns);
        let due = due.chain((!self.unsent.is_empty()).then_some(sends_ns));
        due.map(Duration::from_nanos).fold(limit, Duration::min)
    }

    /// The connections of each user, those included that are not closed yet.
    fn taken(&mut self) -> Taken {
        let open = self.connections.values().map(|it| (it.account, 1));
        self.closer.open().chain(open).collect()
    }

    fn has_room(&mut self) -> bool {
        let closing = self.closer.open().count();
        let all = self.device.limits().connections.all;
        let has_files = (self.closer.refused() as u64) < self.refused_max;
        has_files && ((self.connections.len() + closing) as u64) < all
    }

    /// Accepts connections, until that has taken long. What is left comes in the next turn. To
    /// refuse a connection takes long if many epoll instances watch the other end.
    fn accept(&mut self) -> io::Result<()> {
        self.times.begin_part();
        for _ in 0..ACCEPTS_MAX {
            if !self.has_room() {
                break;
            }
            let begin_ns = clock::thread_cpu_ns();
            let Some(socket) = named::accept(self.listener.as_fd())? else {
                break;
            };
            let account = self.let_in(socket)?;
            if !self.times.add(account, clock::thread_cpu_ns() - begin_ns) {
                break;
            }
        }
        Ok(())
    }

    /// Takes a connection that was accepted, or refuses it if its user has too many. Returns the
    /// user for whom it counts.
    fn let_in(&mut self, socket: OwnedFd) -> io::Result<u32> {
        let peer = unix::peer(socket.as_fd())?;
        let account = self.device.account(peer.user);
        // If they can't be read, no rule for a group counts.
        let mut groups = unix::peer_groups(socket.as_fd()).unwrap_or_default();
        groups.push(peer.group);
        let socket = PlainConnection::new(socket)?;
        let (grant, refused_by) = match self.device.let_in(peer.user, &groups) {
            Ok(grant) => (grant, None),
            Err(refused) => (STRANGER, Some(refused)),
        };
        let limit = grant.limits(*self.device.limits()).connections;
        if limit.check(&self.taken(), account, 1).is_err() {
            let refused = refused("poller-connections", MANY_CONNECTIONS);
            refuse(socket.as_fd(), refused);
            self.closer.close_refused(account, socket);
            return Ok(account);
        }
        self.last += 1;
        let connection = Connection {
            peer,
            account,
            grant,
            socket,
            since_ns: clock::monotonic_ns(),
            refused: refused_by,
            member: None,
            watches: false,
        };
        self.connections.insert(self.last, connection);
        Ok(account)
    }
    /// Closes connections whose processes have not said *hello* in time, and watch no group, until
    /// that has taken long. What is left comes in the next turn.
    fn close_silent(&mut self) {
        let now_ns = clock::monotonic_ns();
        let silent = self.connections.iter().filter(|(_, it)| {
            let is_silent = now_ns.saturating_sub(it.since_ns) >= HELLO_NS;
            it.member.is_none() && !it.watches && is_silent
        });
        let mut silent: Vec<(u32, u64)> = silent.map(|(it, of)| (of.account, *it)).collect();
        self.times.begin_part();
        self.times.sort(&mut silent);
        for (account, number) in silent {
            let begin_ns = clock::thread_cpu_ns();
            self.close(number);
            if !self.times.add(account, clock::thread_cpu_ns() - begin_ns) {
                break;
            }
        }
    }

    /// Takes a message of each connection, given with the user for whom it counts, until the turn
    /// has taken long. What is left comes in the next turn.
    fn take_turns(&mut self, mut ready: Vec<(u32, u64)>) {
        self.greeted.clear();
        self.times.begin(clock::monotonic_ns());
        self.times.sort(&mut ready);
        for (account, number) in ready {
            let begin_ns = clock::thread_cpu_ns();
            if self.take_message(number).is_none() {
                self.close(number);
            }
            let took_ns = clock::thread_cpu_ns() - begin_ns;
            if !self.times.add(account, took_ns) {
                break;
            }
        }
    }

    /// Takes the next message of a connection. `None` if the connection is to be closed.
    fn take_message(&mut self, number: u64) -> Option<()> {
        let connection = self.connections.get(&number)?;
        if connection.member.is_none() && self.greeted.contains(&connection.account) {
            return Some(());
        }
        let len = match connection.socket.receive(&mut self.buffer) {
            Ok(Some(len)) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Some(()),
            Ok(None) | Err(_) => return None,
        };
        let message = self.buffer.get(..len)?;
        let question = Question::decode(message).ok();
        match question.filter(|_| connection.member.is_none()) {
            Some(question) => self.reply(number, question),
            None => {
                let request = Request::decode(message);
                self.handle(number, request)
            }
        }
    }

    fn handle(&mut self, number: u64, request: Result<Request, Malformed>) -> Option<()> {
        let now_ns = clock::monotonic_ns();
        let connection = self.connections.get(&number)?;
        let notices = match (connection.member, request) {
            (None, Ok(Request::Hello(hello))) => return self.greet(number, &hello),
            (None, Err(malformed)) => {
                let refused = refused("poller-message", &malformed.to_string());
                refuse(connection.socket.as_fd(), refused);
                return None;
            }
            (Some(member), Ok(Request::Reads)) => self.device.reads(member, now_ns),
            (Some(member), Ok(Request::ReadOut(gone))) => {
                self.device.read_out(member, gone, now_ns)
            }
            (Some(_), Ok(Request::Frame(frame))) => return self.device.send(&frame),
            (None, Ok(_)) | (Some(_), Ok(Request::Hello(_)) | Err(_)) => return None,
        };
        self.tell(notices);
        Some(())
    }

    /// Makes a newcomer a member, or refuses it. `None` if the connection is to be closed.
    fn greet(&mut self, number: u64, hello: &Hello) -> Option<()> {
        let connection = self.connections.get_mut(&number)?;
        self.greeted.insert(connection.account);
        let socket = connection.socket.as_fd();
        if let Some(refused) = connection.refused.take() {
            refuse(socket, refused);
            return None;
        }
        let asks = (connection.peer, connection.grant);
        match self.device.enter(hello, asks, clock::monotonic_ns()) {
            Ok(entered) => {
                connection.member = Some(entered.member);
                welcome(connection.socket.as_fd(), &entered)
            }
            Err(refused) => {
                refuse(socket, refused);
                None
            }
        }
    }

    /// Sends messages to members. A member that has no room for a message is taken for dead.
    fn tell(&mut self, mut notices: Vec<Notice>) {
        while let Some(notice) = notices.pop() {
            if !self.device.is_valid(&notice) {
                continue;
            }
            let answer = Answer::Takeover(notice.takeover).encode();
            let mut connections = self.connections.iter();
            let found = connections.find(|(_, it)| it.member == Some(notice.to));
            let Some((&number, connection)) = found else {
                // Its pools go to another member when its connection closes.
                continue;
            };
            let socket = connection.socket.as_fd();
            let sent = answer
                .map_err(|_| io::ErrorKind::InvalidData.into())
                .and_then(|bytes| message::send(socket, &bytes, &[notice.pool.as_fd()]));
            match sent {
                Ok(()) => {}
                Err(error) if is_the_members(&error) => notices.extend(self.forget(number)),
                Err(_) => {
                    self.sends_ns = clock::monotonic_ns() + AGAIN_NS;
                    self.unsent.push(notice);
                }
            }
        }
    }

    /// Sends the messages that the kernel could not send before.
    fn send_again(&mut self) {
        if !self.unsent.is_empty() && clock::monotonic_ns() >= self.sends_ns {
            let unsent = std::mem::take(&mut self.unsent);
            self.tell(unsent);
        }
    }

    fn close(&mut self, number: u64) {
        let notices = self.forget(number);
        self.tell(notices);
    }

    /// Closes a connection. Returns the messages to other members.
    fn forget(&mut self, number: u64) -> Vec<Notice> {
        let Some(connection) = self.connections.remove(&number) else {
            return Vec::new();
        };
        self.device.unwatch(number);
        self.closer.close(connection.account, connection.socket);
        connection.member.map_or_else(Vec::new, |member| {
            self.device.hang_up(member, clock::monotonic_ns())
        })
    }
}

/// The last close of the listener closes all connections that wait there, with their queues. So the
/// server accepts them first.
impl Drop for Server {
    fn drop(&mut self) {
        for connection in std::mem::take(&mut self.connections).into_values() {
            self.closer.close(connection.account, connection.socket);
        }
        // From now on nobody can connect.
        let _ = unix::receive_nothing(self.listener.as_fd());
        while let Ok(Some(socket)) = named::accept(self.listener.as_fd()) {
            if let Ok(socket) = PlainConnection::new(socket) {
                self.closer.close(0, socket);
            }
        }
    }
}

/// Whether a message was not sent because the member has gone, or does not read its messages. Other
/// errors, such as a lack of memory, are not the member's.
fn is_the_members(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// Answers a newcomer that has become a member. `None` if the answer can't be sent.
fn welcome(socket: BorrowedFd<'_>, entered: &Entered) -> Option<()> {
    let bytes = Answer::Welcome(entered.welcome).encode().ok()?;
    message::send(socket, &bytes, &entered.descriptors()).ok()
}

/// Answers a newcomer that is refused. Best effort: it may be gone.
fn refuse(socket: BorrowedFd<'_>, refused: Refused) {
    if let Ok(bytes) = Answer::Refused(refused).encode() {
        let _ = message::send(socket, &bytes, &[]);
    }
}
