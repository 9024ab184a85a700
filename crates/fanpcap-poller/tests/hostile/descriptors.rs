//! A member sends descriptors whose last close takes long: TCP sockets with unsent bytes, which
//! wait for the other end (`SO_LINGER`).

use super::clients::{NAME, Poller, Wire, await_answer, hello};
use super::scene::policy;
use super::{Hostile, beside, reads};
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::process::child::raise_open_files;
use fanpcap_linux::unix::{message, named, plain};
use fanpcap_linux::wait::Epoll;
use fanpcap_poll::message::{Answer, Question, Request};
use fanpcap_poller::device::Device;
use fanpcap_poller::server::Server;
use fanpcap_poller::{Limit, Policy};
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::{LIMIT, await_so};
use fanpcap_testkit::loopback::free_address;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::time::{Duration, Instant};

/// How long a close takes: longer than all that the tests wait for.
const LINGER: Duration = Duration::from_secs(1000);

/// Sockets to a process that reads nothing.
struct Mute(TcpListener);

impl Mute {
    fn new() -> Self {
        Self(TcpListener::bind(free_address()).unwrap())
    }

    /// Sends the last descriptor of a new socket.
    fn send(&self, to: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
        let mut socket = TcpStream::connect(self.0.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[7; 1 << 16]).is_ok() {}
        plain::set_linger(socket.as_fd(), 1000).unwrap();
        let sent = message::send(to.as_fd(), bytes, &[socket.as_fd()]);
        // What the other end has got, this process closes without waiting.
        match sent {
            Ok(()) => Ok(()),
            Err(error) => {
                plain::set_linger(socket.as_fd(), 0).unwrap();
                Err(error)
            }
        }
    }
}

/// Checks that no thread that the test waits for has closed a socket.
fn ensure_none_is_closed(begin: Instant) {
    assert!(begin.elapsed() < LINGER);
}

#[test]
fn a_member_that_sends_descriptors_is_dismissed_and_others_go_on() {
    let (wire, mute, begin) = (Wire::default(), Mute::new(), Instant::now());
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut all = Vec::new();
    beside(&poller, &wire, |round| {
        let (member, newcomer) = (Hostile::enter(&poller), poller.connect());
        match round % 4 {
            // A message of a member.
            0 => mute.send(&member.socket, &reads()).unwrap(),
            // A message for which the server closes the connection, and what is in the queue then.
            1 => {
                message::send(member.socket.as_fd(), b"nonsense", &[]).unwrap();
                // The server may have closed the connection.
                let _ = mute.send(&member.socket, &reads());
            }
            // A message in the queue of a process that has gone.
            2 => {
                mute.send(&member.socket, &reads()).unwrap();
                drop(member);
                return;
            }
            // A message that comes before the connection is accepted, and one that comes with it.
            _ => {
                mute.send(&newcomer, &reads()).unwrap();
                let hello = Request::Hello(hello()).encode().unwrap();
                mute.send(&poller.connect(), &hello).unwrap();
                let _ = message::send(member.socket.as_fd(), b"nonsense", &[]);
            }
        }
        all.push((member, newcomer));
    });
    await_so("their dismissal", || poller.sizes()[1] <= 3);
    let to_bell = mute.send(&all[0].0.bell, b"x").unwrap_err();
    assert_eq!(to_bell.kind(), io::ErrorKind::BrokenPipe);
    drop((poller, all));
    ensure_none_is_closed(begin);
}

#[test]
fn a_connection_that_is_not_closed_yet_counts_for_its_user() {
    let (mute, begin) = (Mute::new(), Instant::now());
    let mut policy = policy();
    policy.limits.connections = Limit { all: 100, each: 4 };
    let poller = Poller::with(&[Wire::default()], policy);
    for _ in 0..2 {
        let it = Hostile::enter(&poller);
        mute.send(&it.socket, &reads()).unwrap();
        assert!(await_answer(it.socket.as_fd()).is_none(), "the end");
    }
    let _both = [Hostile::enter(&poller), Hostile::enter(&poller)];
    let refused = |socket: &OwnedFd| match await_answer(socket.as_fd()) {
        Some((Answer::Refused(refused), _)) => refused.slug == "poller-connections",
        _ => false,
    };
    assert!(refused(&poller.connect()));
    for _ in 0..8 {
        // The server may have closed the connection before.
        let other = poller.connect();
        let _ = mute.send(&other, &reads());
        assert!(refused(&other));
    }
    ensure_none_is_closed(begin);
}

/// A server whose turns the test makes.
struct Turns {
    server: Server,
    directory: Directory,
    _scratch: Scratch,
}

impl Turns {
    fn new(policy: Policy) -> Self {
        let scratch = Scratch::new().unwrap();
        let directory = Directory::open(&scratch.file("")).unwrap();
        let listener = named::socket().unwrap();
        named::listen(listener.as_fd(), &directory, OsStr::new(NAME), 0o600, 64).unwrap();
        let device = Device::new(vec![Wire::default().queue(0)], 7, 1, policy).unwrap();
        Self {
            server: Server::new(listener, device),
            directory,
            _scratch: scratch,
        }
    }

    fn connect(&self) -> OwnedFd {
        named::connect(&self.directory, OsStr::new(NAME), LIMIT).unwrap()
    }

    /// A connection that the server keeps also if nothing comes from it for long: it watches a
    /// group.
    fn watch(&mut self) -> OwnedFd {
        let socket = self.connect();
        let question = Question::Watch(7).encode();
        message::send(socket.as_fd(), &question, &[]).unwrap();
        await_so("a reply", || {
            self.turn();
            matches!(
                message::receive(socket.as_fd(), &mut [0; 4096], 0),
                Ok(Some(_))
            )
        });
        socket
    }

    fn turn(&mut self) {
        self.server.turn(None, Duration::from_secs(1)).unwrap();
    }
}

/// The poller can't close these connections, but they take no room of other users.
#[test]
fn refused_connections_with_descriptors_take_no_room() {
    let (mute, begin) = (Mute::new(), Instant::now());
    let mut policy = policy();
    policy.limits.connections = Limit { all: 8, each: 2 };
    let mut turns = Turns::new(policy);
    let _own = [turns.watch(), turns.watch()];
    for _ in 0..20 {
        let other = turns.connect();
        mute.send(&other, &reads()).unwrap();
        turns.turn();
        // If the closer already waits, the reset of the connection comes before the answer, once.
        let mut answers = (0..2).map(|_| message::receive(other.as_fd(), &mut [0; 4096], 0));
        let is_answered = answers.any(|it| matches!(it, Ok(Some(_))));
        assert!(is_answered, "the server accepts nobody");
    }
    drop(turns);
    ensure_none_is_closed(begin);
}

/// The kernel calls each epoll instance that watches the other end when the server refuses a
/// connection.
#[test]
fn the_server_refuses_connections_for_a_few_milliseconds_only() {
    let _ = raise_open_files();
    let mut policy = policy();
    policy.limits.connections = Limit { all: 8, each: 2 };
    let mut turns = Turns::new(policy);
    let _own = [turns.watch(), turns.watch()];
    let others: Vec<_> = (0..60).map(|_| turns.connect()).collect();
    let watchers: Vec<Epoll> = (0..2000).map_while(|_| Epoll::new().ok()).collect();
    for (watcher, other) in watchers
        .iter()
        .flat_map(|it| others.iter().map(move |to| (it, to)))
    {
        watcher.add_edge(other.as_fd()).unwrap();
    }
    let mut answered = Vec::new();
    let begin = Instant::now();
    while answered.iter().sum::<usize>() < others.len() {
        assert!(begin.elapsed() < LIMIT, "{answered:?}");
        turns.turn();
        let is_answered =
            |it: &&OwnedFd| matches!(message::receive(it.as_fd(), &mut [0; 4096], 0), Ok(Some(_)));
        answered.push(others.iter().filter(is_answered).count());
    }
    assert!(answered.len() > 2, "in each turn: {answered:?}");
}

#[test]
fn a_server_ends_without_closing_what_waits_at_its_listener() {
    let (mute, begin) = (Mute::new(), Instant::now());
    let mut turns = Turns::new(policy());
    let accepted = turns.connect();
    turns.turn();
    let waiting = [turns.connect(), turns.connect()];
    for socket in waiting.iter().chain([&accepted]) {
        mute.send(socket, &reads()).unwrap();
    }
    drop(turns);
    ensure_none_is_closed(begin);
    for socket in waiting.iter().chain([&accepted]) {
        assert!(await_answer(socket.as_fd()).is_none(), "the end");
    }
}
