//! Members hang, or end one after the other. The test has the time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
#[path = "scene/device.rs"]
mod device;
mod scene;

use clients::hello;
use device::{Member, SECOND, Scene, run};
use fanpcap_poll::message::Hello;
use fanpcap_poller::device::{Notice, Told};
use std::slice;

#[test]
fn a_member_that_hangs_has_no_share_and_takes_over_nothing_until_it_reads() {
    let mut scene = Scene::new();
    let mut hangs = scene.member();
    let mut others = [scene.member(), scene.member()];
    assert!(scene.buckets(&hangs) > 1000);
    run(&mut scene, 9, &mut others);
    assert!(scene.buckets(&hangs) > 1000, "a short stop moves no flow");
    run(&mut scene, 5, &mut others);
    for _ in 0..20 {
        assert_eq!(scene.buckets(&hangs), 0, "it gets no share back");
        run(&mut scene, 1, &mut others);
    }
    scene.send(100);
    let [dead, mut reads] = others;
    let inherited = scene.hang_up(dead.number);
    assert!(inherited.iter().map(|it| it.to).eq([reads.number]));
    reads.read_out(&inherited[0]);
    scene.tell_read_out(&inherited[0]);
    // The last member that reads dies, too.
    scene.send(100);
    assert!(scene.hang_up(reads.number).is_empty() && scene.pass(SECOND).is_empty());
    // It reads again.
    hangs.read();
    let notices = scene.pass(SECOND / 2);
    let inherited = scene.answer(notices);
    assert!(inherited.iter().map(|it| it.to).eq([hangs.number]));
    hangs.read_out(&inherited[0]);
    assert_eq!(scene.buckets(&hangs), 4096);
    let mut all = [dead.got, reads.got, hangs.got].concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..scene.sent), "each packet once");
}

/// The counts of a group are shown again for a while, and the test's clock stands still.
#[test]
fn a_newcomer_does_not_show_the_counts_of_its_slots_former_member() {
    let mut scene = Scene::new();
    let first = scene.member();
    scene.send(100);
    let second = scene.member();
    let produced = |scene: &mut Scene, member: &Member| {
        let group = scene.device.see(0, 0, scene.now_ns).unwrap();
        let mut slots = group.slots.iter();
        let slot = slots.find(|it| it.member == member.number).unwrap();
        slot.counts.produced
    };
    assert_eq!(produced(&mut scene, &first), 100);
    let inherited = scene.hang_up(first.number);
    assert!(inherited.iter().map(|it| it.to).eq([second.number]));
    scene.tell_read_out(&inherited[0]);
    let third = scene.member();
    assert_eq!(third.slot, first.slot);
    assert_eq!(produced(&mut scene, &third), 0);
}

/// A member that hangs with an empty pool is not seen to hang.
#[test]
fn members_that_took_packets_lately_take_over_first() {
    let mut scene = Scene::new();
    let mut members = [(); 3].map(|()| scene.member());
    scene.send(100);
    members.iter_mut().for_each(Member::read);
    scene.pass(3 * SECOND);
    scene.send(100);
    members[1].read();
    scene.pass(3 * SECOND);
    let inherited = scene.hang_up(members[2].number);
    assert!(inherited.iter().map(|it| it.to).eq([members[1].number]));
}

#[test]
fn members_whose_pools_are_empty_do_not_hang() {
    let mut scene = Scene::new();
    let mut members = [scene.member(), scene.member()];
    scene.send(100);
    members.iter_mut().for_each(Member::read);
    for _ in 0..30 {
        assert!(scene.pass(SECOND).is_empty());
    }
    assert!(members.iter().all(|it| scene.buckets(it) == 2048));
}

/// After a pause of the whole machine, all members have had no time to read.
#[test]
fn a_time_in_which_the_poller_does_not_look_is_no_silence() {
    let mut scene = Scene::new();
    let (hangs, mut reads) = (scene.member(), scene.member());
    scene.send(100);
    reads.read();
    scene.pass(3 * SECOND);
    scene.pass(60 * SECOND);
    assert!(scene.buckets(&hangs) > 1000);
    run(&mut scene, 14, slice::from_mut(&mut reads));
    assert_eq!(scene.buckets(&hangs), 0);
}

#[test]
fn a_member_that_hangs_alone_keeps_its_share_until_another_reads() {
    let mut scene = Scene::new();
    let hangs = scene.member();
    run(&mut scene, 20, &mut []);
    assert_eq!(scene.buckets(&hangs), 4096);
    let mut others = [scene.member()];
    run(&mut scene, 14, &mut others);
    assert_eq!(scene.buckets(&hangs), 0);
    assert_eq!(scene.buckets(&others[0]), 4096);
}

#[test]
fn a_pool_goes_to_the_next_member_if_its_reader_dies_and_the_last_member_ends_the_group() {
    let mut scene = Scene::new();
    let [first, dies, mut lives] = [(); 3].map(|()| scene.member());
    scene.send(200);
    let inherited = scene.hang_up(first.number);
    assert!(inherited.iter().map(|it| it.to).eq([dies.number]));
    // The member that shall read the pool dies, too.
    let inherited = scene.hang_up(dies.number);
    assert_eq!(inherited.len(), 2);
    for it in &inherited {
        assert_eq!(it.to, lives.number);
        lives.read_out(it);
        scene.tell_read_out(it);
    }
    lives.read();
    lives.got.sort_unstable();
    assert!(lives.got.iter().copied().eq(0..200), "each once");
    assert_eq!(scene.device.sizes(), [1, 1]);
    scene.device.hang_up(lives.number, scene.now_ns);
    assert_eq!(scene.device.sizes(), [0, 0]);
    let ended = scene.device.ended();
    assert_eq!((ended.offered, ended.produced), (200, 200));
}

/// Each *reads* that makes the poller look after the whole group would be work for one message.
#[test]
fn a_member_that_says_again_that_it_reads_is_not_heard() {
    let mut scene = Scene::new();
    let (hangs, mut reads) = (scene.member(), scene.member());
    scene.send(100);
    reads.read();
    let say = |scene: &mut Scene| {
        scene.now_ns += SECOND;
        scene.device.reads(reads.number, scene.now_ns)
    };
    (0..30).for_each(|_| drop(say(&mut scene)));
    assert!(scene.buckets(&hangs) > 1000);
}

/// The members that these messages ask to take no packets. There are no other messages.
fn asked(notices: &[Notice]) -> Vec<u64> {
    let is_question = |it: &Notice| matches!(it.what, Told::Hold);
    assert!(notices.iter().all(is_question), "{notices:?}");
    notices.iter().map(|it| it.to).collect()
}

#[test]
fn a_dead_member_keeps_its_buckets_until_a_member_takes_no_packets() {
    let mut scene = Scene::new();
    let [dead, mut takes, mut other] = [(); 3].map(|()| scene.member());
    scene.send(300);
    takes.read();
    other.read();
    let share = scene.buckets(&dead);
    let notices = scene.device.hang_up(dead.number, scene.now_ns);
    assert_eq!(asked(&notices), [takes.number]);
    assert_eq!(scene.buckets(&dead), share);
    // The poller waits for the answer, and looks after nothing before.
    assert!(scene.pass(0).is_empty());
    assert!(scene.device.due_ns(scene.now_ns).unwrap() > SECOND / 10);
    scene.send(300);
    // The member has taken packets before it finds the question.
    takes.read();
    let inherited = scene.answer(notices);
    assert!(inherited.iter().map(|it| it.to).eq([takes.number]));
    assert_eq!(scene.buckets(&dead), 0);
    assert_eq!(scene.buckets(&takes) + scene.buckets(&other), 4096);
    scene.send(300);
    takes.read_out(&inherited[0]);
    takes.read();
    other.read();
    for member in [&takes, &other] {
        scene.ensure_order(member);
    }
    let mut all = [takes.got, other.got].concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..900), "each packet once");
}

#[test]
fn a_member_that_does_not_answer_inherits_nothing_and_is_not_asked_again() {
    let mut scene = Scene::new();
    let [first, second, mut silent, third, last] = [(); 5].map(|()| scene.member());
    // It took packets last, so it is asked first.
    scene.send(100);
    silent.read();
    assert!(scene.pass(SECOND / 2).is_empty());
    let notices = scene.device.hang_up(first.number, scene.now_ns);
    assert_eq!(asked(&notices), [silent.number]);
    assert!(scene.pass(SECOND / 10).is_empty());
    assert!(scene.buckets(&first) > 0);
    let notices = scene.pass(SECOND / 10);
    let others = [second.number, third.number, last.number];
    assert_eq!(asked(&notices), others);
    let inherited = scene.answer(notices);
    assert!(inherited.iter().map(|it| it.to).eq([second.number]));
    scene.tell_read_out(&inherited[0]);
    assert!(scene.pass(SECOND).is_empty());
    // Another member dies, and no time is lost.
    let notices = scene.device.hang_up(second.number, scene.now_ns);
    assert_eq!(asked(&notices), [third.number, last.number]);
    let inherited = scene.answer(notices);
    assert!(inherited.iter().map(|it| it.to).eq([third.number]));
    // It answers after all, and goes on.
    let notices = scene.device.holds(silent.number, scene.now_ns).unwrap();
    assert!(matches!(&notices[..], [it] if matches!(it.what, Told::GoOn)));
    assert!(scene.device.holds(silent.number, scene.now_ns).is_none());
}

#[test]
fn another_member_is_asked_if_the_asked_one_dies() {
    let mut scene = Scene::new();
    let [first, asked_one, dies, mut lives] = [(); 4].map(|()| scene.member());
    scene.send(200);
    let notices = scene.device.hang_up(first.number, scene.now_ns);
    assert_eq!(asked(&notices), [asked_one.number]);
    let notices = scene.device.hang_up(dies.number, scene.now_ns);
    assert!(notices.is_empty(), "one question at a time: {notices:?}");
    let notices = scene.device.hang_up(asked_one.number, scene.now_ns);
    assert_eq!(asked(&notices), [lives.number]);
    scene.send(200);
    let inherited = scene.answer(notices);
    assert_eq!(inherited.len(), 3);
    inherited.iter().for_each(|it| lives.read_out(it));
    lives.read();
    lives.got.sort_unstable();
    assert!(lives.got.iter().copied().eq(0..400), "each once");
}

/// A successor gets packets of its predecessor's flows at once.
#[test]
fn a_successor_gets_its_share_when_it_takes_no_packets() {
    let mut scene = Scene::new();
    let named = Hello {
        name: Some("a".to_owned()),
        ..hello()
    };
    let first = scene.member_with(&named);
    let other = scene.member();
    scene.send(100);
    assert!(scene.device.hang_up(first.number, scene.now_ns).is_empty());
    let entered = scene.enter(&named, 0).unwrap();
    let notices = scene.device.reads(entered.member, scene.now_ns);
    assert_eq!(asked(&notices), [entered.member]);
    let mut successor = Member::of(&entered);
    assert_eq!(
        [scene.buckets(&first), scene.buckets(&successor)],
        [2048, 0]
    );
    scene.send(100);
    let inherited = scene.answer(notices);
    assert!(inherited.iter().all(|it| it.takeover.with_copies));
    assert_eq!(
        [scene.buckets(&first), scene.buckets(&successor)],
        [0, 2048]
    );
    scene.send(100);
    successor.read_out(&inherited[0]);
    successor.read();
    scene.ensure_order(&successor);
    assert_eq!(scene.buckets(&other), 2048);
}

/// The packets of a class are for no other class.
#[test]
fn the_pool_of_the_last_member_of_a_class_is_read_by_nobody() {
    let mut scene = Scene::new();
    let mut first = scene.member();
    let other = scene.member_with(&Hello {
        class: 1,
        ..hello()
    });
    scene.send(100);
    first.read();
    assert!(scene.hang_up(other.number).is_empty());
    for _ in 0..10 {
        let notices = scene.pass(SECOND / 10);
        assert!(scene.answer(notices).is_empty());
    }
    assert_eq!(scene.device.sizes(), [1, 1]);
    assert_eq!(scene.device.look(Some(5), 0).unwrap().0.gone.members, 1);
}
