//! Members with names on two devices: their successors, and what happens if none comes.

use super::clients::hello;
use super::device::{Member, SECOND};
use super::pair::{BOTH, Pair, USER, count};
use super::scene::reader;
use fanpcap_poll::message::Hello;

#[test]
fn a_successor_on_both_devices_gets_the_flows_of_the_one_before() {
    let mut pair = Pair::new();
    let named = |name: &str| Hello {
        name: Some(name.to_owned()),
        ..hello()
    };
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        let mut process = pair.process();
        for device in BOTH {
            pair.open_as(&mut process, device, named(name));
        }
        all.push(process);
    }
    let before = pair.whole(&mut all);
    let dead = all.remove(0);
    let number = dead.number;
    pair.die(dead, [1, 0], &mut all);
    pair.pass(SECOND / 5, &mut all);
    let successor = pair.process();
    let entered = BOTH.map(|device| {
        let pair_number = successor.number << 8;
        let hello = Hello {
            pair: pair_number,
            ..named("a")
        };
        (device, pair.enter(device, &hello, USER).unwrap())
    });
    all.push(successor);
    for (device, entered) in entered {
        all[2].members[device] = Some(Member {
            number: entered.member,
            slot: entered.welcome.slot,
            pool: reader(&entered.pool),
            got: Vec::new(),
        });
        let notices = pair.devices[device].reads(entered.member, pair.now_ns);
        pair.read_out(device, notices, &mut all);
    }
    let after = pair.whole(&mut all);
    let renamed: Vec<u64> = before
        .iter()
        .map(|it| if *it == number { all[2].number } else { *it })
        .collect();
    assert_eq!(after, renamed);
}

/// The oldest group stops waiting for a successor first. The other device's buckets must not move
/// before a member reads the dead member's pool there.
#[test]
fn without_a_successor_each_device_moves_its_buckets_when_the_pool_is_read() {
    let mut pair = Pair::new();
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        let mut process = pair.process();
        for device in BOTH {
            let name = Some(name.to_owned());
            pair.open_as(&mut process, device, Hello { name, ..hello() });
        }
        all.push(process);
    }
    let owners = pair.whole(&mut all);
    let dead = all.remove(0);
    let slots = BOTH.map(|device| dead.members[device].as_ref().unwrap().slot);
    let unread = 2 * count(&owners, &dead);
    pair.send();
    pair.die(dead, [1, 0], &mut all);
    for _ in 0..60 {
        pair.pass(SECOND / 20, &mut all);
        let inherited: usize = all.iter().map(|it| it.inherited).sum();
        if pair.buckets(1, slots[1]) == 0 {
            assert_eq!(inherited, unread);
        }
    }
    assert_eq!(BOTH.map(|it| pair.buckets(it, slots[it])), [0, 0]);
}
