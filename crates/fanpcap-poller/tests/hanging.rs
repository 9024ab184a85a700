//! Members hang, or end one after the other. The test has the time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
#[path = "scene/device.rs"]
mod device;
mod scene;

use device::{Member, SECOND, Scene, run};
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
    let notices = scene.device.hang_up(dead.number, scene.now_ns);
    let [notice] = &notices[..] else {
        panic!("{notices:?}");
    };
    assert_eq!(notice.to, reads.number);
    reads.read_out(notice);
    let gone = notice.takeover.member;
    scene.device.read_out(reads.number, gone, scene.now_ns);
    // The last member that reads dies, too.
    scene.send(100);
    let notices = scene.device.hang_up(reads.number, scene.now_ns);
    assert!(notices.is_empty() && scene.pass(SECOND).is_empty());
    // It reads again.
    hangs.read();
    let notices = scene.pass(SECOND / 2);
    assert!(notices.iter().map(|it| it.to).eq([hangs.number]));
    hangs.read_out(&notices[0]);
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
    scene.device.hang_up(first.number, scene.now_ns);
    scene
        .device
        .read_out(second.number, first.number, scene.now_ns);
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
    let notices = scene.device.hang_up(members[2].number, scene.now_ns);
    assert!(notices.iter().map(|it| it.to).eq([members[1].number]));
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
    let notices = scene.device.hang_up(first.number, scene.now_ns);
    assert!(notices.iter().map(|it| it.to).eq([dies.number]));
    // The member that shall read the pool dies, too.
    let notices = scene.device.hang_up(dies.number, scene.now_ns);
    assert_eq!(notices.len(), 2);
    for notice in &notices {
        assert_eq!(notice.to, lives.number);
        lives.read_out(notice);
        let gone = notice.takeover.member;
        scene.device.read_out(lives.number, gone, scene.now_ns);
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
