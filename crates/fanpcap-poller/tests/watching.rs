//! Processes that are no members see a poller's groups, change weights, and get the accounts of
//! members that have ended.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
mod scene;

use clients::{Client, NAME, Poller, Wire, await_all, await_shares, frames, hello, send};
use fanpcap_group::view::State;
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::process::effective_user;
use fanpcap_linux::unix::message;
use fanpcap_poll::message::{
    Answer, Hello, MemberCounts, Program, Question, Reply, SeenGroup, SeenLedger, Steering, Watched,
};
use fanpcap_poll::{Asking, PoolFile};
use fanpcap_testkit::await_for::{LIMIT, await_so};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::slice;

fn asking(poller: &Poller) -> Asking {
    let directory = Directory::open(&poller.path()).unwrap();
    Asking::connect(&directory, OsStr::new(NAME), LIMIT).unwrap()
}

fn group(poller: &Poller) -> SeenGroup {
    let mut groups = asking(poller).groups().unwrap();
    assert_eq!(groups.len(), 1);
    groups.remove(0)
}

fn group_of(poller: &Poller, number: u16) -> SeenGroup {
    let groups = asking(poller).groups().unwrap();
    let mut groups = groups.into_iter();
    groups.find(|it| it.number == Some(number)).unwrap()
}

/// Waits until so many packets have come to the group.
fn await_offered(poller: &Poller, count: u64) -> SeenGroup {
    let is_there = || group(poller).ledger.offered == count;
    await_so("packets", is_there);
    group(poller)
}

fn watched(asking: &mut Asking) -> Watched {
    let reply = asking.ask(Question::Watch(5)).unwrap();
    let Reply::Watched(watched) = reply else {
        panic!("{reply:?}");
    };
    *watched
}

#[test]
fn groups_are_seen_with_their_members_and_counts() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    assert!(asking(&poller).groups().unwrap().is_empty());
    let program = Program {
        text: fanpcap_steer::modes::source("flow").unwrap().to_owned(),
        flows: Some(1024),
        balance: None,
    };
    let mut first = hello();
    first.steering = Steering::Program(program);
    let mut members: Vec<Client> = vec![poller.member(&first)];
    await_shares(&poller, 1);
    members.push(poller.member(&Hello {
        weight: 3,
        ..hello()
    }));
    let newcomer = poller.newcomer(&hello()).unwrap();
    await_shares(&poller, 2);
    let all = frames(0, 500);
    send(&wire, &all);
    let seen = await_offered(&poller, 500);
    await_all(&mut members, &all);
    let is = (seen.number, seen.user, seen.ifindex, &*seen.title);
    assert_eq!(is, (Some(5), effective_user(), 7, "flow+sticky=1024"));
    let states: Vec<State> = seen.slots.iter().map(|it| State::of(it.state)).collect();
    assert_eq!(states, [State::Live, State::Live, State::Newcomer]);
    let buckets: Vec<u16> = seen.slots.iter().map(|it| it.buckets).collect();
    assert_eq!(buckets, [1024, 3072, 0]);
    for (slot, member) in seen.slots.iter().zip(&members) {
        assert_eq!(slot.pid, std::process::id());
        assert_eq!(slot.counts.produced, member.got.len() as u64);
        assert_eq!((slot.counts.dropped, slot.pool_bytes), (0, 4 << 20));
    }
    assert_eq!((seen.ledger.produced, seen.ledger.no_member), (500, 0));
    drop(newcomer);
}

#[test]
fn a_member_is_drained_and_gets_buckets_again() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut members: Vec<Client> = (0..2).map(|_| poller.member(&hello())).collect();
    await_shares(&poller, 2);
    let number = |slot: usize| group(&poller).slots[slot].member;
    let buckets = || -> Vec<u16> { group(&poller).slots.iter().map(|it| it.buckets).collect() };
    let weigh = |member, weight| asking(&poller).ask(Question::Weigh { member, weight });
    assert_eq!(weigh(number(0), 0).unwrap(), Reply::Done);
    assert_eq!(buckets(), [0, 4096]);
    let Reply::NotDone(why) = weigh(number(1), 0).unwrap() else {
        panic!("the last member was drained");
    };
    assert!(why.contains("no other member"), "{why}");
    let all = frames(0, 300);
    send(&wire, &all);
    await_offered(&poller, 300);
    await_all(&mut members, &all);
    assert_eq!((members[0].got.len(), members[1].got.len()), (0, 300));
    assert_eq!(weigh(number(0), 3).unwrap(), Reply::Done);
    assert_eq!(buckets(), [3072, 1024]);
    let Reply::NotDone(why) = weigh(99, 1).unwrap() else {
        panic!("no such member");
    };
    assert!(why.contains("left the group"), "{why}");
}

/// How many of the packets each member has got since it had `before`.
fn since(members: &[Client], before: &[usize]) -> Vec<usize> {
    let got = members.iter().map(|it| it.got.len());
    got.zip(before).map(|(now, before)| now - before).collect()
}

/// Remembered flows stay at their members when weights change. Only a drained member loses them.
#[test]
fn weights_of_a_sticky_group_move_new_flows_and_a_drain_moves_all() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let program = Program {
        text: fanpcap_steer::modes::source("flow").unwrap().to_owned(),
        flows: Some(4096),
        balance: None,
    };
    let sticky = Hello {
        steering: Steering::Program(program),
        ..hello()
    };
    let mut members: Vec<Client> = (0..2).map(|_| poller.member(&sticky)).collect();
    await_shares(&poller, 2);
    let number = group(&poller).slots[0].member;
    let weigh = |weight| {
        let question = Question::Weigh {
            member: number,
            weight,
        };
        assert_eq!(asking(&poller).ask(question).unwrap(), Reply::Done);
    };
    let mut sent = 0;
    let mut round = |members: &mut Vec<Client>| {
        let before: Vec<usize> = members.iter().map(|it| it.got.len()).collect();
        // The same frames in each round, so the same flows.
        send(&wire, &frames(0, 400));
        sent += 400;
        await_so("all packets", || {
            members.iter_mut().for_each(Client::read);
            members.iter().map(|it| it.got.len()).sum::<usize>() as u64 >= sent
        });
        since(members, &before)
    };
    let shares = round(&mut members);
    assert!(shares.iter().all(|it| *it > 0), "{shares:?}");
    weigh(7);
    assert_eq!(group(&poller).slots[0].buckets, 3584);
    assert_eq!(round(&mut members), shares, "remembered flows stay");
    weigh(0);
    assert_eq!(round(&mut members), [0, 400]);
    weigh(1);
    assert_eq!(round(&mut members), [0, 400], "and stay again");
}

#[test]
fn the_account_of_a_member_that_ends_is_kept_for_the_watcher() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut asking = asking(&poller);
    let begun = watched(&mut asking);
    assert!(begun.ended.is_empty() && begun.ledger.offered == 0);
    let mut members: Vec<Client> = (0..2).map(|_| poller.member(&hello())).collect();
    await_shares(&poller, 2);
    let all = frames(0, 400);
    send(&wire, &all);
    let seen = await_offered(&poller, 400);
    // The first member dies with all its packets, and the second one reads them.
    let gone = seen.slots[0];
    drop(members.remove(0));
    await_all(&mut members, &all);
    let mut found = Watched::default();
    await_so("the account", || {
        found = watched(&mut asking);
        !found.ended.is_empty()
    });
    assert_eq!(found.ended.len(), 1);
    let ended = found.ended[0];
    assert_eq!((ended.member, ended.pid), (gone.member, std::process::id()));
    assert_eq!(ended.counts.produced, gone.counts.produced);
    assert!(watched(&mut asking).ended.is_empty(), "each account once");
    // The last member leaves packets that nobody reads, and then comes a new group.
    let more = frames(400, 100);
    send(&wire, &more);
    await_offered(&poller, 500);
    drop(members.pop());
    await_so("the account", || {
        found = watched(&mut asking);
        !found.ended.is_empty()
    });
    assert_eq!(
        found.ended[0].counts.unread(),
        found.ended[0].counts.produced
    );
    send(&wire, &frames(500, 70));
    await_so("absent packets", || watched(&mut asking).absent == 70);
    let _third = poller.member(&hello());
    await_shares(&poller, 1);
    send(&wire, &frames(570, 30));
    await_so("packets of both groups", || {
        watched(&mut asking).ledger.offered == 530
    });
    let found = watched(&mut asking);
    assert_eq!((found.absent, found.ledger.produced), (70, 530));
    assert_eq!(found.forgotten, 0);
}

/// Each watch keeps accounts.
#[test]
fn a_user_has_eight_watches_at_most() {
    let poller = Poller::of_wires(&[Wire::default()]);
    let mut all: Vec<Asking> = (0..9).map(|_| asking(&poller)).collect();
    let mut last = all.pop().unwrap();
    for _ in 0..2 {
        all.iter_mut().for_each(|it| _ = watched(it));
    }
    let mut ask = || last.ask(Question::Watch(5)).unwrap();
    let Reply::NotDone(why) = ask() else {
        panic!("nine watches");
    };
    assert!(why.contains("as many groups"), "{why}");
    drop(all.pop());
    await_so("a watch", || matches!(ask(), Reply::Watched(_)));
}

#[test]
fn a_stopped_group_gets_no_more_packets() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let mut members = [poller.member(&hello())];
    await_shares(&poller, 1);
    let all = frames(0, 50);
    send(&wire, &all);
    await_offered(&poller, 50);
    let mut asking = asking(&poller);
    assert_eq!(asking.ask(Question::Stop(5)).unwrap(), Reply::Done);
    let of_other = Hello {
        group: Some(6),
        ..hello()
    };
    let other = poller.member(&of_other);
    send(&wire, &frames(50, 50));
    let offered = || -> Vec<u64> {
        let groups = self::asking(&poller).groups().unwrap();
        groups.iter().map(|it| it.ledger.offered).collect()
    };
    await_so("packets of the other group", || offered()[1] == 50);
    // The counts that are shown of each group may be some milliseconds old.
    await_so("counts of the stopped group", || {
        let ledger = group_of(&poller, 5).ledger;
        [ledger.offered, ledger.produced, ledger.stopped] == [100, 50, 50]
    });
    drop(other);
    await_all(&mut members, &all);
    // A newcomer starts the group again.
    let newcomer = poller.member(&hello());
    await_shares(&poller, 2);
    send(&wire, &frames(100, 50));
    await_so("packets", || offered()[0] == 150);
    assert_eq!(group_of(&poller, 5).ledger.stopped, 50);
    drop(newcomer);
    let Reply::NotDone(why) = asking.ask(Question::Stop(6)).unwrap() else {
        panic!("no such group");
    };
    assert!(why.contains("no group 6"), "{why}");
}

/// A member that came before the group was stopped does not wait for a newcomer.
#[test]
fn a_group_gets_packets_again_when_the_process_that_stopped_it_is_gone() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let _member = poller.member(&hello());
    await_shares(&poller, 1);
    let mut first = asking(&poller);
    assert_eq!(first.ask(Question::Stop(5)).unwrap(), Reply::Done);
    // The end of another connection starts nothing.
    drop(asking(&poller));
    send(&wire, &frames(0, 50));
    assert_eq!(await_offered(&poller, 50).ledger.stopped, 50);
    drop(first);
    let (mut sent, mut ledger) = (50, SeenLedger::default());
    await_so("packets", || {
        send(&wire, &frames(sent, 10));
        sent += 10;
        ledger = await_offered(&poller, sent).ledger;
        ledger.produced > 0
    });
    assert_eq!(ledger.offered, ledger.produced + ledger.stopped);
}

/// What a member says of itself is believed only as far as the poller's own counts allow.
#[test]
fn what_a_member_tells_concerns_itself_alone() {
    let wire = Wire::default();
    let poller = Poller::of_wires(slice::from_ref(&wire));
    let bytes = fanpcap_poll::message::Request::Hello(hello())
        .encode()
        .unwrap();
    let socket = poller.connect();
    message::send(socket.as_fd(), &bytes, &[]).unwrap();
    let (answer, descriptors) = clients::await_answer(socket.as_fd()).unwrap();
    let Answer::Welcome(welcome) = answer else {
        panic!("refused");
    };
    let pool: PoolFile = welcome.open(descriptors).unwrap().pool;
    let figures = pool.figures().unwrap();
    send(&wire, &frames(0, 40));
    await_offered(&poller, 40);
    let told = |taken, rejected| {
        figures[0].set(taken);
        figures[1].set(rejected);
        group(&poller).slots[0].counts
    };
    assert_eq!(told(30, 10).unread(), 10);
    assert_eq!(told(30, 10).received(), 30);
    assert_eq!(told(30, 10).delivered(), 20);
    let most = MemberCounts {
        produced: 40,
        dropped: 0,
        taken: 40,
        rejected: 40,
    };
    assert_eq!(told(u64::MAX, u64::MAX), most);
}

#[test]
fn a_member_asks_no_questions_and_an_asker_sends_no_requests() {
    let poller = Poller::of_wires(&[Wire::default()]);
    let member = poller.member(&hello());
    let question = Question::Look(0).encode();
    message::send(member.socket.as_fd(), &question, &[]).unwrap();
    assert!(clients::await_answer(member.socket.as_fd()).is_none());
    let asker = poller.connect();
    message::send(asker.as_fd(), &Question::Stop(9).encode(), &[]).unwrap();
    let mut buffer = [0; 256];
    await_so("a reply", || {
        message::receive(asker.as_fd(), &mut buffer, 0).is_ok_and(|it| it.is_some())
    });
    let reads = fanpcap_poll::message::Request::Reads.encode().unwrap();
    message::send(asker.as_fd(), &reads, &[]).unwrap();
    assert!(clients::await_answer(asker.as_fd()).is_none());
}
