//! The bodies of control messages: a body that was encoded is decoded to the same body, and no list
//! of AVPs makes the decoder panic.

use std::net::SocketAddr;

use fanpcap_buckets::{Slot, layout::BUCKETS};
use fanpcap_cluster::control::{
    Assembly, Avp, Body, Kind, Leader, Member, OperatorChange, State, Status, Term, divide,
};
use fanpcap_cluster::{
    Announcement, DesiredState, NodeEntry, NodeId, Refusal, Revision, Setup, Topology, Version,
};
use fanpcap_select::{Key, Selection};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

fn address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        any::<([u8; 4], u16)>().prop_map(SocketAddr::from),
        any::<([u8; 16], u16)>().prop_map(SocketAddr::from),
    ]
}

fn selection() -> impl Strategy<Value = Selection> {
    let keys = select(&Key::NAMES[..]);
    (keys, any::<u32>()).prop_map(|((key, _), initial)| Selection { key, initial })
}

prop_compose! {
    fn setup()(
        version in any::<[u8; 3]>(),
        header in proptest::option::of(1..=u16::MAX),
        key in select(&Key::NAMES[..]),
        devices in any::<Option<u8>>(),
    ) -> Setup {
        Setup { version: Version(version), header, key: key.0, devices }
    }
}

prop_compose! {
    fn member()(
        ids in any::<(u32, u64, u16)>(),
        address in address(),
        setup in proptest::option::of(setup()),
        follows in any::<Option<u64>>(),
    ) -> Member {
        let (node, boot, weight) = ids;
        let announcement = Announcement { node: NodeId(node), boot, weight, address, setup };
        Member { announcement, follows: follows.map(Revision) }
    }
}

prop_compose! {
    fn leader()(number in 0_u8..16, term in any::<u32>(), address in address()) -> Leader {
        Leader { number, term: Term(term), address }
    }
}

prop_compose! {
    fn desired()(
        selection in selection(),
        analyzers in vec(address(), 0..=16),
        drained in btree_set(any::<u32>().prop_map(NodeId), 0..20),
        weights in btree_map(any::<u32>().prop_map(NodeId), any::<u16>(), 0..20),
    ) -> DesiredState {
        DesiredState { selection, analyzers, filter: None, drained, weights }
    }
}

prop_compose! {
    fn topology()(
        epoch in any::<u64>(),
        selection in selection(),
        nodes in vec((any::<u32>(), any::<u16>()), 2..=128),
        analyzers in vec(address(), 0..=16),
        moves in vec(0..BUCKETS, 0..600),
    ) -> Topology {
        let entry = |(at, (node, weight)): (u8, (u32, u16))| NodeEntry {
            slot: Slot(at),
            node: NodeId((node & !0xff) | u32::from(at)),
            weight,
        };
        let entries: Vec<NodeEntry> = (0..).zip(nodes).map(entry).collect();
        let slots = entries.iter().map(|entry| Some(entry.slot)).cycle();
        let owners: Vec<_> = slots.take(BUCKETS).collect();
        let owners = Box::new(<[_; BUCKETS]>::try_from(owners).expect("so many"));
        let mut new_owners = owners.clone();
        for bucket in &moves {
            new_owners[*bucket] = new_owners[(bucket + 1) % BUCKETS];
        }
        let new_owners = (new_owners != owners).then_some(new_owners);
        Topology { epoch, selection, nodes: entries, owners, new_owners, analyzers, filter: None }
    }
}

fn change() -> impl Strategy<Value = OperatorChange> {
    let node = || any::<u32>().prop_map(NodeId);
    prop_oneof![
        node().prop_map(OperatorChange::Drain),
        node().prop_map(OperatorChange::Restore),
        (node(), any::<Option<u16>>())
            .prop_map(|(node, weight)| OperatorChange::Weight(node, weight)),
    ]
}

fn stands() -> impl Strategy<Value = Option<(Revision, Box<Topology>)>> {
    let revision = any::<u64>().prop_map(Revision);
    proptest::option::of((revision, topology().prop_map(Box::new)))
}

fn small() -> impl Strategy<Value = Body> {
    let refusals = [Refusal::TakenId, Refusal::Full, Refusal::Version];
    let node = || any::<u32>().prop_map(NodeId);
    prop_oneof![
        member().prop_map(Body::Join),
        (node(), leader()).prop_map(|(node, leader)| Body::Accept(node, leader)),
        (member(), any::<u32>()).prop_map(|(member, term)| Body::Heartbeat(member, Term(term))),
        (node(), select(refusals.to_vec())).prop_map(|(node, why)| Body::Refuse(node, why)),
        leader().prop_map(Body::Announce),
        any::<u64>().prop_map(Body::Acknowledge),
        node().prop_map(Body::Leave),
        (leader(), any::<u32>()).prop_map(|(leader, state)| Body::Pulse(leader, state)),
        any::<u32>().prop_map(|term| Body::Standby(Term(term))),
        (leader(), any::<u64>()).prop_map(|(leader, last)| Body::Elect(leader, Revision(last))),
        change().prop_map(Body::OperatorChange),
        any::<[u64; 2]>().prop_map(Body::Challenge),
        select(&[Body::Fetch, Body::Query][..]),
    ]
}

fn large() -> impl Strategy<Value = Body> {
    let update = (any::<u64>(), topology());
    let state = (
        any::<(u32, u32)>(),
        stands(),
        desired(),
        vec(member(), 0..=128),
    );
    let members = vec((member(), any::<u32>()), 0..=128);
    let status = (
        leader(),
        stands(),
        desired(),
        members,
        vec(any::<(u32, u32)>(), 0..9),
        vec("[a-zé]{0,200}", 0..=16),
    );
    prop_oneof![
        update.prop_map(|(to, topology)| Body::TopologyUpdate(Revision(to), Box::new(topology))),
        state.prop_map(|((term, number), topology, desired, members)| {
            let term = Term(term);
            Body::Synchronise(Box::new(State {
                term,
                number,
                topology,
                desired,
                members,
            }))
        }),
        status.prop_map(|(leader, topology, desired, members, refused, notes)| {
            Body::Status(Box::new(Status {
                leader,
                topology,
                desired,
                members,
                refused,
                notes,
            }))
        }),
    ]
}

/// Sends a body in parts, the last part first, and reads the body that arrives.
fn through_parts(body: &Body) -> Option<Body> {
    let mut assembly = Assembly::default();
    let messages = divide(body.kind(), &body.list(), 1);
    let lists = messages
        .into_iter()
        .rev()
        .filter_map(|message| assembly.take(message));
    let mut read = lists.map(|list| Body::read(body.kind(), &list).expect("what was written"));
    read.next()
}

proptest! {
    #[test]
    fn a_small_body_is_read_as_it_was_written(body in small()) {
        prop_assert_eq!(divide(body.kind(), &body.list(), 1).len(), 1);
        prop_assert_eq!(through_parts(&body), Some(body));
    }

    #[test]
    fn lists_of_known_codes_are_read_or_refused(
        kind in select(Kind::ALL),
        list in vec((1_u8..100, prop_oneof![0_u32..20, any::<u32>()]), 0..60),
    ) {
        let list: Vec<Avp> = list.into_iter().map(|(code, value)| Avp { code, value }).collect();
        if let Ok(body) = Body::read(kind, &list) {
            prop_assert_eq!(Body::read(kind, &body.list()), Ok(body));
        }
    }

    #[test]
    fn any_bytes_are_a_state_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        if let Ok(state) = State::decode(&bytes) {
            prop_assert_eq!(State::decode(&state.encode()), Ok(state));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 1000 + 16,
        ..Default::default()
    })]

    #[test]
    fn a_large_body_is_read_as_it_was_written(body in large()) {
        if let Body::Synchronise(state) = &body {
            let read = State::decode(&state.encode());
            prop_assert_eq!(read.as_ref(), Ok(&**state));
        }
        prop_assert_eq!(through_parts(&body), Some(body));
    }
}
