//! Checks each steering function, and combinations of functions.

use super::frames::*;
use super::*;
use crate::hash::{both, end, end4, finish, fold};
use crate::ir::{Comparison, Field, Key, Net, Property};

fn source() -> u32 {
    SOURCE.to_bits()
}

fn destination() -> u32 {
    DESTINATION.to_bits()
}

fn mac(number: u8) -> u64 {
    0x0200_0000_0000 | u64::from(number)
}

#[test]
#[ignore = "needs root: eBPF"]
fn each_way_comes_to_its_hash() {
    let field = |offset, len| Field { offset, len };
    let tagged = ethernet(0x8100, &tag(0x3005, 0x0800, &udp4()[14..]));
    for (steer_by, frame, expected) in [
        (Steer::To(i32::MAX as u32), arp(), i32::MAX as u32),
        (Steer::Link, arp(), finish(both(end(mac(1)), end(mac(2))))),
        (Steer::Vlan, tagged.clone(), finish(end(5))),
        (Steer::Vlan, udp4(), DROP),
        (
            Steer::Field(field(26, 4)),
            udp4(),
            finish(end(source().into())),
        ),
        (Steer::Field(field(5, 3)), udp4(), finish(end(0x02_02_00))),
        (Steer::Field(field(61, 2)), udp4(), DROP),
        (
            Steer::Fields(field(26, 4), field(30, 4)),
            udp4(),
            finish(both(end(source().into()), end(destination().into()))),
        ),
        (Steer::Fields(field(0, 1), field(1000, 1)), udp4(), DROP),
    ] {
        let name = format!("{steer_by:?}");
        assert_eq!(steer(Function::Steer(steer_by), &frame), expected, "{name}");
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_local_side_is_told_by_its_net_or_the_gateway() {
    let net = |text: &str, bits| Net {
        address: text.parse().unwrap(),
        bits,
    };
    for (steer_by, frame, expected) in [
        (
            Steer::LocalIp(net("10.0.0.1", 32)),
            udp4(),
            finish(end4(source(), 0)),
        ),
        (
            Steer::LocalIp(net("10.0.0.2", 32)),
            udp4(),
            finish(end4(destination(), 0)),
        ),
        (
            Steer::LocalIp(net("10.0.0.0", 8)),
            udp4(),
            finish(both(end4(source(), 0), end4(destination(), 0))),
        ),
        (Steer::LocalIp(net("192.0.2.0", 24)), udp4(), DROP),
        (Steer::LocalIp(net("10.0.0.0", 8)), udp6(), DROP),
        (
            Steer::LocalNet(net("10.0.0.1", 32), 24),
            udp4(),
            finish(end4(0x0a00_0000, 0)),
        ),
        (Steer::LocalLink(MAC_SOURCE), arp(), finish(end(mac(2)))),
        (
            Steer::LocalLink(MAC_DESTINATION),
            arp(),
            finish(end(mac(1))),
        ),
        (
            Steer::LocalLink([0; 6]),
            arp(),
            finish(both(end(mac(1)), end(mac(2)))),
        ),
    ] {
        let name = format!("{steer_by:?}");
        assert_eq!(steer(Function::Steer(steer_by), &frame), expected, "{name}");
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn keys_have_an_order() {
    let tagged = ethernet(0x8100, &tag(0x3005, 0x0800, &udp4()[14..]));
    let key = Key::IP_SOURCE
        .and(Key::PROTOCOL)
        .and(Key::DESTINATION_PORT)
        .and(Key::DSCP);
    let folded = [u64::from(source()), 17, 0xb8 >> 2, 2222]
        .into_iter()
        .fold(0, fold);
    let links = [mac(1), mac(2)].into_iter().fold(0, fold);
    for (steer_by, frame, expected) in [
        (Steer::Key(key), udp4(), finish(folded)),
        (
            Steer::Key(key),
            ethernet(0x0800, &v4(50, 0, &[0; 20])),
            DROP,
        ),
        (
            Steer::Key(Key::LINK_SOURCE.and(Key::LINK_DESTINATION)),
            arp(),
            finish(links),
        ),
        (Steer::Key(Key::VLAN), tagged, finish(fold(0, 5))),
        (Steer::Rss, arp(), 0),
        (
            Steer::Rss,
            udp4(),
            finish(both(end4(source(), 1111), end4(destination(), 2222))),
        ),
    ] {
        let name = format!("{steer_by:?}");
        assert_eq!(steer(Function::Steer(steer_by), &frame), expected, "{name}");
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_sessions_streams_go_together() {
    let frame = |source, destination, payload: &[u8]| {
        ethernet(0x0800, &v4(17, 0, &udp(source, destination, payload)))
    };
    let expected = finish(both(end4(source(), 2502), end4(destination(), 3000)));
    let all = All::of(&program(Function::Steer(Steer::Media)));
    assert_eq!(
        all.run(&frame(5004, 6000, &[&[0x80, 0][..], &[0; 10]].concat())),
        expected
    );
    assert_eq!(all.run(&frame(5005, 6001, &[0x80, 201, 0, 0])), expected);
    assert_eq!(all.run(&udp4()), DROP);
    assert_eq!(all.run(&arp()), DROP);
}

#[test]
#[ignore = "needs root: eBPF"]
fn tunnels_of_users_go_by_the_user() {
    let all = All::of(&program(Function::Steer(Steer::Gtp)));
    let addresses = finish(both(end4(source(), 0), end4(destination(), 0)));
    let gtp: Vec<_> = tunnels()
        .into_iter()
        .filter(|(name, _)| name.starts_with("gtp"))
        .collect();
    assert!(!gtp.is_empty());
    for (name, frame) in gtp {
        assert_eq!(all.run(&frame), addresses, "{name}");
    }
    assert_eq!(
        all.run(&ethernet(0x0800, &v4(17, 0, &udp(2123, 9, &[0; 20])))),
        addresses
    );
    assert_eq!(
        all.run(&ethernet(0x0800, &v4(17, 0, &udp(2152, 9, &[0; 20])))),
        DROP
    );
    assert_eq!(all.run(&udp4()), DROP);
}

#[test]
#[ignore = "needs root: eBPF"]
fn what_drops_leaves_nothing_behind() {
    let to = |member| Function::Steer(Steer::To(member));
    let state_is = |value| Predicate::Compare(Property::State, Comparison::Equal, value);
    let drops = Function::Sequence(vec![
        to(5),
        Function::SetState(9),
        Function::Count(4, 2),
        Function::Drop,
    ]);
    let after = choice(state_is(3));
    let start = Function::Sequence(vec![to(6), Function::SetState(3)]);
    let sequence = |functions: &[Function]| Function::Sequence(functions.to_vec());
    for frame in [udp4(), arp()] {
        let first = Function::First(vec![drops.clone(), Function::Pass]);
        assert_eq!(steer(sequence(&[start.clone(), first.clone()]), &frame), 6);
        assert_eq!(
            steer(sequence(&[start.clone(), first, after.clone()]), &frame),
            1
        );
        let inverse = Function::Inverse(Box::new(drops.clone()));
        assert_eq!(
            steer(sequence(&[start.clone(), inverse.clone()]), &frame),
            6
        );
        assert_eq!(
            steer(sequence(&[start.clone(), inverse, after.clone()]), &frame),
            1
        );
        let passes = Function::Inverse(Box::new(to(5)));
        assert_eq!(
            steer(sequence(&[start.clone(), passes.clone()]), &frame),
            DROP
        );
        let again = Function::First(vec![passes, Function::Drop, Function::Pass]);
        assert_eq!(steer(sequence(&[start.clone(), again]), &frame), 6);
        assert_eq!(steer(Function::First(vec![]), &frame), DROP);
        assert_eq!(steer(sequence(&[to(1), to(2)]), &frame), 2);
    }
    let loaded = Loaded::load(
        &fanout_of(&program(Function::First(vec![drops, Function::Pass]))).unwrap(),
        "test",
    )
    .unwrap();
    for count in 1..4 {
        loaded.run(&udp4()).unwrap();
        let counters = loaded.map(COUNTERS_MAP).unwrap().numbers().unwrap();
        assert_eq!(counters[4], 2 * count);
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn turns_and_samples_are_counted() {
    let pinned = |loaded: &Loaded, count: usize| -> Vec<u32> {
        // A trial run uses the CPU of the calling thread, and each CPU has its own counter. So all
        // runs must be made on one CPU.
        (0..count).map(|_| loaded.run(&udp4()).unwrap()).collect()
    };
    let repeated = |main: Function, expected: &[u32]| {
        for _ in 0..20 {
            let loaded =
                Loaded::load(&xdp_decision(&program(main.clone())).unwrap(), "test").unwrap();
            if pinned(&loaded, expected.len()) == expected {
                return;
            }
        }
        panic!("never {expected:?}");
    };
    repeated(Function::Steer(Steer::RoundRobin), &[0, 1, 2, 3, 4]);
    let sample = |index| Function::Sample {
        keep: 2,
        of: 3,
        index,
    };
    let main = Function::Sequence(vec![sample(7), Function::Steer(Steer::To(1))]);
    repeated(main, &[1, 1, DROP, 1, 1, DROP, 1]);
    let main = Function::Sequence(vec![
        sample(0),
        sample(255),
        Function::Steer(Steer::RoundRobin),
    ]);
    repeated(main, &[0, 1, DROP, DROP, 2, DROP, 3, DROP]);
}

#[test]
#[ignore = "needs root: eBPF"]
fn chance_and_cpu_are_asked_of_the_kernel() {
    let loaded = Loaded::load(
        &fanout_of(&program(Function::Steer(Steer::Random))).unwrap(),
        "test",
    )
    .unwrap();
    let drawn: std::collections::HashSet<_> =
        (0..64).map(|_| loaded.run(&udp4()).unwrap()).collect();
    assert!(drawn.len() > 60 && drawn.iter().all(|&number| number <= i32::MAX as u32));
    let loaded = Loaded::load(
        &xdp_decision(&program(Function::Steer(Steer::Cpu))).unwrap(),
        "test",
    )
    .unwrap();
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!((loaded.run(&udp4()).unwrap() as usize) < cpus.max(64));
}

#[test]
fn what_a_kernel_group_can_not_do_is_refused() {
    for main in [
        Function::Broadcast,
        Function::Classify(3),
        Function::Host(true),
        Function::Mark(1),
        Function::Steer(Steer::DoubleIp),
        Function::Count(64, 1),
    ] {
        assert!(
            matches!(fanout_of(&program(main.clone())), Err(EbpfError::Unfit(_))),
            "{main:?}"
        );
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_filter_keeps_what_the_program_steers_and_counts_the_rest() {
    for (main, frame, keeps) in [
        (by_flow(), udp4(), true),
        (by_flow(), arp(), false),
        (Function::Steer(Steer::Vlan), udp4(), false),
        (Function::Drop, udp4(), false),
        (Function::Pass, arp(), true),
        (inner(Function::Steer(Steer::Media)), udp4(), false),
    ] {
        let table = table();
        let object = filter_of(&program(main.clone()), None).unwrap();
        let kept = load_with(&object, &table).unwrap().run(&frame).unwrap();
        let dropped = &table.words(layout::NOWHERE, 1).unwrap()[0];
        let expected = if keeps { (u32::MAX, 0) } else { (0, 1) };
        assert_eq!((kept, dropped.load(Relaxed)), expected, "{main:?}");
    }
}
