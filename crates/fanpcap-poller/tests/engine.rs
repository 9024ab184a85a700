//! The library's side of a poller: a member that `fanpcap-polled` has made is woken, counts, takes
//! over, and notices the poller's end.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
mod scene;

use clients::{NAME, Poller, Wire, frames, hello, send};
use fanpcap_group::view::FinalCounters;
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::process::effective_user;
use fanpcap_linux::unix::{message, named};
use fanpcap_linux::wait::events;
use fanpcap_poll::message::{Answer, Hello, LONGEST, Program, Refused, Request, Steering};
use fanpcap_polled::{EnterError, PolledMember, enter, enter_or_keep};
use fanpcap_reader::{GroupTasks, Input, LinkState, Port, PortStatistics, Ring};
use fanpcap_ring::{Layout as _, Pool};
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::{LIMIT, await_so};
use fanpcap_testkit::traffic::{Frame, sequence_of};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// A member, as the library has it.
struct Member {
    entered: PolledMember,
    pool: Pool,
    port: Arc<dyn Port>,
    tasks: Arc<dyn GroupTasks>,
    got: Vec<u64>,
}

impl Member {
    fn enter(poller: &Poller, hello: &Hello) -> Self {
        let entered = enter(&poller.directory(), OsStr::new(NAME), hello, LIMIT).unwrap();
        let Input { ring, port, .. } = entered.input(None).unwrap();
        let Ring::Pool(pool) = ring else {
            panic!("no pool");
        };
        Self {
            tasks: entered.tasks().unwrap(),
            entered,
            pool,
            port,
            got: Vec::new(),
        }
    }

    fn read(&mut self) {
        while self.pool.open() {
            while let Some(frame) = self.pool.next_frame().unwrap() {
                self.got.push(sequence_of(frame.data()).unwrap());
            }
            self.pool.release();
        }
    }

    /// Runs the tasks, and reads what they bring to its end.
    fn attend(&mut self) {
        for mut takeover in self.tasks.attend().inherited {
            let mut taken = 0;
            while takeover.remains.head().is_some() {
                let frame = takeover.remains.next_frame().unwrap().unwrap();
                self.got.push(sequence_of(frame.data()).unwrap());
                taken += 1;
            }
            (takeover.done)(taken);
        }
    }

    fn is_readable(&self) -> bool {
        let limit = Some(Duration::from_millis(50));
        events::poll(&[self.port.waits_on()], limit).unwrap()[0]
    }
}

fn await_produced(poller: &Poller, count: u64) {
    await_so("packets", || {
        poller.counts(Some(5)).unwrap().produced == count
    });
}

/// Bytes of the records of frames.
fn room(frames: &[Frame]) -> u64 {
    let record = |it: &Frame| (32 + it.bytes.len() as u64).next_multiple_of(8);
    frames.iter().map(record).sum()
}

#[test]
fn a_reader_is_woken_by_the_packets_that_it_waits_for() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut member = Member::enter(&poller, &hello());
    member.attend();
    let all = frames(0, 100);
    send(&wire, &all[..1]);
    assert!(member.is_readable(), "the first packet");
    await_produced(&poller, 1);
    assert!(!member.port.arm(1), "a packet is unread");
    member.read();
    assert!(member.port.arm(1) && !member.is_readable());
    send(&wire, &all[1..2]);
    await_so("the next packet", || member.is_readable());
    member.read();
    // So many bytes wake the reader, and no fewer.
    assert!(member.port.arm(room(&all[2..20])));
    send(&wire, &all[2..19]);
    await_produced(&poller, 19);
    assert!(!member.is_readable());
    send(&wire, &all[19..20]);
    await_so("the last of them", || member.is_readable());
    member.read();
    assert!(member.port.rest() && !member.is_readable());
    send(&wire, &all[20..]);
    await_produced(&poller, 100);
    assert!(
        !member.is_readable(),
        "a reader that rests waits for packets without room"
    );
    member.read();
    assert!(member.got.iter().copied().eq(0..100));
    let told = |received, dropped| PortStatistics { received, dropped };
    assert_eq!(member.port.take_statistics().unwrap(), told(100, 0));
    assert_eq!(member.port.take_statistics().unwrap(), told(0, 0));
    assert_eq!(member.port.link().unwrap(), LinkState::Up);
    assert_eq!(
        (member.entered.slot(), member.entered.bytes()),
        (0, 4 << 20)
    );
}

#[test]
fn packets_without_room_wake_a_reader_that_rests_and_are_counted() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let member = Member::enter(&poller, &hello());
    let _ = member.tasks.attend();
    send(&wire, &frames(0, 1));
    assert!(member.is_readable());
    assert!(member.port.rest() && !member.is_readable());
    // More than 3 MiB.
    for round in 0..14 {
        send(&wire, &frames(1 + 2000 * round, 2000));
    }
    await_so("drops", || poller.counts(Some(5)).unwrap().dropped > 0);
    await_so("the bell", || member.is_readable());
    await_so("all packets", || {
        poller.counts(Some(5)).unwrap().offered == 28_001
    });
    await_so("the counts", || {
        let counts = poller.counts(Some(5)).unwrap();
        counts.produced + counts.dropped == 28_001
    });
    let counted = member.port.take_statistics().unwrap();
    let counts = poller.counts(Some(5)).unwrap();
    assert_eq!(
        (counted.received, counted.dropped),
        (28_001, counts.dropped)
    );
}

#[test]
fn the_tasks_bring_the_pools_of_members_that_are_gone() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut members = [(); 3].map(|()| Member::enter(&poller, &hello()));
    // The first member owns all before it reads. The others wait for their tasks.
    send(&wire, &frames(0, 100));
    await_produced(&poller, 100);
    members.iter_mut().for_each(Member::attend);
    await_so("shares", || {
        let server = poller.server.lock().unwrap();
        let places = server
            .device()
            .look(Some(5), effective_user())
            .unwrap()
            .0
            .places;
        places.iter().all(|it| it.buckets > 1000)
    });
    send(&wire, &frames(100, 900));
    await_produced(&poller, 1000);
    let [mut first, second, third] = members;
    let waits_on = first.tasks.waits_on().unwrap();
    let is_called = || events::poll(&[waits_on], Some(Duration::ZERO)).unwrap()[0];
    assert!(!is_called());
    drop(third);
    drop(second);
    await_so("the takeovers", is_called);
    await_so("all packets", || {
        first.attend();
        first.read();
        first.got.len() == 1000
    });
    first.got.sort_unstable();
    assert!(first.got.iter().copied().eq(0..1000), "each once");
    await_so("the slots", || poller.sizes() == [1, 1]);
}

/// The poller runs no filters, so packets that a filter rejects are none that came for a member.
#[test]
fn packets_of_an_inherited_pool_that_a_filter_rejects_count_for_nobody() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let [mut gone, taker] = [(); 2].map(|()| Member::enter(&poller, &hello()));
    send(&wire, &frames(0, 100));
    await_produced(&poller, 100);
    gone.attend();
    // The first member takes 60 packets and rejects 10 of them, and the other one takes 30 and
    // rejects 7.
    let [taken, rejected, _] = gone.entered.figures().unwrap();
    taken.set(60);
    rejected.set(10);
    drop((gone, taken, rejected));
    let mut inherited = Vec::new();
    await_so("the takeover", || {
        inherited.extend(taker.tasks.attend().inherited);
        !inherited.is_empty()
    });
    let takeover = inherited.remove(0);
    let (taken, rejected) = (takeover.published.taken, takeover.rejected.unwrap());
    assert_eq!((taken.get(), rejected.get()), (60, 10));
    taken.set(90);
    rejected.set(17);
    (takeover.done)(30);
    let final_counters = || {
        let server = poller.server.lock().unwrap();
        server
            .device()
            .look(Some(5), effective_user())
            .unwrap()
            .0
            .gone
    };
    await_so("the account", || final_counters().members == 1);
    let expected = FinalCounters {
        members: 1,
        received: 83,
        dropped: 0,
        taken: 50,
        inherited: 23,
        unread: 10,
        unknown: 0,
    };
    assert_eq!(final_counters(), expected);
}

#[test]
fn a_poller_that_has_ended_is_told_and_its_packets_are_readable() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut member = Member::enter(&poller, &hello());
    member.attend();
    send(&wire, &frames(0, 50));
    await_produced(&poller, 50);
    member.read();
    // A thread of the poller rings the bell, perhaps later.
    await_so("no wake-up", || member.port.arm(1) && !member.is_readable());
    drop(poller);
    assert!(member.is_readable(), "a waiting reader is woken");
    assert_eq!(member.port.check(0).unwrap(), LinkState::Down);
    let error = member.port.link().unwrap_err();
    assert!(error.is_gone(), "{error}");
    assert!(member.tasks.attend().is_lost);
    assert!(!member.pool.open());
    assert_eq!(member.got.len(), 50);
}

#[test]
fn why_a_handle_is_no_member_is_told() {
    let poller = Poller::of_wires(&[Wire::default()]);
    let entered = |directory: &Directory, name: &str, hello: &Hello| {
        enter(
            directory,
            OsStr::new(name),
            hello,
            Duration::from_millis(300),
        )
        .map(drop)
    };
    let at = poller.directory();
    assert!(matches!(
        entered(&at, "nobody", &hello()),
        Err(EnterError::Unreachable(_))
    ));
    let wrong = Hello {
        steering: Steering::Program(Program {
            text: "main = hash".to_owned(),
            flows: None,
            balance: None,
        }),
        ..hello()
    };
    match entered(&at, NAME, &wrong) {
        Err(EnterError::Refused(refused)) => assert!(refused.text.contains("hash")),
        other => panic!("{other:?}"),
    }
    let wrong = Hello {
        class: 64,
        ..hello()
    };
    assert!(matches!(
        entered(&at, NAME, &wrong),
        Err(EnterError::Malformed(_))
    ));
    let scratch = Scratch::new().unwrap();
    let directory = Directory::open(&scratch.file("")).unwrap();
    let listener = named::socket().unwrap();
    named::listen(listener.as_fd(), &directory, OsStr::new("mute"), 0o600, 4).unwrap();
    let silent = entered(&directory, "mute", &hello()).unwrap_err();
    assert!(matches!(silent, EnterError::Silent), "{silent}");
    drop(listener);
    let dead = entered(&directory, "mute", &hello()).unwrap_err();
    assert!(
        dead.to_string()
            .starts_with("can't reach the device's poller"),
        "{dead}"
    );
}

/// The poller makes pools for many handles, one after another.
#[test]
fn a_handle_asks_a_late_poller_once_and_finds_its_answer_later() {
    let scratch = Scratch::new().unwrap();
    let directory = Directory::open(&scratch.file("")).unwrap();
    let listener = named::socket().unwrap();
    named::listen(listener.as_fd(), &directory, OsStr::new(NAME), 0o600, 4).unwrap();
    let mut asked = None;
    let look = |asked: &mut Option<_>| {
        let entered = enter_or_keep(
            &directory,
            OsStr::new(NAME),
            &hello(),
            Duration::ZERO,
            asked,
        );
        entered.unwrap_err()
    };
    for _ in 0..3 {
        assert!(matches!(look(&mut asked), EnterError::Silent));
        assert!(asked.is_some());
    }
    let poller = named::accept(listener.as_fd()).unwrap().unwrap();
    assert!(named::accept(listener.as_fd()).unwrap().is_none());
    let mut buffer = vec![0; LONGEST];
    let message = message::receive(poller.as_fd(), &mut buffer, 0).unwrap();
    let request = Request::decode(&buffer[..message.unwrap().len]);
    assert_eq!(request, Ok(Request::Hello(hello())));
    let again = message::receive(poller.as_fd(), &mut buffer, 0).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::WouldBlock, "one hello");
    let refused = Refused {
        slug: "poller-full".to_owned(),
        text: "full".to_owned(),
    };
    let answer = Answer::Refused(refused.clone()).encode().unwrap();
    message::send(poller.as_fd(), &answer, &[]).unwrap();
    assert!(matches!(look(&mut asked), EnterError::Refused(it) if it == refused));
    assert!(asked.is_none());
    // A connection that the poller closes is of no use.
    assert!(matches!(look(&mut asked), EnterError::Silent) && asked.is_some());
    drop(named::accept(listener.as_fd()).unwrap().unwrap());
    await_so("the end of the connection", || {
        matches!(look(&mut asked), EnterError::Silent) && asked.is_none()
    });
}
