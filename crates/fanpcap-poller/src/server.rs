//! The poller's socket: members connect, say what they want, and stay connected as long as they
//! live. No member can make the server wait: it neither waits for a message nor for room to send
//! one. It closes the connection of a member that sends anything but the messages of this version.

mod accepting;
mod closer;
mod once;
mod questions;
mod times;
mod ticking;
#[cfg(test)]
mod tests;

use crate::access::Grant;
use crate::accounts::Account;
use crate::device::{Device, Entered, Notice, refused};
use closer::Closer;
use fanpcap_linux::process::child::open_files_max;
use fanpcap_linux::unix::plain::PlainConnection;
use fanpcap_linux::unix::{self, Peer, message, named};
use fanpcap_linux::wait::{self, Wake, clock, pipe};
use fanpcap_poll::message::{Answer, Hello, LONGEST, Malformed, Question, Refused, Request};
use once::{HEAD_LEN, Once, Speech};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::c_short;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use times::{Ready, Times};

/// How long a connection may stay without a *hello*, nanoseconds.
const HELLO_NS: u64 = 5_000_000_000;

/// How long the server does not try again after an error for which a member has no fault, such as
/// too many open files, nanoseconds.
const AGAIN_NS: u64 = 100_000_000;

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
    /// The number of the last connection, and of the last message that was taken.
    last: u64,
    /// When to accept connections again, after an error.
    accepts_ns: u64,
    once: Once,
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
    account: Account,
    /// What it may take.
    grant: Grant,
    since_ns: u64,
    /// The number of its last message, or of itself.
    served: u64,
    /// Its message waits until this time, because of others of its user.
    waits_ns: u64,
    /// The answer to the *hello* of a process that may not become a member.
    refused: Option<Refused>,
    member: Option<u64>,
    /// Whether the process watches a group.
    watches: bool,
}

impl From<(&u64, &Connection)> for Ready {
    fn from((number, connection): (&u64, &Connection)) -> Self {
        Self {
            account: connection.account,
            served: connection.served,
            number: *number,
        }
    }
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
            once: Once::default(),
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
        let (limit, now_ns) = (self.limit(limit), clock::monotonic_ns());
        let accepts = self.has_room() && now_ns >= self.accepts_ns;
        let listener = accepts.then(|| self.listener.as_fd());
        let waits = |it: &Connection| it.waits_ns > now_ns;
        let sockets = self.connections.values();
        let sockets = sockets.map(|it| (!waits(it)).then(|| it.socket.as_fd()));
        let all = std::iter::once(listener).chain(sockets);
        let all = all.chain(std::iter::once(Some(self.device.news())));
        let (found, _) = match wait::wait_for_any(all, wake, Some(limit)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        };
        let events = found.iter().skip(1).zip(&self.connections);
        let mut left: BTreeSet<u64> = events
            .clone()
            .filter_map(|(_, (number, it))| waits(it).then_some(*number))
            .collect();
        let is_ready = |(events, _): &(&c_short, _)| **events != 0;
        let ready: Vec<Ready> = events.filter(is_ready).map(|(_, it)| it.into()).collect();
        left.extend(self.take_turns(ready));
        if found.first().is_some_and(|&events| events != 0) && self.accept().is_err() {
            // The process may have as many descriptors as it can have. They may become fewer.
            self.accepts_ns = clock::monotonic_ns() + AGAIN_NS;
        }
        self.tick();
        self.send_again();
        self.close_silent(&left);
        Ok(())
    }

    /// The time until something is due, or `limit` if that is less.
    fn limit(&self, limit: Duration) -> Duration {
        let now_ns = clock::monotonic_ns();
        let due = self.device.due_ns(now_ns).into_iter();
        let due = due.chain(self.accepts_ns.checked_sub(now_ns));
        let sends_ns = self.sends_ns.saturating_sub(now_ns);
        let due = due.chain((!self.unsent.is_empty()).then_some(sends_ns));
        let waiting = self.connections.values().map(|it| it.waits_ns);
        let due = due.chain(waiting.filter_map(|it| it.checked_sub(now_ns)));
        due.map(Duration::from_nanos).fold(limit, Duration::min)
    }

    /// Closes connections whose processes have not said *hello* in time, and watch no group, until
    /// that has taken long. What is left comes in the next turn. The messages of some connections
    /// are `left` for later turns.
    fn close_silent(&mut self, left: &BTreeSet<u64>) {
        let now_ns = clock::monotonic_ns();
        let silent = self.connections.iter().filter(|(number, it)| {
            let is_silent = now_ns.saturating_sub(it.since_ns) >= HELLO_NS;
            it.member.is_none() && !it.watches && is_silent && !left.contains(number)
        });
        let mut silent: Vec<Ready> = silent.map(Ready::from).collect();
        self.times.begin_part();
        self.times.sort(&mut silent);
        for it in silent {
            let begin_ns = clock::thread_cpu_ns();
            self.close(it.number);
            if !self
                .times
                .add(it.account, clock::thread_cpu_ns() - begin_ns)
            {
                break;
            }
        }
    }

    /// Takes a message of each connection, until that has taken long. Returns the connections whose
    /// messages are left for later turns.
    fn take_turns(&mut self, mut ready: Vec<Ready>) -> BTreeSet<u64> {
        let now_ns = clock::monotonic_ns();
        self.once.begin(now_ns);
        self.times.begin(now_ns);
        self.times.sort(&mut ready);
        let (mut left, mut goes_on) = (BTreeSet::new(), true);
        for it in ready {
            if !goes_on {
                left.insert(it.number);
                continue;
            }
            let begin_ns = clock::thread_cpu_ns();
            if self.has_to_wait(it.number) {
                left.insert(it.number);
            } else if self.take_message(it.number).is_none() {
                self.close(it.number);
            }
            goes_on = self
                .times
                .add(it.account, clock::thread_cpu_ns() - begin_ns);
        }
        left
    }

    /// Whether the message of a process that is no member waits, because of others of its user.
    fn has_to_wait(&mut self, number: u64) -> bool {
        let connection = self.connections.get_mut(&number);
        let Some(connection) = connection.filter(|it| it.member.is_none()) else {
            return false;
        };
        let mut head = [0; HEAD_LEN];
        // If there is no message, nothing waits.
        let Ok(Some(len)) = connection.socket.peek(&mut head) else {
            return false;
        };
        let (speech, now_ns) = (Speech::of(&head, len), clock::monotonic_ns());
        let taken = self.once.take(connection.account, speech, now_ns);
        taken
            .map_err(|until_ns| connection.waits_ns = until_ns)
            .is_err()
    }

    /// Takes the next message of a connection. `None` if the connection is to be closed.
    fn take_message(&mut self, number: u64) -> Option<()> {
        let connection = self.connections.get_mut(&number)?;
        self.last += 1;
        connection.served = self.last;
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
            (Some(member), Ok(Request::Holds)) => {
                // A member answers each message once, so it has not got these yet.
                if self.unsent.iter().any(|it| it.to == member) {
                    return None;
                }
                self.device.holds(member, now_ns)?
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
        let socket = connection.socket.as_fd();
        // A newcomer that has given up would own buckets until its hang-up is seen, and the time
        // for its pool would make the next ones give up, too.
        if pipe::has_hung_up(socket).unwrap_or(false) {
            return None;
        }
        if let Some(refused) = connection.refused.take() {
            refuse(socket, refused);
            return None;
        }
        let asks = (connection.peer, connection.grant.clone());
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

    /// Sends messages to members, in their order. A member that has no room for a message is taken
    /// for dead.
    fn tell(&mut self, notices: Vec<Notice>) {
        let mut notices = VecDeque::from(notices);
        while let Some(notice) = notices.pop_front() {
            if !self.device.is_valid(&notice) {
                continue;
            }
            if self.unsent.iter().any(|it| it.to == notice.to) {
                self.unsent.push(notice);
                continue;
            }
            let mut connections = self.connections.iter();
            let found = connections.find(|(_, it)| it.member == Some(notice.to));
            let Some((&number, connection)) = found else {
                // Its pools go to another member when its connection closes.
                continue;
            };
            let socket = connection.socket.as_fd();
            match send(socket, &notice) {
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
                self.closer.close(Account(0), socket);
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

fn send(socket: BorrowedFd<'_>, notice: &Notice) -> io::Result<()> {
    let bytes = notice.answer().encode();
    let bytes = bytes.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    message::send(socket, &bytes, notice.descriptor().as_slice())
}

/// Answers a newcomer that has become a member. `None` if the answer can't be sent.
fn welcome(socket: BorrowedFd<'_>, entered: &Entered) -> Option<()> {
    let bytes = Answer::Welcome(entered.welcome.clone()).encode().ok()?;
    message::send(socket, &bytes, &entered.descriptors()).ok()
}

/// Answers a newcomer that is refused. Best effort: it may be gone.
fn refuse(socket: BorrowedFd<'_>, refused: Refused) {
    if let Ok(bytes) = Answer::Refused(refused).encode() {
        let _ = message::send(socket, &bytes, &[]);
    }
}
