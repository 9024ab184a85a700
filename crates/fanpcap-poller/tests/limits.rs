//! Members of several users, and what a device has too little of: memory, groups, descriptors.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
#[path = "scene/device.rs"]
mod device;
mod scene;

use clients::{Wire, hello};
use device::Scene;
use fanpcap_linux::unix::Peer;
use fanpcap_poll::PoolKind;
use fanpcap_poll::message::Hello;
use fanpcap_poller::access::{Access, Grant, Others, Rule, Who};
use fanpcap_poller::device::{Device, Entered};
use fanpcap_poller::{Accounts, Limit};
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::await_so;
use scene::{drain, own_name, policy, reader};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::Command;

/// A member of another user could take packets from a group's members.
#[test]
fn groups_of_users_are_apart_even_if_their_numbers_are_equal() {
    let mut scene = Scene::new();
    let mut all = [1000, 1000, 1001, 0].map(|user| {
        let entered = scene.enter(&hello(), user).unwrap();
        scene.device.reads(entered.member, scene.now_ns);
        (user, reader(&entered.pool), entered)
    });
    assert_eq!(scene.device.sizes(), [3, 4]);
    scene.send(400);
    let mut got = BTreeMap::new();
    for (user, pool, _) in &mut all {
        *got.entry(*user).or_insert(0) += drain(pool).len();
    }
    assert_eq!(got, BTreeMap::from([(1000, 400), (1001, 400), (0, 400)]));
    // Only members of the same user take over the pool of a dead one.
    assert!(scene.hang_up(all[2].2.member).is_empty());
    assert_eq!(scene.device.sizes(), [2, 3]);
}

#[test]
fn a_users_groups_and_memory_are_limited_and_other_users_enter() {
    let mut policy = policy();
    // A pool has 4 MiB, and a group takes some more.
    policy.limits.bytes.all = 36 << 20;
    policy.limits.groups = Limit { all: 64, each: 3 };
    let mut scene = Scene::with(policy);
    let own = Hello {
        group: None,
        ..hello()
    };
    for user in [1000, 1001] {
        let of_user: Vec<Entered> = (0..3).map_while(|_| scene.enter(&own, user).ok()).collect();
        let fourth = scene.refusal(&own, user);
        match user {
            1000 => assert_eq!((of_user.len(), fourth.as_str()), (3, "poller-groups")),
            _ => assert_eq!((of_user.len(), fourth.as_str()), (2, "poller-memory")),
        }
    }
    assert!(scene.enter(&own, 1002).is_ok(), "a third user finds room");
    let sizes = scene.device.sizes();
    assert_eq!(scene.refusal(&own, 1002), "poller-memory");
    assert_eq!(scene.device.sizes(), sizes, "nothing is left of it");
    assert!(scene.enter(&own, 0).is_ok());
    assert_eq!(scene.refusal(&own, 0), "poller-memory", "root is a user");
}

#[test]
fn subordinate_users_count_for_their_owner_and_have_groups_of_their_own() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("subuid");
    fs::write(&path, "alice:100000:65536\n").unwrap();
    let mut policy = policy();
    policy.limits.groups = Limit { all: 64, each: 2 };
    let mut scene = Scene::with(policy);
    scene.device = scene.device.with_accounts(Accounts::of_file(path));
    assert!(scene.enter(&hello(), 100_000).is_ok());
    assert!(scene.enter(&hello(), 100_001).is_ok());
    assert_eq!(scene.device.sizes(), [2, 2]);
    assert_eq!(scene.refusal(&hello(), 100_002), "poller-groups");
    assert!(scene.enter(&hello(), 1000).is_ok());
    policy.limits.groups.each = 64;
    // The group takes some memory besides the pool.
    policy.limits.bytes.all = 12 << 20;
    let path = scratch.file("subuid");
    let mut scene = Scene::with(policy);
    scene.device = scene.device.with_accounts(Accounts::of_file(path));
    assert!(scene.enter(&hello(), 100_000).is_ok());
    assert_eq!(scene.refusal(&hello(), 100_001), "poller-memory");
}

/// Processes of a user may be in different groups.
#[test]
fn a_process_has_its_own_grant_whoever_of_its_user_connects_later() {
    let small = Grant {
        groups: Some(1),
        ..Grant::default()
    };
    let rules = vec![Rule {
        who: Who::Group(100),
        gives: Some(small),
    }];
    let mut scene = Scene::new();
    scene.device = scene.device.with_access(Access::new(rules, Others::Nobody));
    let peer = Peer {
        pid: 9,
        user: 1000,
        group: 1000,
    };
    let grant = scene.device.let_in(1000, &[100]).unwrap();
    assert!(scene.device.let_in(1000, &[]).is_err());
    let mut enter = |group| {
        let hello = Hello {
            group: Some(group),
            ..hello()
        };
        scene
            .device
            .enter(&hello, (peer, grant.clone()), scene.now_ns)
    };
    assert!(enter(5).is_ok());
    assert_eq!(enter(6).unwrap_err().slug, "poller-groups");
}

/// A user can make it take long to wake its members, so another thread wakes those of others.
#[test]
fn each_user_that_has_members_has_a_thread() {
    let mut scene = Scene::new();
    let threads = || {
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        let mut found: Vec<String> = names.filter(|it| it.starts_with("user 770")).collect();
        found.sort();
        found.concat()
    };
    let users = [77_001, 77_002, 77_001];
    let all = users.map(|user| scene.enter(&hello(), user).unwrap());
    await_so("two threads", || threads() == "user 77001\nuser 77002\n");
    for (entered, left) in all
        .into_iter()
        .zip(["user 77001\nuser 77002\n", "user 77001\n", ""])
    {
        scene.device.hang_up(entered.member, scene.now_ns);
        drop(entered);
        await_so("the threads that are needed", || threads() == left);
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_pool_counts_as_long_as_any_process_has_it() {
    let mut policy = policy();
    assert_eq!(policy.pools, PoolKind::Array);
    policy.limits.bytes.all = 10 << 20;
    let mut scene = Scene::with(policy);
    let first = scene.enter(&hello(), 1000).unwrap();
    let mapped = first.pool.map().unwrap();
    scene.device.hang_up(first.member, scene.now_ns);
    assert_eq!(scene.device.sizes(), [0, 0]);
    // What a process keeps that has closed its connection.
    drop(first);
    assert_eq!(scene.refusal(&hello(), 1000), "poller-memory");
    drop(mapped);
    await_so("room", || scene.enter(&hello(), 1000).is_ok());
}

/// The process of the test without descriptors.
const FEW: &str = "FANPCAP_FEW_DESCRIPTORS";

#[test]
fn a_poller_without_descriptors_refuses_newcomers_and_other_members_lose_nothing() {
    if std::env::var_os(FEW).is_some() {
        return without_descriptors();
    }
    let mut limited = Command::new("prlimit");
    limited
        .arg("--nofile=64")
        .arg(std::env::current_exe().unwrap());
    let name = "a_poller_without_descriptors_refuses_newcomers_and_other_members_lose_nothing";
    let name = own_name(module_path!(), name);
    let done = limited.args(["--exact", &name]).env(FEW, "1").output();
    let done = done.unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
}

fn without_descriptors() {
    let mut scene = Scene::new();
    let mut members = vec![scene.enter(&hello(), 0).unwrap()];
    let mut refused = 0;
    for room in 0..8 {
        let mut files = all_descriptors();
        files.truncate(files.len() - room);
        match scene.enter(&hello(), 0) {
            Ok(entered) => {
                scene.device.reads(entered.member, scene.now_ns);
                members.push(entered);
            }
            Err(why) => {
                assert_eq!(why.slug, "poller-failed");
                assert!(why.text.contains("open files"), "{}", why.text);
                refused += 1;
            }
        }
        // Each member that has buckets has a lane.
        scene.send(500);
        assert_eq!(scene.counts().no_member, 0, "room for {room}");
    }
    assert!(refused > 0 && members.len() > 2, "{refused} refused");
    let _files = all_descriptors();
    let inherited = scene.hang_up(members[1].member);
    assert_eq!(inherited.len(), 1, "another member gets the pool");
}

/// Takes all descriptors that the process can still have.
fn all_descriptors() -> Vec<File> {
    let files = (0..64).map_while(|_| File::open("/dev/null").ok());
    files.collect()
}

#[test]
fn more_queues_than_lanes_are_refused() {
    let wire = Wire::default();
    let made = |count: u16| {
        let queues = (0..count).map(|number| wire.queue(number)).collect();
        Device::new(queues, 7, 1, policy()).map(drop)
    };
    let many = made(65).unwrap_err().to_string();
    assert!(many.contains("not 65") && many.contains("64"), "{many}");
    assert!(made(0).is_err() && made(64).is_ok());
}
