//! Which connection is displaced when all slots are taken.

use std::thread;
use std::time::Duration;

use super::*;

fn at(ip: impl Into<IpAddr>) -> SocketAddr {
    SocketAddr::new(ip.into(), 5)
}

fn text(ip: &str) -> SocketAddr {
    at(ip.parse::<IpAddr>().unwrap())
}

/// Takes slots for silent connections until all are taken.
fn fill(
    connection_limits: &ConnectionLimits,
    mut from: impl FnMut(u32) -> SocketAddr,
) -> Vec<ConnectionSlot> {
    let free = UNPROVEN - connection_limits.open().unproven.0.len();
    let numbers = 0..u32::try_from(free).unwrap();
    let take = |number| {
        let (slot, displaced) = connection_limits.take(from(number), || {});
        assert_eq!(displaced, None);
        slot
    };
    numbers.map(take).collect()
}

#[test]
fn a_flood_of_one_address_displaces_itself() {
    let connection_limits = ConnectionLimits::default();
    let (node, stranger) = (at([10, 0, 0, 1]), at([10, 0, 0, 2]));
    let (mut of_node, _) = connection_limits.take(node, || panic!("the node's connection goes"));
    let mut silent = VecDeque::from(fill(&connection_limits, |_| stranger));
    for _ in 0..10_000 {
        let (slot, displaced) = connection_limits.take(stranger, || {});
        assert_eq!(displaced, Some(stranger));
        let oldest = silent.pop_front().unwrap();
        assert!(oldest.is_displaced());
        silent.push_back(slot);
    }
    assert!(silent.iter().all(|slot| !slot.is_displaced()));
    assert_eq!(of_node.prove(), Ok(None));
}

#[test]
fn of_equal_ones_the_oldest_goes() {
    let connection_limits = ConnectionLimits::default();
    let mut all: Vec<ConnectionSlot> = fill(&connection_limits, |number| at(number.to_be_bytes()));
    let (late, displaced) = connection_limits.take(at([10, 0, 0, 1]), || {});
    assert_eq!(displaced, Some(at([0, 0, 0, 0])));
    assert_eq!(all[0].prove(), Err(NoSlot::Displaced));
    assert!(all[0].is_displaced() && !all[1].is_displaced() && !late.is_displaced());
}

#[test]
fn ipv6_is_counted_by_48_bits_then_by_64_and_then_by_address() {
    let connection_limits = ConnectionLimits::default();
    let network = |number: u32| text(&format!("2001:db8::{number:x}"));
    // The node's connection came first, and from the same network as the strangers' connections.
    let (mut node, _) = connection_limits.take(text("2001:db8::ffff:1"), || {});
    let (_other, _) = connection_limits.take(text("2001:db8:0:1::1"), || panic!("another network"));
    let mut strangers = fill(&connection_limits, |number| network(number % 100));
    let mut new_owners = Vec::new();
    for _ in 0..100 {
        let (new_owner, displaced) = connection_limits.take(text("2001:db8:0:2::1"), || {});
        let IpAddr::V6(gone) = displaced.unwrap().ip() else {
            panic!("{displaced:?}");
        };
        assert_eq!(gone.segments()[..4], [0x2001, 0xdb8, 0, 0]);
        strangers.retain(|slot| !slot.is_displaced());
        new_owners.push(new_owner);
    }
    assert_eq!(strangers.len() + new_owners.len(), UNPROVEN - 2);
    assert_eq!(node.prove(), Ok(None));
    let mapped = [text("::ffff:10.0.0.1"), text("10.0.0.1")].map(networks);
    assert_eq!(mapped[0], mapped[1]);
}

#[test]
fn whoever_has_a_site_of_ipv6_displaces_itself() {
    let connection_limits = ConnectionLimits::default();
    let site = |number: u32| text(&format!("2001:db8:0:{:x}::1", number % 0x1_0000));
    let (mut node, _) = connection_limits.take(text("2001:db8:1::1"), || {
        panic!("the node's connection goes")
    });
    let mut strangers = VecDeque::from(fill(&connection_limits, site));
    for number in 1000..2000 {
        let (slot, displaced) = connection_limits.take(site(number), || {});
        assert!(displaced.is_some() && strangers.pop_front().unwrap().is_displaced());
        strangers.push_back(slot);
    }
    assert_eq!(node.prove(), Ok(None));
}

/// A slot for a connection that has proven to be a node's connection.
fn proven(connection_limits: &ConnectionLimits, from: SocketAddr) -> ConnectionSlot {
    let (mut slot, _) = connection_limits.take(from, || {});
    slot.prove().unwrap();
    slot
}

#[test]
fn proven_connections_have_places_of_their_own() {
    let connection_limits = ConnectionLimits::default();
    let address = |number: usize| at(u32::try_from(number).unwrap().to_be_bytes());
    let of_node = |number: usize| proven(&connection_limits, address(number / FEW));
    let mut nodes: Vec<ConnectionSlot> = (0..PROVEN).map(of_node).collect();
    let mut silent = fill(&connection_limits, |_| address(PROVEN));
    assert_eq!(silent[0].prove(), Err(NoSlot::Full));
    assert!(!silent[0].is_displaced());
    assert!(nodes.iter().all(|slot| !slot.is_displaced()));
    nodes.pop();
    assert_eq!(silent[0].prove(), Ok(None));
    drop((nodes, silent));
    let open = connection_limits.open();
    assert_eq!(
        (open.proven.0.len(), open.unproven.0.len(), open.ending),
        (0, 0, 0)
    );
}

#[test]
fn who_has_many_proven_connections_keeps_no_node_away() {
    let connection_limits = ConnectionLimits::default();
    let (node, stranger) = (at([10, 0, 0, 1]), at([10, 0, 0, 2]));
    let (mut of_node, _) = connection_limits.take(node, || panic!("the node's connection goes"));
    assert_eq!(of_node.prove(), Ok(None));
    let of_stranger = |_| proven(&connection_limits, stranger);
    let mut strangers: VecDeque<ConnectionSlot> = (1..PROVEN).map(of_stranger).collect();
    for from in [node, stranger, stranger] {
        let (mut slot, _) = connection_limits.take(from, || {});
        assert_eq!(slot.prove(), Ok(Some(stranger)));
        assert!(strangers.pop_front().unwrap().is_displaced());
        strangers.push_back(slot);
    }
    assert!(strangers.iter().all(|slot| !slot.is_displaced()));
    assert!(!of_node.is_displaced());
}

/// Connections that broke unnoticed keep their slots for a minute.
#[test]
fn a_node_takes_the_place_of_its_own_stale_connection() {
    let connection_limits = ConnectionLimits::default();
    let node = |number: usize| at(u32::try_from(number).unwrap().to_be_bytes());
    let of_node = |number: usize| proven(&connection_limits, node(number % (PROVEN / FEW)));
    let mut all: VecDeque<ConnectionSlot> = (0..PROVEN).map(of_node).collect();
    for number in 0..PROVEN / FEW {
        let (mut slot, _) = connection_limits.take(node(number), || {});
        assert_eq!(slot.prove(), Ok(Some(node(number))));
        assert!(all.pop_front().unwrap().is_displaced());
        all.push_back(slot);
    }
}

#[test]
fn who_connects_faster_than_connections_end_waits() {
    let connection_limits = ConnectionLimits::default();
    let stranger = at([10, 0, 0, 2]);
    let silent = fill(&connection_limits, |_| stranger);
    let taker = thread::spawn({
        let connection_limits = connection_limits.clone();
        move || {
            let take = |_| connection_limits.take(stranger, || {}).0;
            (0..ENDING).map(take).collect::<Vec<_>>()
        }
    });
    while connection_limits.open().ending < ENDING {
        thread::yield_now();
    }
    thread::sleep(Duration::from_millis(50));
    assert!(!taker.is_finished(), "more threads without end");
    drop(silent);
    assert_eq!(taker.join().unwrap().len(), ENDING);
}
