//! A member makes its bell useless, or expensive to ring.

use super::clients::{Poller, Wire, frames, send};
use super::{Hostile, WORDS_LEN, beside};
use fanpcap_linux::process::child::raise_open_files;
use fanpcap_linux::process::effective_user;
use fanpcap_linux::unix::{self, message};
use fanpcap_linux::wait::Epoll;
use fanpcap_linux::wait::clock::thread_cpu_ns;
use fanpcap_testkit::await_for::await_so;
use std::os::fd::{AsFd, OwnedFd};
use std::slice;
use std::{fs, iter};

/// Sends a packet that rings the bell, because the member's wake-up words are all 0.
fn ring(hostile: &Hostile, poller: &Poller, wire: &Wire, number: u64) {
    let before = poller.counts(Some(7)).unwrap().offered;
    hostile.scribble(0, WORDS_LEN);
    send(wire, &frames(1_000_000 + number, 1));
    await_so("the packet", || {
        poller.counts(Some(7)).unwrap().offered > before
    });
}

/// How many wake-ups are in the bell.
fn rung(bell: &OwnedFd) -> u32 {
    let is_there = |at: &u32| message::peek_at(bell.as_fd(), *at, &mut [0; 8], 0).unwrap();
    (0..).find(|at| is_there(at).is_none()).unwrap()
}

#[test]
fn a_member_that_never_hears_its_bell() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let hostile = Hostile::enter(&poller);
    hostile.block();
    let mut numbers = 0..;
    let mut ring = || ring(&hostile, &poller, &wire, numbers.next().unwrap());
    await_so("many wake-ups", || {
        (0..20).for_each(|_| ring());
        rung(&hostile.bell) >= 100
    });
    (0..600).for_each(|_| ring());
    assert!(rung(&hostile.bell) < 600, "the bell is full");
    beside(&poller, &wire, |_| {});
}

/// CPU time of the threads of this user, nanoseconds.
fn of_user() -> u64 {
    let name = format!("user {}\n", effective_user());
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let own = tasks.map(|task| task.unwrap().path());
    let own = own.filter(|it| fs::read_to_string(it.join("comm")).is_ok_and(|it| it == name));
    let times = own.filter_map(|it| fs::read_to_string(it.join("schedstat")).ok());
    let first = |it: String| it.split(' ').next().unwrap().parse::<u64>().unwrap();
    times.map(first).sum()
}

/// The kernel calls each epoll instance that watches the member's end.
#[test]
fn a_member_that_has_its_bell_watched_takes_the_time_of_its_users_thread() {
    let _ = raise_open_files();
    let watch = |bell: &OwnedFd| -> Vec<Epoll> {
        let watch = |_| {
            let epoll = Epoll::new().ok()?;
            epoll.add_edge(bell.as_fd()).ok().map(|()| epoll)
        };
        (0..8000).map_while(watch).collect()
    };
    let [own, end] = unix::pair().unwrap();
    let watchers = watch(&end);
    let direct = iter::repeat_with(|| {
        let begin = thread_cpu_ns();
        message::send(own.as_fd(), b"!", &[]).unwrap();
        thread_cpu_ns() - begin
    });
    let direct = direct.take(50).min().unwrap();
    println!("{} watchers: a ring takes {direct} ns", watchers.len());
    drop(watchers);
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let hostile = Hostile::enter(&poller);
    let watchers = watch(&hostile.bell);
    let begin = of_user();
    let mut numbers = 0..;
    await_so("many wake-ups", || {
        let some = numbers.by_ref().take(20);
        some.for_each(|number| ring(&hostile, &poller, &wire, number));
        rung(&hostile.bell) >= 100
    });
    let took = of_user() - begin;
    assert!(took > 50 * direct, "{took} ns, a ring {direct} ns");
    drop(watchers);
}
