//! Groups of several users: if the queue's thread is too slow, the groups that make it slow lose
//! packets.

use super::{FLOW, SIZE_OF_POOL, frames, is_account_even, source};
use crate::scene::{admit, drain, group, share, table};
use fanpcap_poller::{BURST, FanOut, GroupCounts, MemberSlot, NewGroup};
use fanpcap_ring::Pool;

/// A steering program that takes long for each packet.
fn long() -> String {
    fn either(count: u32) -> String {
        match count {
            1 => "has_port 9".to_owned(),
            _ => format!("({} .||. {})", either(count / 2), either(count / 2)),
        }
    }
    format!("main = if {} then steer_to 0 else steer_flow", either(1024))
}

/// A queue with groups of these users, with a member each.
fn scene(groups: &[(u32, &str)]) -> (FanOut, Vec<Pool>) {
    let mut fan_out = FanOut::new(0);
    let mut pools = Vec::new();
    for (number, (user, program)) in (0..).zip(groups) {
        let table = table(false);
        share(&table, 0, &[0]);
        let new = NewGroup {
            user: *user,
            ..group(program, &table)
        };
        assert!(fan_out.begin(number, new));
        let at = MemberSlot {
            group: number,
            slot: 0,
        };
        pools.push(admit(&mut fan_out, at, SIZE_OF_POOL));
    }
    (fan_out, pools)
}

/// The groups' counts, after a source with so many packets.
fn counts(fan_out: &mut FanOut, pools: &mut [Pool], count: u64, fills: u64) -> Vec<GroupCounts> {
    let frames = frames(count);
    let mut source = source(&frames);
    source.fills = fills;
    while fan_out.poll(&mut source, 1000, &mut |_| {}).unwrap() > 0 {
        pools.iter_mut().for_each(|pool| _ = drain(pool));
    }
    let numbers = 0..u8::try_from(pools.len()).unwrap();
    let counts: Vec<_> = numbers.map(|it| fan_out.counts(it).unwrap()).collect();
    assert!(counts.iter().all(|it| is_account_even(*it)));
    counts
}

#[test]
fn the_user_that_takes_most_time_loses_packets_and_others_lose_none() {
    let long = long();
    // The user with the long program has another group, which pays too.
    let groups = [(1, FLOW), (2, &long[..]), (3, FLOW), (2, FLOW)];
    let (mut fan_out, mut pools) = scene(&groups);
    let all = counts(&mut fan_out, &mut pools, 4000, 4);
    for number in [0, 2] {
        let it = all[number];
        assert_eq!((it.offered, it.produced, it.no_time), (4000, 4000, 0));
    }
    for number in [1, 3] {
        let it = all[number];
        assert!(it.no_time > 500 && it.produced > 2000, "{it:?}");
    }
}

#[test]
fn nobody_loses_packets_while_the_source_has_room_or_one_user_has_all_groups() {
    let long = long();
    for (users, fills) in [([1, 2], 0), ([2, 2], 1)] {
        let groups = [(users[0], FLOW), (users[1], &long[..])];
        let (mut fan_out, mut pools) = scene(&groups);
        for it in counts(&mut fan_out, &mut pools, 1000, fills) {
            assert_eq!((it.produced, it.no_time), (1000, 0));
        }
    }
    // When the other user's last group ends, the rest is one user's.
    let (mut fan_out, mut pools) = scene(&[(1, FLOW), (1, &long), (2, FLOW)]);
    fan_out.end(2).unwrap();
    pools.pop();
    for it in counts(&mut fan_out, &mut pools, 1000, 1) {
        assert_eq!(it.no_time, 0);
    }
}

/// The thread looks at the source after each burst.
#[test]
fn a_burst_is_short_if_packets_take_long() {
    let long = long();
    let mut groups = vec![(1, FLOW)];
    groups.resize(16, (2, &long));
    let (mut fan_out, _pools) = scene(&groups);
    let frames = frames(1000);
    let mut source = source(&frames);
    let mut next = || fan_out.poll(&mut source, 1000, &mut |_| {}).unwrap();
    assert_eq!(next(), BURST);
    let second = next();
    assert!((1..BURST).contains(&second), "{second}");
}
