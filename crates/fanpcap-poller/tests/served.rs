//! Members connect to a poller, which serves frames of the test. They get each packet once, whoever
//! comes, goes or does what no member does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
mod scene;

use clients::{
    Client, Poller, Wire, await_all, await_answer, await_shares, frames, hello, send, shares,
};
use fanpcap_linux::process::effective_user;
use fanpcap_linux::unix::message;
use fanpcap_poll::message::{Answer, Balance, Hello, LONGEST, Program, Request, Steering};
use fanpcap_poller::SentCounts;
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::traffic::sequence_of;
use scene::policy;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::slice;

#[test]
fn members_share_a_group_and_each_group_gets_all_packets() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut members: Vec<Client> = (0..4).map(|_| poller.member(&hello())).collect();
    let slots: Vec<u8> = members.iter().map(|it| it.slot).collect();
    assert_eq!(slots, [0, 1, 2, 3]);
    let own = Hello {
        group: None,
        ..hello()
    };
    let mut alone = [poller.member(&own), poller.member(&own)];
    assert_eq!(poller.sizes(), [3, 6]);
    await_shares(&poller, 4);
    let frames = frames(0, 4000);
    send(&wire, &frames);
    await_all(&mut members, &frames);
    assert!(
        members.iter().all(|it| it.got.len() > 300),
        "each has a share"
    );
    assert!(members.iter().all(Client::is_woken));
    for client in &mut alone {
        await_all(slice::from_mut(client), &frames);
    }
    let counts = poller.counts(Some(5)).unwrap();
    assert_eq!(
        (counts.offered, counts.produced, counts.dropped),
        (4000, 4000, 0)
    );
    drop((members, alone));
    await_so("the groups' end", || poller.sizes() == [0, 0]);
    assert!(poller.counts(Some(5)).is_none());
}

#[test]
fn what_a_dead_member_has_not_read_is_read_by_another() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut members: Vec<Client> = (0..3).map(|_| poller.member(&hello())).collect();
    await_shares(&poller, 3);
    let mut all = frames(0, 3000);
    send(&wire, &all);
    await_so("the packets", || {
        poller.counts(Some(5)).unwrap().produced == 3000
    });
    // It has read nothing.
    drop(members.remove(1));
    await_so("its buckets", || {
        members.iter_mut().for_each(Client::answer);
        shares(&poller) == 2
    });
    all.extend(frames(3000, 1000));
    send(&wire, &all[3000..]);
    await_so("all packets", || {
        members.iter_mut().for_each(Client::read);
        members.iter().map(|it| it.got.len()).sum::<usize>() == 4000
    });
    await_so("the slot", || poller.sizes() == [1, 2]);
    let view = poller
        .server
        .lock()
        .unwrap()
        .device()
        .look(Some(5), effective_user())
        .unwrap()
        .0;
    assert_eq!(view.gone.members, 1);
    // A member that has read ends. The packets in its pool are read, too.
    send(&wire, &frames(4000, 500));
    await_so("the packets", || {
        poller.counts(Some(5)).unwrap().produced == 4500
    });
    let leaving = members.remove(0);
    let before = leaving.got.len();
    drop(leaving);
    await_so("all packets", || {
        members[0].read();
        members[0].got.len() + before == 4500
    });
    let counts = poller.counts(Some(5)).unwrap();
    assert_eq!(
        (counts.offered, counts.produced, counts.no_member),
        (4500, 4500, 0)
    );
}

#[test]
fn a_group_ends_when_no_successor_comes_and_a_successor_goes_on() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let named = |name: &str| Hello {
        name: Some(name.to_owned()),
        ..hello()
    };
    let first = poller.member(&named("a"));
    await_shares(&poller, 1);
    drop(first);
    let frames = frames(0, 300);
    send(&wire, &frames);
    await_so("the packets", || {
        poller.counts(Some(5)).unwrap().produced == 300
    });
    let mut successor = [poller.member(&named("a"))];
    await_all(&mut successor, &frames);
    drop(successor);
    await_so("the group's end", || poller.sizes() == [0, 0]);
}

#[test]
fn two_queues_are_two_lanes_of_each_pool() {
    let wires = [Wire::default(), Wire::default()];
    let poller = Poller::of_wires(&wires);
    let mut members = [poller.member(&hello()), poller.member(&hello())];
    await_shares(&poller, 2);
    let frames = frames(0, 2000);
    for (index, frame) in frames.iter().enumerate() {
        wires[index % 2].send([&frame.bytes[..]]);
    }
    await_all(&mut members, &frames);
    assert_eq!(poller.counts(Some(5)).unwrap().offered, 2000);
}

#[test]
fn what_a_poller_does_not_have_is_refused_with_the_reason() {
    let poller = Poller::of_wires(&[Wire::default()]);
    let _first = poller.member(&hello());
    let refused = |change: &dyn Fn(&mut Hello)| {
        let mut hello = hello();
        change(&mut hello);
        poller.newcomer(&hello).err().unwrap()
    };
    let program = |text: &str| Program {
        text: text.to_owned(),
        flows: None,
        balance: None,
    };
    let flow = fanpcap_steer::modes::source("flow").unwrap();
    let is_taken = |program: Program| {
        let steering = Steering::Program(program);
        poller
            .newcomer(&Hello {
                steering,
                ..hello()
            })
            .is_ok()
    };
    assert!(is_taken(program(flow)));
    let with = |program: &Program| refused(&|it| it.steering = Steering::Program(program.clone()));
    let flows = |flows| Program {
        flows: Some(flows),
        ..program(flow)
    };
    let balance = Some(Balance::Idle);
    for other in [
        program("main = steer_p2p"),
        Program {
            balance,
            ..program(flow)
        },
        flows(1024),
    ] {
        let other = with(&other);
        assert!(other.contains("another steering program"), "{other}");
    }
    assert!(with(&flows(u32::MAX)).contains("1048576"));
    let wrong = with(&program("main = steer_flw"));
    assert!(wrong.contains("steer_flw"), "{wrong}");
    let filter = with(&program("main = filter \"tcp\""));
    assert!(filter.contains("no filters"), "{filter}");
    // A group that can't begin leaves nothing.
    let wrong = Steering::Program(program("main ="));
    assert!(refused(&|it| (it.group, it.steering) = (Some(6), wrong.clone())).contains("poller-"));
    assert_eq!(poller.sizes()[0], 1);
    let many: Vec<_> = (0..63)
        .map(|_| {
            poller
                .newcomer(&Hello {
                    group: None,
                    ..hello()
                })
                .unwrap()
        })
        .collect();
    let full = refused(&|it| it.group = None);
    assert!(full.contains("poller-groups"), "{full}");
    drop(many);
    await_so("the groups' end", || poller.sizes()[0] == 1);
}

#[test]
fn what_is_no_message_closes_its_connection_and_no_other() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut members = [poller.member(&hello()), poller.member(&hello())];
    await_shares(&poller, 2);
    let good = Request::Hello(hello()).encode().unwrap();
    let mut other_version = good.clone();
    other_version[4] = 2;
    let refusal = |bytes: &[u8]| {
        let socket = poller.connect();
        message::send(socket.as_fd(), bytes, &[]).unwrap();
        match await_answer(socket.as_fd()) {
            None => None,
            Some((Answer::Refused(refused), _)) => {
                assert!(await_answer(socket.as_fd()).is_none(), "closed");
                Some(refused.text)
            }
            Some((answer, _)) => panic!("{answer:?}"),
        }
    };
    assert!(refusal(&other_version).unwrap().contains("version 2"));
    assert!(refusal(b"GET / HTTP/1.1").unwrap().contains("no poller"));
    assert_eq!(refusal(&Request::Reads.encode().unwrap()), None);
    assert_eq!(refusal(&vec![0; LONGEST + 1]), None);
    let socket = poller.connect();
    message::send(socket.as_fd(), &good, &[socket.as_fd()]).unwrap();
    assert!(await_answer(socket.as_fd()).is_none(), "no descriptors");
    // A second hello, and the end of a pool that is not the member's.
    let twice = poller
        .newcomer(&Hello {
            group: Some(9),
            ..hello()
        })
        .unwrap();
    twice.send(&Request::ReadOut(1));
    twice.send(&Request::ReadOut(77));
    twice.send(&Request::Hello(hello()));
    assert!(await_answer(twice.socket.as_fd()).is_none());
    let frames = frames(0, 1000);
    send(&wire, &frames);
    await_all(&mut members, &frames);
}

#[test]
fn all_pools_together_have_a_limit() {
    let mut policy = policy();
    policy.limits.bytes.all = 64 << 20;
    let poller = Poller::with(&[Wire::default()], policy);
    let large = Hello {
        memory: Some(16 << 20),
        ..hello()
    };
    let mut members = Vec::new();
    let refusal = loop {
        match poller.newcomer(&large) {
            Ok(member) => members.push(member),
            Err(refusal) => break refusal,
        }
    };
    // A user leaves half, and the group's table takes some memory.
    assert_eq!(members.len(), 1);
    assert!(refusal.contains("poller-memory"), "{refusal}");
    assert!(poller.newcomer(&hello()).is_ok(), "a small pool has room");
    drop(members);
    await_so("room", || poller.newcomer(&large).is_ok());
}

#[test]
fn the_poller_chooses_a_number_that_no_group_of_the_user_has() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let new = Hello {
        group: None,
        wants_number: true,
        ..hello()
    };
    let first = poller.member(&new);
    let second = poller.member(&new);
    let numbers = [&first, &second].map(|it| it.group.unwrap());
    assert!(numbers[0] != numbers[1] && numbers.iter().all(|it| *it >= 1 << 15));
    let joined = poller.member(&Hello {
        group: first.group,
        ..hello()
    });
    assert_eq!((joined.group, joined.slot), (first.group, 1));
    assert_eq!(poller.sizes(), [2, 3]);
    let own = poller.member(&Hello {
        group: None,
        ..hello()
    });
    assert_eq!(own.group, None);
}

#[test]
fn a_member_that_may_not_send_and_does_is_closed() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let member = poller.member(&hello());
    member.send(&Request::Frame(vec![2; 60]));
    await_so("the member's end", || poller.sizes() == [0, 0]);
    let server = poller.server.lock().unwrap();
    assert_eq!(server.device().sent(), SentCounts::default());
}

/// While a member holds, the poller looks after its whole group.
#[test]
fn a_member_that_holds_without_being_asked_is_closed() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut members = [poller.member(&hello()), poller.member(&hello())];
    await_shares(&poller, 2);
    let other = poller.member(&Hello {
        group: Some(6),
        ..hello()
    });
    other.send(&Request::Holds);
    assert!(await_answer(other.socket.as_fd()).is_none(), "closed");
    await_so("its end", || poller.sizes() == [1, 2]);
    let frames = frames(0, 100);
    send(&wire, &frames);
    await_all(&mut members, &frames);
}

/// The members answer late, and take packets of their own pools before. So a poller that gave the
/// buckets away earlier would give them later packets of the flows.
#[test]
fn a_flow_stays_in_order_when_its_member_dies() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut members: Vec<Client> = (0..3).map(|_| poller.member(&hello())).collect();
    await_shares(&poller, 3);
    let produced = |count| {
        await_so("the packets", || {
            poller.counts(Some(5)).unwrap().produced == count
        });
    };
    send(&wire, &frames(0, 1000));
    produced(1000);
    drop(members.remove(0));
    await_so("a question", || members.iter().any(Client::is_asked));
    send(&wire, &frames(1000, 1000));
    produced(2000);
    members.iter_mut().for_each(Client::read_own);
    await_so("all packets", || {
        members.iter_mut().for_each(Client::read);
        members.iter().map(|it| it.got.len()).sum::<usize>() == 2000
    });
    let flows = frames(0, 1000).into_iter().chain(frames(1000, 1000));
    let flows: Vec<_> = flows.map(|it| it.flow.key()).collect();
    for member in &members {
        let mut last = BTreeMap::new();
        for number in member.got.iter().map(|it| sequence_of(it).unwrap()) {
            let flow = &flows[usize::try_from(number).unwrap()];
            let before = last.insert(flow, number);
            assert!(before < Some(number), "{before:?} before {number}");
        }
    }
}
