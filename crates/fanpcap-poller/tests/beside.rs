//! One group on two devices of a poller: the directions of a flow, which come by two devices, meet
//! in one process, whoever comes, goes, dies or hangs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
#[path = "scene/device.rs"]
mod device;
#[path = "scene/pair.rs"]
mod pair;
mod scene;
#[path = "beside/named.rs"]
mod named;

use clients::hello;
use device::SECOND;
use fanpcap_poll::message::{Balance, Hello, Program, Steering};
use pair::{BOTH, Pair, Process, USER, count, ensure_only};
use std::collections::BTreeSet;

#[test]
fn both_directions_of_a_flow_come_to_one_process_as_processes_come_and_go() {
    for order in [[0, 1], [1, 0]] {
        let mut pair = Pair::new();
        let mut all: Vec<Process> = Vec::new();
        let mut before = Vec::new();
        for _ in 0..4 {
            all.push(pair.come(order));
            let owners = pair.whole(&mut all);
            let newcomer = all.last().unwrap();
            assert!(
                count(&owners, newcomer) > 60,
                "{}",
                count(&owners, newcomer)
            );
            if !before.is_empty() {
                ensure_only(newcomer.number, &before, &owners);
            }
            before = owners;
        }
        while all.len() > 1 {
            let mut leaving = all.remove(0);
            for device in order {
                pair.close(&mut leaving, device, &mut all);
            }
            let owners = pair.whole(&mut all);
            ensure_only(leaving.number, &before, &owners);
            before = owners;
        }
    }
}

/// Either device may hear of the death first.
#[test]
fn a_dead_process_leaves_its_flows_to_one_process_each_and_moves_no_other() {
    for order in [[0, 1], [1, 0]] {
        let mut pair = Pair::new();
        let mut all: Vec<Process> = (0..4).map(|_| pair.come([0, 1])).collect();
        let before = pair.whole(&mut all);
        // Nobody reads them before the death.
        pair.send();
        let mut dead = all.remove(1);
        let number = dead.number;
        let unread = 2 * count(&before, &dead);
        let slot = dead.members[1].as_ref().unwrap().slot;
        pair.close(&mut dead, order[0], &mut all);
        pair.settle(&mut all);
        // The second device moves no flow before both devices know.
        assert_eq!(pair.buckets(1, slot), 1024, "{order:?}");
        pair.close(&mut dead, order[1], &mut all);
        pair.settle(&mut all);
        assert_eq!(pair.buckets(1, slot), 0);
        let inherited: usize = all.iter().map(|it| it.inherited).sum();
        assert_eq!(inherited, unread, "its packets are read by others");
        // No time has passed: the flows have moved once, to where they stay.
        let after = pair.whole(&mut all);
        ensure_only(number, &before, &after);
        pair.pass(SECOND, &mut all);
        assert_eq!(pair.whole(&mut all), after);
    }
}

/// The other device waits for the death, but not longer than for a short time.
#[test]
fn a_process_that_closes_one_handle_moves_no_flow_of_others() {
    for device in BOTH {
        let mut pair = Pair::new();
        let mut all: Vec<Process> = (0..3).map(|_| pair.come([0, 1])).collect();
        let before = pair.whole(&mut all);
        let mut closing = all.remove(0);
        pair.close(&mut closing, device, &mut all);
        all.push(closing);
        pair.settle(&mut all);
        pair.pass(SECOND, &mut all);
        let [requests, replies] = pair.owners(&mut all);
        let on = [&requests, &replies];
        let owner = |device: usize, flow: usize| on[device][flow].unwrap();
        for (flow, had) in before.iter().enumerate() {
            let [here, there] = [owner(device, flow), owner(1 - device, flow)];
            match *had == all[2].number {
                // On the second device, the process may keep what no other process has to have.
                true => assert!(here == there || there == *had),
                false => assert_eq!([here, there], [*had; 2], "no other flow moves"),
            }
        }
        // It opens the handle again.
        let mut back = all.pop().unwrap();
        pair.open(&mut back, device);
        all.push(back);
        let owners = pair.whole(&mut all);
        assert!(count(&owners, &all[2]) > 90);
    }
}

#[test]
fn who_hangs_on_one_device_loses_its_share_on_both_until_it_reads_again() {
    for hangs in BOTH {
        let mut pair = Pair::new();
        let mut all: Vec<Process> = (0..3).map(|_| pair.come([0, 1])).collect();
        let before = pair.whole(&mut all);
        let number = all[0].number;
        for _ in 0..30 {
            pair.send();
            all[0].read(&[1 - hangs]);
            all[1..].iter_mut().for_each(|it| it.read(&BOTH));
            pair.pass(SECOND / 2, &mut all);
        }
        // It is read only where it does not hang.
        let stuck = all[0].members[hangs].take();
        let after = pair.whole(&mut all);
        assert_eq!(count(&after, &all[0]), 0, "hangs on {hangs}");
        ensure_only(number, &before, &after);
        all[0].members[hangs] = stuck;
        all[0].read(&BOTH);
        pair.pass(SECOND, &mut all);
        let again = pair.whole(&mut all);
        assert!(count(&again, &all[0]) > 90, "it has its share again");
        ensure_only(number, &after, &again);
    }
}

#[test]
fn processes_with_one_device_share_what_no_process_has_on_both() {
    let mut pair = Pair::new();
    let mut both = pair.come([0, 1]);
    let [mut first, mut second] = [pair.process(), pair.process()];
    pair.open(&mut first, 0);
    pair.open(&mut second, 1);
    let mut all = [both, first, second];
    pair.settle(&mut all);
    let [requests, replies] = pair.owners(&mut all);
    let owned = |owners: &[Option<u64>], process: &Process| {
        owners
            .iter()
            .filter(|it| **it == Some(process.number))
            .count()
    };
    for (request, reply) in requests.iter().zip(&replies) {
        let is_split = request != reply;
        assert_eq!(is_split, *request == Some(all[1].number));
    }
    assert!(owned(&requests, &all[1]) > 150 && owned(&replies, &all[2]) > 150);
    // Whoever has one device only gets nothing of flows of which others get both directions.
    [both, first, second] = all;
    let mut all = [both, second];
    pair.close(&mut first, 0, &mut all);
    pair.pass(SECOND, &mut all);
    let owners = pair.whole(&mut all);
    assert_eq!((count(&owners, &all[0]), count(&owners, &all[1])), (400, 0));
}

/// Groups without a common process are as groups that have one device.
#[test]
fn groups_of_different_processes_do_not_notice_each_other() {
    let mut pair = Pair::new();
    let mut all: Vec<Process> = Vec::new();
    for device in [0, 1, 1, 0, 1] {
        let mut process = pair.process();
        pair.open(&mut process, device);
        all.push(process);
    }
    pair.settle(&mut all);
    let owners = pair.owners(&mut all);
    for (process, (device, least)) in
        all.iter()
            .zip([(0, 160), (1, 100), (1, 100), (0, 160), (1, 100)])
    {
        let its = owners[device]
            .iter()
            .filter(|it| **it == Some(process.number))
            .count();
        assert!(its > least, "{its}");
    }
    let mut leaving = all.remove(0);
    pair.close(&mut leaving, 0, &mut all);
    pair.pass(SECOND, &mut all);
    assert_eq!(pair.owners(&mut all)[1], owners[1]);
}

/// One process may have several handles on each device, such as one for each of its threads.
#[test]
fn a_process_with_several_handles_on_each_device_gets_both_directions() {
    let mut pair = Pair::new();
    let mut handles: Vec<Process> = (0..5).map(|_| pair.process()).collect();
    // The third process has three handles on the first device, and two on the second.
    handles.iter_mut().skip(2).for_each(|it| it.number = 3);
    for handle in &mut handles {
        pair.open(handle, 0);
    }
    for handle in handles.iter_mut().take(4).rev() {
        pair.open(handle, 1);
    }
    let owners = pair.whole(&mut handles);
    let of_third = owners.iter().filter(|it| **it == 3).count();
    assert!(of_third > 180 && of_third < 300, "{of_third}");
}

#[test]
fn the_group_that_is_left_goes_on_without_a_move_and_decides_when_the_other_comes_back() {
    let mut pair = Pair::new();
    let mut all: Vec<Process> = (0..3).map(|_| pair.come([0, 1])).collect();
    let before = pair.whole(&mut all);
    // All handles on the first device are closed, as when the device is removed.
    let open: Vec<u64> = all.iter().map(|it| it.member(0)).collect();
    for (process, member) in all.iter_mut().zip(open) {
        let _ = pair.devices[0].hang_up(member, pair.now_ns);
        process.members[0] = None;
    }
    assert_eq!(pair.devices[0].sizes(), [0, 0]);
    pair.pass(SECOND, &mut all);
    let of_second = |pair: &mut Pair, all: &mut Vec<Process>| -> Vec<u64> {
        let [_, replies] = pair.owners(all);
        replies.into_iter().map(Option::unwrap).collect()
    };
    assert_eq!(of_second(&mut pair, &mut all), before);
    // The handles come back in another order.
    for at in [2, 0, 1] {
        pair.open(&mut all[at], 0);
        assert_eq!(of_second(&mut pair, &mut all), before);
    }
    assert_eq!(pair.whole(&mut all), before);
}

#[test]
fn weights_are_those_of_the_processes_members() {
    let mut pair = Pair::new();
    let mut all = Vec::new();
    for weight in [1, 3] {
        let mut process = pair.process();
        for device in BOTH {
            pair.open_as(&mut process, device, Hello { weight, ..hello() });
        }
        all.push(process);
    }
    let owners = pair.whole(&mut all);
    let [light, heavy] = [count(&owners, &all[0]), count(&owners, &all[1])];
    assert!(light < 130 && heavy > 270, "{light} {heavy}");
}

fn flow(balance: Option<Balance>, flows: Option<u32>) -> Steering {
    Steering::Program(Program {
        text: fanpcap_steer::modes::source("flow").unwrap().to_owned(),
        flows,
        balance,
    })
}

#[test]
fn a_handle_on_several_devices_needs_one_poller_and_groups_that_can_be_one() {
    let mut pair = Pair::new();
    let whole = |poller, group, steering: Steering| Hello {
        pair: 7 << 8,
        poller,
        group: Some(group),
        steering,
        ..hello()
    };
    let first = pair.enter(0, &whole(0, 5, Steering::Any), USER).unwrap();
    let poller = first.welcome.poller;
    assert!(poller != 0);
    let slug = |pair: &mut Pair, hello: &Hello| pair.enter(1, hello, USER).unwrap_err().slug;
    let other = whole(poller ^ 1, 5, Steering::Any);
    assert_eq!(slug(&mut pair, &other), "poller-apart");
    // Nobody has the group on the other device.
    let alone = whole(poller, 6, Steering::Any);
    assert_eq!(slug(&mut pair, &alone), "poller-steering");
    let rrobin = Steering::Program(Program {
        text: "main = steer_rrobin".to_owned(),
        flows: None,
        balance: None,
    });
    assert_eq!(
        slug(&mut pair, &whole(poller, 5, rrobin)),
        "poller-steering"
    );
    let second = pair
        .enter(1, &whole(poller, 5, Steering::Any), USER)
        .unwrap();
    assert_eq!(second.welcome.poller, poller);
    for (group, steering) in [
        (8, flow(None, Some(64))),
        (9, flow(Some(Balance::All), None)),
    ] {
        pair.enter(0, &whole(0, group, steering.clone()), USER)
            .unwrap();
        for asked in [steering, Steering::Any] {
            assert_eq!(
                slug(&mut pair, &whole(poller, group, asked)),
                "poller-steering"
            );
        }
    }
    assert_eq!(
        pair.devices[1].sizes(),
        [1, 1],
        "who is refused leaves no group"
    );
}

/// A group of another user, or of another number, has nothing in common with this one.
#[test]
fn groups_of_other_users_and_other_numbers_stay_apart() {
    let mut pair = Pair::new();
    let mut all: Vec<Process> = (0..2).map(|_| pair.come([0, 1])).collect();
    let before = pair.whole(&mut all);
    let forged = |group| Hello {
        pair: all[0].number << 8,
        group: Some(group),
        ..hello()
    };
    let (of_user, of_number) = (forged(5), forged(6));
    let mut entered = Vec::new();
    for (hello, user) in [(&of_user, USER + 1), (&of_number, USER)] {
        for device in [1, 0] {
            let it = pair.enter(device, hello, user).unwrap();
            let _ = pair.devices[device].reads(it.member, pair.now_ns);
            entered.push(it);
        }
    }
    assert_eq!(pair.whole(&mut all), before);
    let stranger = Hello {
        poller: entered[0].welcome.poller,
        ..hello()
    };
    let refused = pair.enter(
        1,
        &Hello {
            group: Some(77),
            ..stranger
        },
        USER + 2,
    );
    assert_eq!(refused.unwrap_err().slug, "poller-steering");
}

/// The first member of a group on a further device that asks for no mode gets that of the group.
#[test]
fn a_group_has_the_same_steering_program_on_each_device() {
    let mut pair = Pair::new();
    let program = Steering::Program(Program {
        text: "main = steer_link".to_owned(),
        flows: None,
        balance: None,
    });
    let hello_with = |steering: Steering| Hello {
        steering,
        ..hello()
    };
    pair.enter(0, &hello_with(program.clone()), USER).unwrap();
    pair.enter(1, &hello_with(Steering::Any), USER).unwrap();
    let other = pair.enter(1, &hello_with(flow(None, None)), USER);
    assert_eq!(other.unwrap_err().slug, "poller-steering");
    pair.enter(1, &hello_with(program), USER).unwrap();
}

/// Two new groups of a user have two numbers, also on two devices.
#[test]
fn new_groups_have_unused_numbers_on_all_devices() {
    let mut pair = Pair::new();
    let new = Hello {
        group: None,
        wants_number: true,
        ..hello()
    };
    let numbers = [0, 1, 1, 0].map(|device| pair.enter(device, &new, USER).unwrap().welcome.group);
    let different: BTreeSet<Option<u16>> = numbers.into();
    assert!(
        different.len() == 4 && !different.contains(&None),
        "{numbers:?}"
    );
}

/// The ranks of a class are also the members that get copies. They follow the other device's.
#[test]
fn copies_come_once_to_each_member_of_a_device() {
    let mut pair = Pair::new();
    let copies = || Hello {
        steering: Steering::Program(Program {
            text: "main = udp".to_owned(),
            flows: None,
            balance: None,
        }),
        ..hello()
    };
    let on: [&[usize]; 5] = [&[0, 1], &[0], &[0], &[1], &[1]];
    let mut all = Vec::new();
    for devices in on {
        let mut process = pair.process();
        for &device in devices {
            pair.open_as(&mut process, device, copies());
        }
        all.push(process);
    }
    pair.settle(&mut all);
    pair.send();
    for device in BOTH {
        let members = all.iter_mut().filter_map(|it| it.members[device].as_mut());
        let got: Vec<Vec<u64>> = members
            .map(|it| {
                it.read();
                it.got.clone()
            })
            .collect();
        assert!(got.len() == 3 && !got[0].is_empty());
        let is_once = |it: &Vec<u64>| it.iter().collect::<BTreeSet<_>>().len() == it.len();
        assert!(got.iter().all(|it| is_once(it) && *it == got[0]));
    }
}
