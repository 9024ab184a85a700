//! A member does what no member does. Other members lose nothing, and the poller answers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
#[path = "hostile/bells.rs"]
mod bells;
#[path = "hostile/descriptors.rs"]
mod descriptors;
mod scene;

use clients::{
    Client, NAME, Poller, Wire, await_all, await_answer, await_shares, frames, hello, send,
};
use fanpcap_linux::bpf::SharedArray;
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::file::sealed;
use fanpcap_linux::unix::{message, named};
use fanpcap_poll::PoolKind;
use fanpcap_poll::message::{Answer, Hello, Request};
use fanpcap_poller::Limit;
use fanpcap_poller::device::Device;
use fanpcap_poller::server::Server;
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::LIMIT;
use scene::{own_name, policy};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command};
use std::{fs, slice};

/// A member with the plain descriptors that the poller has sent.
struct Hostile {
    socket: OwnedFd,
    pool: OwnedFd,
    bell: OwnedFd,
}

impl Hostile {
    /// A member that reads, in a group of its own.
    fn enter(poller: &Poller) -> Self {
        let socket = poller.connect();
        let hello = Request::Hello(Hello {
            group: Some(7),
            ..hello()
        });
        message::send(socket.as_fd(), &hello.encode().unwrap(), &[]).unwrap();
        let (answer, descriptors) = await_answer(socket.as_fd()).unwrap();
        assert!(matches!(answer, Answer::Welcome(_)));
        message::send(socket.as_fd(), &reads(), &[]).unwrap();
        let [pool, bell] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
        Self { socket, pool, bell }
    }

    /// Overwrites the first `len` bytes of the pool.
    fn scribble(&self, byte: u8, len: usize) {
        let (pool, garbage) = (self.pool.try_clone().unwrap(), vec![byte; len]);
        match sealed::is_memory(pool.as_fd()) {
            true => File::from(pool).write_all_at(&garbage, 0).unwrap(),
            false => SharedArray::open(pool).unwrap().fill(&garbage).unwrap(),
        }
    }

    /// Runs a command on the pool.
    fn on_pool(&self, command: &str, arguments: &[&str]) -> bool {
        let path = format!("/proc/{}/fd/{}", process::id(), self.pool.as_raw_fd());
        let done = Command::new(command).args(arguments).arg(path).output();
        done.unwrap().status.success()
    }

    /// Makes all its descriptors block.
    fn block(&self) {
        for fd in [&self.socket, &self.bell] {
            let stream = UnixStream::from(fd.try_clone().unwrap());
            stream.set_nonblocking(false).unwrap();
        }
    }
}

/// Bytes of a pool for [`hello`], and of its words.
const POOL_LEN: usize = 4 << 20;
const WORDS_LEN: usize = 256 << 10;

fn reads() -> Vec<u8> {
    Request::Reads.encode().unwrap()
}

/// Two members of another group get packets, round after round, while `act` is called.
fn beside(poller: &Poller, wire: &Wire, mut act: impl FnMut(u8)) {
    let mut members = [poller.member(&hello()), poller.member(&hello())];
    await_shares(poller, 2);
    let mut all = Vec::new();
    for round in 0..20 {
        let frames = frames(u64::from(round) * 200, 200);
        send(wire, &frames);
        all.extend(frames);
        act(round);
        members.iter_mut().for_each(Client::read);
    }
    await_all(&mut members, &all);
    let counts = poller.counts(Some(5)).unwrap();
    assert_eq!(
        (counts.offered, counts.produced, counts.dropped),
        (4000, 4000, 0)
    );
    let answered = poller.newcomer(&Hello {
        group: Some(8),
        ..hello()
    });
    assert!(answered.is_ok(), "the poller answers");
}

#[test]
fn a_member_that_overwrites_its_pool() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let hostile = Hostile::enter(&poller);
    beside(&poller, &wire, |round| {
        hostile.scribble(round.wrapping_mul(85), POOL_LEN);
    });
}

#[test]
fn a_member_that_sends_more_than_the_poller_takes_and_reads_nothing() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let connections: Vec<_> = (0..200).map(|_| poller.connect()).collect();
    let all = [(); 3].map(|()| Hostile::enter(&poller));
    all.iter().for_each(Hostile::block);
    beside(&poller, &wire, |_| {
        for it in &all {
            (0..30).for_each(|_| _ = message::send(it.socket.as_fd(), &reads(), &[]));
        }
        (0..50).for_each(|_| drop(poller.connect()));
    });
    drop(connections);
}

/// While a process makes holes in a memory file, the kernel makes stores there wait.
#[test]
#[ignore = "needs root: eBPF"]
fn a_member_can_neither_make_holes_in_its_pool_nor_shorten_it() {
    assert_eq!(policy().pools, PoolKind::Array);
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let hostile = Hostile::enter(&poller);
    beside(&poller, &wire, |_| {
        assert!(!hostile.on_pool("fallocate", &["--punch-hole", "--length", "1048576"]));
        assert!(!hostile.on_pool("truncate", &["--size", "0"]));
        let file = File::from(hostile.pool.try_clone().unwrap());
        assert!(file.set_len(0).is_err());
    });
}

/// To make a pool takes milliseconds, in which no other user's newcomer is answered.
#[test]
fn the_newcomers_of_a_user_enter_one_in_a_turn() {
    let scratch = Scratch::new().unwrap();
    let directory = Directory::open(&scratch.file("")).unwrap();
    let listener = named::socket().unwrap();
    named::listen(listener.as_fd(), &directory, OsStr::new(NAME), 0o600, 64).unwrap();
    let device = Device::new(vec![Wire::default().queue(0)], 7, 1, policy()).unwrap();
    let mut server = Server::new(listener, device);
    let greeting = Request::Hello(hello()).encode().unwrap();
    let newcomers = [(); 3].map(|()| {
        let socket = named::connect(&directory, OsStr::new(NAME), LIMIT).unwrap();
        message::send(socket.as_fd(), &greeting, &[]).unwrap();
        socket
    });
    let mut members = Vec::new();
    for _ in 0..4 {
        server.turn(None, LIMIT).unwrap();
        members.push(server.device().sizes()[1]);
    }
    assert_eq!(members, [0, 1, 2, 3]);
    assert!(
        newcomers
            .iter()
            .all(|it| await_answer(it.as_fd()).is_some())
    );
}

/// Set for the process of another user: the directory of the poller's socket.
const DIRECTORY: &str = "FANPCAP_POLLER_DIRECTORY";

#[test]
#[ignore = "needs root: another user"]
fn members_of_another_user_are_told_apart_and_have_their_own_limit() {
    if let Some(path) = std::env::var_os(DIRECTORY) {
        return be_another_user(Path::new(&path));
    }
    let mut policy = policy();
    policy.limits.connections = Limit { all: 100, each: 2 };
    let poller = Poller::with(&[Wire::default()], policy);
    let own = [(); 2].map(|()| poller.member(&hello()));
    // The umask does not count.
    let open = fs::Permissions::from_mode(0o777);
    for path in [poller.path(), poller.path().join(NAME)] {
        fs::set_permissions(path, open.clone()).unwrap();
    }
    let mut other = Command::new(std::env::current_exe().unwrap());
    let name = "members_of_another_user_are_told_apart_and_have_their_own_limit";
    other.args(["--exact", &own_name(module_path!(), name), "--ignored"]);
    other.env(DIRECTORY, poller.path()).uid(65534).gid(65534);
    let done = match other.output() {
        Err(error) => return println!("SKIP: another user can't run this test: {error}"),
        Ok(done) => done,
    };
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
    drop(own);
}

fn be_another_user(path: &Path) {
    let directory = Directory::open(path).unwrap();
    let connect = || named::connect(&directory, OsStr::new(NAME), LIMIT).unwrap();
    let refusal = |socket: &OwnedFd| match await_answer(socket.as_fd()) {
        Some((Answer::Refused(refused), _)) => refused.slug,
        other => panic!("{other:?}"),
    };
    let [first, second, third] = [connect(), connect(), connect()];
    assert_eq!(refusal(&third), "poller-connections");
    let hello = |group| {
        let hello = Hello {
            group: Some(group),
            ..hello()
        };
        Request::Hello(hello).encode().unwrap()
    };
    for (socket, group) in [(first, 5), (second, 6)] {
        message::send(socket.as_fd(), &hello(group), &[]).unwrap();
        let answer = await_answer(socket.as_fd());
        let Some((Answer::Welcome(welcome), _)) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(welcome.slot, 0, "the first member of its group");
    }
}
