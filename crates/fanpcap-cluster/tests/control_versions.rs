//! Different versions of the control protocol. An earlier version skips AVPs that only a later
//! version has. A later version accepts messages without these AVPs.

use std::net::SocketAddr;

use fanpcap_cluster::control::{Avp, Body, Leader, Member, OperatorChange, State, Status, Term};
use fanpcap_cluster::{Announcement, DesiredState, NodeId, Refusal, Revision, Setup, Version};
use fanpcap_select::Key;

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 7700))
}

fn leader() -> Leader {
    Leader {
        number: 3,
        term: Term(77),
        address: address(),
    }
}

fn setup() -> Option<Setup> {
    Some(Setup {
        version: Version([1, 2, 3]),
        header: Some(52),
        key: Key::Flow,
        devices: Some(2),
    })
}

fn member(follows: Option<Revision>) -> Member {
    Member {
        announcement: Announcement {
            node: NodeId(5),
            boot: 6,
            weight: 7,
            address: address(),
            setup: setup(),
        },
        follows,
    }
}

fn status(notes: Vec<String>) -> Body {
    Body::Status(Box::new(Status {
        leader: leader(),
        topology: None,
        desired: DesiredState::default(),
        members: vec![(member(Some(Revision(9))), 12)],
        refused: vec![(1, 2)],
        notes,
    }))
}

fn bodies() -> Vec<Body> {
    let state = State {
        term: Term(77),
        number: 4,
        members: vec![member(Some(Revision(9)))],
        ..State::default()
    };
    vec![
        Body::Join(member(None)),
        Body::Accept(NodeId(5), leader()),
        Body::Heartbeat(member(Some(Revision(9))), Term(77)),
        Body::Refuse(NodeId(5), Refusal::Full),
        Body::Announce(leader()),
        Body::Challenge([1, 2]),
        Body::Acknowledge(9),
        Body::Leave(NodeId(5)),
        Body::Fetch,
        Body::Pulse(leader(), 4),
        Body::Synchronise(Box::new(state)),
        Body::Elect(leader(), Revision(9)),
        Body::Standby(Term(77)),
        Body::OperatorChange(OperatorChange::Weight(NodeId(5), Some(2))),
        Body::Query,
        status(vec!["a note".to_owned()]),
    ]
}

/// AVPs with codes that no version has yet, and a section (AVP 87) that no version has yet.
fn additions() -> Vec<Avp> {
    let avp = |(code, value)| Avp { code, value };
    let section = 87;
    [(250, 1), (251, u32::MAX), (section, 99), (250, 3), (1, 8)]
        .map(avp)
        .to_vec()
}

#[test]
fn what_a_later_version_adds_is_skipped() {
    for body in bodies() {
        let mut list = body.list();
        list.extend(additions());
        assert_eq!(Body::read(body.kind(), &list), Ok(body));
    }
}

#[test]
fn a_status_of_the_version_before_has_no_notes() {
    let now = status(vec!["one".to_owned(), "two".to_owned()]);
    let before = status(Vec::new());
    let note = |avp: &Avp| (avp.code, avp.value) == (87, 6);
    let mut list = now.list();
    let notes = list
        .iter()
        .position(note)
        .expect("the notes' first section");
    list.truncate(notes);
    assert_eq!(list, before.list());
    assert_eq!(Body::read(now.kind(), &list), Ok(before));
}

#[test]
fn a_node_that_says_too_little_or_too_much_of_its_settings_is_taken_in_without_them() {
    let whole = Body::Join(member(None));
    let mut without = member(None);
    without.announcement.setup = None;
    let without = Body::Join(without);
    let selection_type = 6;
    for code in [96, 97, selection_type] {
        let mut list = whole.list();
        list.retain(|avp| avp.code != code);
        assert_eq!(Body::read(whole.kind(), &list), Ok(without.clone()));
    }
    let mut list = whole.list();
    let selection = list.iter_mut().find(|avp| avp.code == selection_type);
    selection.expect("a selection").value = 99;
    assert_eq!(Body::read(whole.kind(), &list), Ok(without));
}

#[test]
fn a_node_of_the_version_before_does_not_say_its_number_of_devices() {
    let whole = Body::Join(member(None));
    let mut before = member(None);
    let setup = before.announcement.setup.as_mut().expect("a setup");
    setup.devices = None;
    let before = Body::Join(before);
    let mut list = whole.list();
    list.retain(|avp| avp.code != 98);
    assert_eq!(list, before.list());
    assert_eq!(Body::read(whole.kind(), &list), Ok(before.clone()));
    // A later version may send more devices than this version can count.
    list.push(Avp {
        code: 98,
        value: 256,
    });
    assert_eq!(Body::read(whole.kind(), &list), Ok(before));
}
