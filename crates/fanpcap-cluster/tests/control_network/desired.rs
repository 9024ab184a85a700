//! If a coordinator fails, the operators' changes are kept. A delayed change does not undo a newer
//! one.

use fanpcap_cluster::NodeId;
use fanpcap_cluster::control::{OperatorChange, OperatorEnd, Reply, Request, Role};

use crate::network::{Network, coordinator_at, node_at};
use crate::{SECOND, settled};

/// Sends a request to all coordinators until a reply comes.
pub(super) fn ask(network: &mut Network, request: Request) -> Option<Reply> {
    let endpoint = network.endpoint(Role::Operator, 77);
    let here = node_at(50);
    let all = (0..network.coordinators.len())
        .map(coordinator_at)
        .collect();
    let mut operator = OperatorEnd::new(all, endpoint, request);
    for _ in 0..40 {
        operator.tick(network.now);
        while let Some((to, datagram)) = operator.outgoing() {
            network.hand(here, to, &datagram);
        }
        for at in 0..network.coordinators.len() {
            let Some(end) = network.coordinators[at].end.as_mut() else {
                continue;
            };
            let out: Vec<_> = std::iter::from_fn(|| end.outgoing()).collect();
            for (to, datagram) in out {
                if to == here {
                    let taken = operator.receive(network.now, coordinator_at(at), &datagram);
                    taken.expect("what coordinators say is taken");
                } else {
                    network.send(coordinator_at(at), to, datagram);
                }
            }
        }
        if let Some(reply) = operator.reply() {
            return Some(reply);
        }
        network.run(SECOND / 10);
    }
    None
}

#[test]
fn the_operators_changes_stand_after_a_failure() {
    let (mut network, leader, _) = settled(13, 2, 3);
    let change = Request::OperatorChange(OperatorChange::Drain(NodeId(2)));
    assert_eq!(ask(&mut network, change), Some(Reply::Granted));
    let change = Request::OperatorChange(OperatorChange::Weight(NodeId(3), Some(7)));
    assert_eq!(ask(&mut network, change), Some(Reply::Granted));
    network.run(3 * SECOND);
    network.coordinators[leader].end = None;
    network.run(8 * SECOND);
    let Some(Reply::Status(status)) = ask(&mut network, Request::Status) else {
        panic!("no status");
    };
    assert_eq!(usize::from(status.leader.number), 1 - leader);
    assert_eq!(status.members.len(), 3);
    assert!(status.desired.drained.contains(&NodeId(2)));
    assert_eq!(status.desired.weights.get(&NodeId(3)), Some(&7));
}

/// An attacker delays an operator's datagram until the operator has undone the change.
#[test]
fn a_change_that_was_kept_back_undoes_no_newer_one() {
    let (mut network, leader, _) = settled(91, 2, 2);
    let (here, to) = (node_at(51), coordinator_at(leader));
    let endpoint = network.endpoint(Role::Operator, 76);
    let drain = Request::OperatorChange(OperatorChange::Drain(NodeId(1)));
    let mut operator = OperatorEnd::new(vec![to], endpoint, drain);
    operator.tick(network.now);
    let (_, first) = operator.outgoing().expect("it asks");
    network.hand(here, to, &first);
    let end = network.coordinators[leader].end.as_mut();
    let end = end.expect("it leads");
    let mut out = std::iter::from_fn(|| end.outgoing());
    let challenge = out.find(|(to, _)| *to == here).expect("a challenge").1;
    let taken = operator.receive(network.now, to, &challenge);
    taken.expect("it is new");
    let (_, kept) = operator.outgoing().expect("the operator asks again");
    for node in [1, 2] {
        let restore = Request::OperatorChange(OperatorChange::Restore(NodeId(node)));
        assert!(ask(&mut network, restore).is_some());
    }
    network.run(11 * SECOND);
    network.hand(here, to, &kept);
    let now = network.now;
    let end = network.coordinators[leader].end.as_mut();
    let view = end.expect("it leads").view(now);
    assert!(view.leads && view.desired.drained.is_empty());
}
