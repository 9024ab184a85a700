//! Filters of a policy: a user's members get only packets that the filter lets through.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
#[path = "scene/device.rs"]
mod device;
mod scene;

use clients::{NAME, Poller, Wire, await_all, await_shares, frames, hello, send};
use device::{Member, SECOND, Scene};
use fanpcap_linux::file::directory::Directory;
use fanpcap_linux::process::effective_user;
use fanpcap_linux::unix::Peer;
use fanpcap_poll::Asking;
use fanpcap_poll::message::{Hello, Program, SeenLedger, Steering};
use fanpcap_poller::Filter;
use fanpcap_poller::access::{Access, Grant, Others, Rule, Who};
use fanpcap_testkit::Transport;
use fanpcap_testkit::await_for::{LIMIT, await_so};
use fanpcap_testkit::traffic::Frame;
use std::ffi::OsStr;
use std::sync::Arc;

fn rule(who: Who, filter: Option<&str>) -> Rule {
    let filter = filter.map(|text| {
        Arc::new(Filter {
            text: text.to_owned(),
            code: fanpcap_pcap::compile_expression(text).unwrap(),
        })
    });
    let gives = Some(Grant {
        filter,
        ..Grant::default()
    });
    Rule { who, gives }
}

fn is_udp(frame: &Frame) -> bool {
    frame.flow.transport == Transport::Udp
}

/// The ledger of the only group.
fn ledger(poller: &Poller) -> SeenLedger {
    let directory = Directory::open(&poller.path()).unwrap();
    let mut asking = Asking::connect(&directory, OsStr::new(NAME), LIMIT).unwrap();
    let groups = asking.groups().unwrap();
    assert_eq!(groups.len(), 1);
    groups[0].ledger
}

/// The pool of a member that dies has no other packets for those that take it over.
/// Which packets a member gets.
type Wanted<'a> = &'a dyn Fn(&Frame) -> bool;

#[test]
fn members_share_what_the_filter_lets_through_and_the_ledger_has_the_rest() {
    let wire = Wire::default();
    let rules = vec![rule(Who::User(effective_user()), Some("udp"))];
    let poller = Poller::with_access(&wire, Access::new(rules, Others::Nobody));
    let mut members = vec![poller.member(&hello()), poller.member(&hello())];
    await_shares(&poller, 2);
    let all = frames(0, 1000);
    send(&wire, &all);
    await_so("all packets", || ledger(&poller).offered == 1000);
    members.pop();
    let udp: Vec<Frame> = all.into_iter().filter(is_udp).collect();
    await_all(&mut members, &udp);
    let seen = ledger(&poller);
    let len = udp.len() as u64;
    assert_eq!((seen.produced, seen.not_allowed), (len, 1000 - len));
    let ends = [seen.nowhere, seen.no_member, seen.dropped, seen.unwanted];
    assert_eq!(ends, [0; 4]);
    assert_eq!([seen.no_time, seen.stopped], [0; 2]);
}

/// A device with these rules, whose users' processes may be in groups of users.
fn scene(rules: Vec<Rule>) -> Scene {
    let mut scene = Scene::new();
    scene.device = scene.device.with_access(Access::new(rules, Others::Nobody));
    scene
}

/// A process of a user in these groups of users enters. Returns the slug if it is refused.
fn enter(scene: &mut Scene, hello: &Hello, user: u32, groups: &[u32]) -> Result<Member, String> {
    let peer = Peer {
        pid: 9,
        user,
        group: user,
    };
    let grant = scene.device.let_in(user, groups).unwrap();
    let entered = scene.device.enter(hello, (peer, grant), scene.now_ns);
    let entered = entered.map_err(|refused| refused.slug)?;
    scene.device.reads(entered.member, scene.now_ns);
    Ok(Member {
        number: entered.member,
        slot: entered.welcome.slot,
        pool: scene::reader(&entered.pool),
        got: Vec::new(),
    })
}

#[test]
fn each_user_has_its_own_filter_whatever_the_members_ask_for() {
    let rules = vec![
        rule(Who::User(1), Some("udp")),
        rule(Who::User(2), Some("tcp")),
        rule(Who::Group(100), None),
    ];
    let mut scene = scene(rules);
    let copies = Hello {
        steering: Steering::Program(Program {
            text: "main = ip".to_owned(),
            flows: None,
            balance: None,
        }),
        ..hello()
    };
    let alone = Hello {
        group: None,
        ..hello()
    };
    let (any, is_v4) = (|_: &Frame| true, |it: &Frame| it.flow.client.is_ipv4());
    let udp_v4 = |it: &Frame| is_udp(it) && is_v4(it);
    let tcp = |it: &Frame| !is_udp(it);
    let own = hello();
    let all: [(&Hello, u32, Wanted<'_>); 6] = [
        (&copies, 1, &udp_v4),
        (&copies, 1, &udp_v4),
        (&alone, 1, &is_udp),
        (&own, 2, &tcp),
        (&alone, 2, &tcp),
        (&own, 3, &any),
    ];
    let members = all.map(|(hello, user, _)| enter(&mut scene, hello, user, &[100]).unwrap());
    let frames = frames(0, 500);
    send(&scene.wire, &frames);
    await_so("the packets", || {
        let counts = scene.device.counts().unwrap().1;
        counts.offered == 5 * 500
    });
    for (mut member, (_, user, is_its)) in members.into_iter().zip(all) {
        member.read();
        let expected = frames.iter().filter(|it| is_its(it));
        let expected: Vec<u64> = expected.map(|it| it.sequence).collect();
        assert_eq!(member.got, expected, "user {user}");
    }
}

/// A member may get any packet of its group, and pools of members that are gone.
#[test]
fn members_with_different_filters_are_not_in_one_group() {
    let rules = vec![
        rule(Who::Group(100), Some("udp")),
        rule(Who::Group(200), None),
    ];
    let mut scene = scene(rules);
    let first = enter(&mut scene, &hello(), 1, &[200, 100]).unwrap();
    // The process has left its first group.
    let said = enter(&mut scene, &hello(), 1, &[200]).err();
    assert_eq!(said.as_deref(), Some("poller-policy"));
    let other = Hello {
        group: Some(6),
        ..hello()
    };
    enter(&mut scene, &other, 1, &[200]).unwrap();
    assert_eq!(enter(&mut scene, &other, 1, &[100]).err(), said);
    enter(&mut scene, &hello(), 2, &[200]).unwrap();
    scene.device.hang_up(first.number, scene.now_ns);
    scene.pass(SECOND);
    enter(&mut scene, &hello(), 1, &[200]).unwrap();
}

/// The group of the members that are there has the filter that they have.
#[test]
fn a_policy_that_was_read_again_is_for_groups_that_begin() {
    let rules = |filter| Access::new(vec![rule(Who::User(1), filter)], Others::Nobody);
    let mut scene = scene(Vec::new());
    scene.device = scene.device.with_access(rules(None));
    let first = enter(&mut scene, &hello(), 1, &[]).unwrap();
    scene.device = scene.device.with_access(rules(Some("udp")));
    let said = enter(&mut scene, &hello(), 1, &[]).err();
    assert_eq!(said.as_deref(), Some("poller-policy"));
    scene.device.hang_up(first.number, scene.now_ns);
    scene.pass(SECOND);
    let mut second = enter(&mut scene, &hello(), 1, &[]).unwrap();
    // The same rules are compiled again.
    scene.device = scene.device.with_access(rules(Some("udp")));
    let mut third = enter(&mut scene, &hello(), 1, &[]).unwrap();
    let frames = frames(0, 500);
    send(&scene.wire, &frames);
    await_so("the packets", || {
        scene.device.counts().unwrap().1.not_allowed > 0
            && scene.device.look(Some(5), 1).unwrap().1.offered == 500
    });
    second.read();
    third.read();
    let mut got = [second.got, third.got].concat();
    got.sort_unstable();
    let udp = frames.iter().filter(|it| is_udp(it));
    assert!(got.into_iter().eq(udp.map(|it| it.sequence)));
}
