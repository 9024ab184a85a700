//! Groups of several users: if the queue's thread is too slow, the groups that make it slow lose
//! packets.

use super::{FLOW, SIZE_OF_POOL, frames, is_account_even, source};
use crate::scene::{ALL, Fake, admit, drain, group, share, table};
use fanpcap_poll::{PoolFile, PoolKind};
use fanpcap_poller::{BURST, FanOut, GroupCounts, MemberSlot, NewGroup};
use fanpcap_ring::{Pool, PoolWords};

/// A steering program that takes long for each packet.
fn long() -> String {
    of_length(1024)
}

/// A steering program with so many predicates.
fn of_length(count: u32) -> String {
    fn either(count: u32) -> String {
        match count {
            1 => "has_port 9".to_owned(),
            _ => format!("({} .||. {})", either(count / 2), either(count / 2)),
        }
    }
    format!(
        "main = if {} then steer_to 0 else steer_flow",
        either(count)
    )
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

/// Lets the queue take so many packets of a source, whose memory is filled so far after each burst.
/// Returns the groups' counts.
fn counts(
    fan_out: &mut FanOut,
    pools: &mut [Pool],
    count: u64,
    filled: fn(u64) -> u8,
) -> Vec<GroupCounts> {
    let frames = frames(count);
    let mut source = source(&frames);
    source.filled = filled;
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
    let filled = |bursts| if bursts % 16 < 8 { 3 } else { 0 };
    let all = counts(&mut fan_out, &mut pools, 4000, filled);
    for number in [0, 2] {
        let it = all[number];
        assert_eq!((it.offered, it.produced, it.no_time), (4000, 4000, 0));
    }
    for number in [1, 3] {
        let it = all[number];
        assert!(it.no_time > 500 && it.produced > 1500, "{it:?}");
    }
}

/// A user must not escape by new groups, nor make others lose packets that have had theirs before.
#[test]
fn a_user_whose_groups_begin_again_and_again_loses_packets_and_others_lose_none() {
    let (short, long) = (of_length(32), long());
    let (mut fan_out, mut pools) = scene(&[(1, FLOW), (2, &short[..])]);
    counts(&mut fan_out, &mut pools, 12_000, |_| 0);
    let frames = frames(12_000);
    let mut source = source(&frames);
    let (mut no_time, mut number) = (0, 0);
    for bursts in 0..60 {
        if bursts % 4 == 0 {
            number = 2 + bursts / 4 % 2;
            let table = table(false);
            share(&table, 0, &[0]);
            let new = NewGroup {
                user: 3,
                ..group(&long, &table)
            };
            assert!(fan_out.begin(number, new));
            let at = MemberSlot {
                group: number,
                slot: 0,
            };
            pools.truncate(2);
            pools.push(admit(&mut fan_out, at, SIZE_OF_POOL));
        }
        fan_out.poll(&mut source, 1000, &mut |_| {}).unwrap();
        source.filled = |_| 3;
        pools.iter_mut().for_each(|pool| _ = drain(pool));
        if bursts % 4 == 3 {
            no_time += fan_out.end(number).unwrap().counts().no_time;
        }
    }
    assert!(no_time > 0, "the thread was late");
    let others = [0, 1].map(|it| fan_out.counts(it).unwrap().no_time);
    assert_eq!(others, [0, 0]);
}

/// The thread has not run for a while, and takes what waits at once.
#[test]
fn nobody_loses_packets_that_wait_only_for_a_moment() {
    let (mut fan_out, mut pools) = scene(&[(1, FLOW), (2, FLOW)]);
    let filled = |bursts| if bursts % 10 == 0 { 3 } else { 0 };
    for it in counts(&mut fan_out, &mut pools, 4000, filled) {
        assert_eq!((it.produced, it.no_time), (4000, 0));
    }
}

/// Otherwise others would have a quarter of the memory only.
#[test]
fn packets_are_left_out_until_most_of_the_memory_is_free() {
    let long = long();
    let (mut fan_out, mut pools) = scene(&[(1, FLOW), (2, &long)]);
    let frames = frames(4000);
    let mut source = source(&frames);
    source.filled = |_| 3;
    let mut poll = |source: &mut Fake<'_>| {
        fan_out.poll(source, 1000, &mut |_| {}).unwrap();
        pools.iter_mut().for_each(|pool| _ = drain(pool));
        fan_out.counts(1).unwrap()
    };
    while poll(&mut source).no_time == 0 {}
    source.filled = |_| 1;
    let late = [(); 5].map(|()| poll(&mut source));
    assert_eq!(late[4].produced, late[0].produced);
    assert!(late[4].no_time > late[0].no_time);
    source.filled = |_| 0;
    let again = poll(&mut source);
    assert!(again.produced > late[4].produced && again.no_time == late[4].no_time);
}

#[test]
fn nobody_loses_packets_while_the_source_has_room_or_one_user_has_all_groups() {
    let long = long();
    let room: fn(u64) -> u8 = |_| 2;
    let none: fn(u64) -> u8 = |_| 3;
    for (users, filled) in [([1, 2], room), ([2, 2], none)] {
        let groups = [(users[0], FLOW), (users[1], &long[..])];
        let (mut fan_out, mut pools) = scene(&groups);
        for it in counts(&mut fan_out, &mut pools, 1000, filled) {
            assert_eq!((it.produced, it.no_time), (1000, 0));
        }
    }
    // When the other user's last group ends, the rest is one user's.
    let (mut fan_out, mut pools) = scene(&[(1, FLOW), (1, &long), (2, FLOW)]);
    fan_out.end(2).unwrap();
    pools.pop();
    for it in counts(&mut fan_out, &mut pools, 1000, none) {
        assert_eq!(it.no_time, 0);
    }
}

/// Members see the packets that were left out, as they see those that the source has dropped.
#[test]
fn members_see_for_which_packets_there_was_no_time() {
    let long = long();
    let (mut fan_out, mut pools) = scene(&[(1, FLOW), (2, &long)]);
    let enter = |fan_out: &mut FanOut, group| {
        let (file, mut lanes) = PoolFile::create(PoolKind::File, SIZE_OF_POOL).unwrap();
        let at = MemberSlot { group, slot: 1 };
        let former = fan_out.admit(at, lanes.remove(0), ALL).unwrap();
        assert!(former.is_none());
        file.map_words().unwrap()
    };
    let words = [0, 1].map(|group| enter(&mut fan_out, group));
    let missed = |words: &[PoolWords; 2]| [0, 1].map(|it: usize| words[it].missed(0));
    fan_out.note_missed(3);
    assert_eq!(missed(&words), [0, 0], "before they came");
    let all = counts(&mut fan_out, &mut pools, 4000, |_| 3);
    assert!(all[1].no_time > 0);
    fan_out.note_missed(5);
    assert_eq!(missed(&words), [0, 1].map(|it: usize| 2 + all[it].no_time));
    // What was left out before a member came is not its own.
    fan_out.dismiss(MemberSlot { group: 1, slot: 1 }).unwrap();
    let later = enter(&mut fan_out, 1);
    fan_out.note_missed(5);
    fan_out.note_missed(6);
    assert_eq!(later.missed(0), 1);
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
    assert_eq!([next(), next(), next()], [BURST, BURST / 2, BURST / 4]);
}
