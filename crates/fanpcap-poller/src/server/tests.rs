//! Tests of a server whose turns the test makes, with several connections of one user.

use super::*;
use crate::queue::{Idle, Queue};
use crate::{Accounts, Burst, Policy, Source, SourceCounts, SourceError};
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::process::child::raise_open_files;
use fanpcap_linux::process::effective_user;
use fanpcap_poll::PoolKind;
use fanpcap_poll::message::Steering;
use fanpcap_testkit::Scratch;
use std::ffi::OsStr;
use std::fs;
use std::thread;

const NAME: &str = "poller";
const LIMIT: Duration = Duration::from_secs(20);

/// A source to which nothing comes.
struct Silent;

impl Source for Silent {
    fn burst<'s>(&'s mut self, _: &mut Burst<'s>) -> Result<(), SourceError> {
        thread::sleep(Duration::from_micros(200));
        Ok(())
    }

    fn release(&mut self) {}

    fn check(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn transmit(&mut self, _: &[u8]) -> io::Result<bool> {
        Ok(false)
    }

    fn queue(&self) -> u16 {
        0
    }

    fn counts(&mut self) -> SourceCounts {
        SourceCounts::default()
    }
}

struct Scene {
    server: Server,
    directory: Directory,
    _scratch: Scratch,
}

impl Scene {
    fn new() -> Self {
        Self::with(Accounts::default())
    }

    fn with(accounts: Accounts) -> Self {
        let scratch = Scratch::new().unwrap();
        let directory = Directory::open(&scratch.file("")).unwrap();
        let listener = named::socket().unwrap();
        named::listen(listener.as_fd(), &directory, OsStr::new(NAME), 0o600, 64).unwrap();
        let queue = Queue::start(Box::new(Silent), Idle::Spin, || {}).unwrap();
        let policy = Policy {
            pools: PoolKind::File,
            ..Policy::default()
        };
        let device = Device::new(vec![queue], 7, 1, policy).unwrap();
        Self {
            server: Server::new(listener, device.with_accounts(accounts)),
            directory,
            _scratch: scratch,
        }
    }

    /// Connections that the server has accepted, in this order.
    fn connect<const N: usize>(&mut self) -> [OwnedFd; N] {
        let before = self.server.connections.len();
        let name = OsStr::new(NAME);
        let all = [(); N].map(|()| named::connect(&self.directory, name, LIMIT).unwrap());
        while self.server.connections.len() < before + N {
            self.turn();
        }
        all
    }

    fn turn(&mut self) {
        self.server.turn(None, LIMIT).unwrap();
    }

    /// All connections are older than connections may be that say nothing.
    fn grow_old(&mut self) {
        let since_ns = clock::monotonic_ns() - HELLO_NS;
        let all = self.server.connections.values_mut();
        all.for_each(|it| it.since_ns = since_ns);
    }
}

fn say(socket: &OwnedFd, message: &[u8]) {
    message::send(socket.as_fd(), message, &[]).unwrap();
}

fn hello() -> Vec<u8> {
    Request::Hello(greeting()).encode().unwrap()
}

fn greeting() -> Hello {
    Hello {
        group: Some(5),
        steering: Steering::Any,
        name: None,
        weight: 1,
        class: 0,
        snaplen: 96,
        memory: Some(4 << 20),
        wants_sent: true,
        wants_number: false,
        pair: 0,
        poller: 0,
    }
}

/// Whether the server has answered since the last call.
fn has_answer(socket: &OwnedFd) -> bool {
    message::receive(socket.as_fd(), &mut [0; 4096], 4).is_ok_and(|it| it.is_some())
}

#[test]
fn a_connection_whose_message_waits_is_not_closed_as_silent() {
    let mut scene = Scene::new();
    let all: [OwnedFd; 4] = scene.connect();
    all[..3].iter().for_each(|it| say(it, &hello()));
    scene.grow_old();
    for members in 1..=3 {
        scene.turn();
        let connections = scene.server.connections.len();
        assert_eq!((scene.server.device.sizes()[1], connections), (members, 3));
    }
    assert!(all[..3].iter().all(has_answer));
    // A question that waits for its time waits between turns.
    let question = Question::Stop(9).encode();
    let askers: [OwnedFd; 2] = scene.connect();
    askers.iter().for_each(|it| say(it, &question));
    scene.turn();
    while !has_answer(&askers[1]) {
        assert!(scene.server.connections.len() > 3, "it is closed");
        scene.grow_old();
        scene.turn();
    }
}

/// A poller that makes large pools, or serves many newcomers, is late.
#[test]
fn a_newcomer_that_has_given_up_becomes_no_member() {
    let mut scene = Scene::new();
    let group = (5, effective_user());
    let ended = |scene: &mut Scene| {
        let watched = scene.server.device.watch(0, group, 1);
        watched.unwrap().ended.len()
    };
    assert_eq!(ended(&mut scene), 0);
    let [there, gone]: [OwnedFd; 2] = scene.connect();
    say(&there, &hello());
    say(&gone, &hello());
    drop(gone);
    while scene.server.connections.len() > 1 || !has_answer(&there) {
        scene.turn();
    }
    assert_eq!(scene.server.device.sizes(), [1, 1]);
    assert_eq!(ended(&mut scene), 0, "it was a member");
}

#[test]
fn a_question_does_not_delay_a_newcomer_of_its_user() {
    let mut scene = Scene::new();
    let [asker, newcomer] = scene.connect();
    say(&asker, &Question::Look(0).encode());
    say(&newcomer, &hello());
    scene.turn();
    assert!(has_answer(&asker) && has_answer(&newcomer));
}

#[test]
fn connections_of_a_user_are_served_in_turn() {
    let mut scene = Scene::new();
    let all: [OwnedFd; 3] = scene.connect();
    let question = Question::Look(0).encode();
    (0..6).for_each(|_| say(&all[0], &question));
    all[1..].iter().for_each(|it| say(it, &question));
    for asker in [0, 1, 2, 0, 0] {
        scene.turn();
        let answered = all.each_ref().map(has_answer);
        assert_eq!(answered, [0, 1, 2].map(|it| it == asker));
    }
}

#[test]
fn a_user_makes_the_queues_change_something_once_in_five_milliseconds() {
    let mut scene = Scene::new();
    let all: [OwnedFd; 3] = scene.connect();
    let begin_ns = clock::monotonic_ns();
    all.iter()
        .for_each(|it| say(it, &Question::Stop(9).encode()));
    let mut turns = 0;
    while scene.server.connections.values().any(|it| it.served <= 3) {
        scene.turn();
        turns += 1;
    }
    assert!(all.iter().all(has_answer));
    let took_ns = clock::monotonic_ns() - begin_ns;
    assert!(took_ns >= 10_000_000, "{took_ns} ns");
    assert!(
        turns < 20,
        "the server sleeps while questions wait: {turns} turns"
    );
}

/// The kernel calls each epoll instance that watches the other end.
#[test]
fn the_server_closes_silent_connections_for_a_few_milliseconds_only() {
    let _ = raise_open_files();
    let mut scene = Scene::new();
    let all: [OwnedFd; 60] = scene.connect();
    scene.grow_old();
    let watchers: Vec<wait::Epoll> = (0..2000).map_while(|_| wait::Epoll::new().ok()).collect();
    for watcher in &watchers {
        all.iter()
            .for_each(|it| watcher.add_edge(it.as_fd()).unwrap());
    }
    let mut turns = 0;
    while !scene.server.connections.is_empty() {
        scene.server.close_silent(&BTreeSet::new());
        turns += 1;
    }
    assert!(turns > 1);
}

#[test]
fn refused_connections_that_are_not_closed_take_a_part_of_the_files() {
    let mut scene = Scene::new();
    assert!(scene.server.refused_max > 0 && scene.server.has_room());
    scene.server.refused_max = 0;
    assert!(!scene.server.has_room());
}

/// They count as one user for the limits, but are different users.
#[test]
fn subordinate_users_of_one_owner_do_not_touch_each_others_members() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("subuid");
    fs::write(&path, "alice:100000:65536\n").unwrap();
    let mut scene = Scene::with(Accounts::of_file(path));
    let device = &mut scene.server.device;
    let user = 100_001;
    let peer = Peer {
        pid: 9,
        user,
        group: user,
    };
    let entered = device.enter(&greeting(), (peer, Grant::default()), 1);
    let member = entered.unwrap().member;
    let mut is_others = |asking| {
        let done = device.weigh(member, 3, asking, 2);
        done.is_err_and(|why| why.contains("another user"))
    };
    let asked = [user, 0, 100_000, 1000].map(&mut is_others);
    assert_eq!(asked, [false, false, true, true]);
}

/// The device with the members of this many connections, which read.
fn group_of(scene: &mut Scene, count: u32) {
    let device = &mut scene.server.device;
    for pid in 0..count {
        let peer = Peer {
            pid,
            user: 1000,
            group: 1000,
        };
        let entered = device.enter(&greeting(), (peer, Grant::default()), 1);
        device.reads(entered.unwrap().member, 1);
    }
}

/// With many members it takes milliseconds to find what is due, and the server asks for it twice in
/// each turn.
#[test]
fn what_is_due_is_computed_once_after_a_change() {
    let mut scene = Scene::new();
    group_of(&mut scene, 60);
    let device = &mut scene.server.device;
    assert_eq!(device.due_ns(1), Some(0), "members have come");
    device.tick(1);
    let begin_ns = clock::thread_cpu_ns();
    for now_ns in 2..5000 {
        assert!(device.due_ns(now_ns).is_some_and(|left| left > 0));
        assert!(device.tick(now_ns).is_empty());
    }
    let took_ns = clock::thread_cpu_ns() - begin_ns;
    assert!(took_ns < 1_000_000_000, "{took_ns}");
    device.weigh(7, 3, 1000, 5000).unwrap();
    assert_eq!(device.due_ns(5000), Some(0), "a weight has changed");
}

#[test]
fn what_is_due_in_a_group_counts_for_its_user() {
    let mut scene = Scene::new();
    group_of(&mut scene, 3);
    scene.turn();
    let order = |scene: &Scene| {
        let of = |user, served| Ready {
            account: Account(user),
            served,
            number: user.into(),
        };
        let mut all = [of(1000, 1), of(1, 2)];
        scene.server.times.sort(&mut all);
        all.map(|it| it.number)
    };
    assert_eq!(order(&scene), [1, 1000]);
}
