//! Tests the evaluator's decisions by each function, predicate and steering function, on hand-made
//! frames.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod fragments;

use std::net::Ipv4Addr;

use fanpcap_steer::hash::{SHARE, both, end, end4, end6, finish, fold};
use fanpcap_steer::ir::*;
use fanpcap_steer::native::{Decision, Evaluator, Host, Packet};
use fanpcap_steer::tree;
use fanpcap_testkit::frames::{TCP, ethernet, fragment, udp, v4, v6};
use fanpcap_wire::{Frame, Tag};

const ONE: u32 = 0x0a00_0001;
const TWO: u32 = 0x0a00_0002;
const HIGH: u64 = 0x2001_0db8_0000_0000;

fn program(main: Function) -> Tree {
    Tree {
        main,
        sets: Vec::new(),
        filters: Vec::new(),
    }
}

fn packet(bytes: &[u8]) -> Packet<'_> {
    Packet::of(Frame { bytes, tag: None })
}

/// The decision of an evaluator without a group.
fn decide(main: Function, bytes: &[u8]) -> Decision {
    Evaluator::new(&program(main)).decide(&packet(bytes))
}

/// The decision of an evaluator for a kernel group.
fn decide_in_group(main: Function, bytes: &[u8]) -> Decision {
    Evaluator::of_group(&program(main)).decide(&packet(bytes))
}

fn steer(by: Steer, bytes: &[u8]) -> Decision {
    decide(Function::Steer(by), bytes)
}

fn filter(predicate: Predicate) -> Function {
    Function::If(
        Box::new(predicate),
        Box::new(Function::Pass),
        Box::new(Function::Drop),
    )
}

fn to(member: u32) -> Function {
    Function::Steer(Steer::To(member))
}

fn is(property: Property, number: u64) -> Predicate {
    Predicate::Compare(property, Comparison::Equal, number)
}

fn net(address: [u8; 4], bits: u8) -> Net {
    Net {
        address: Ipv4Addr::from(address).into(),
        bits,
    }
}

/// TCP from 10.0.0.1:8080 to 10.0.0.2:80.
fn tcp() -> Vec<u8> {
    ethernet(0x0800, &v4(6, 0, &TCP))
}

fn flow_of_tcp() -> u64 {
    both(end4(ONE, 8080), end4(TWO, 80))
}

fn by_addresses() -> u64 {
    both(end4(ONE, 0), end4(TWO, 0))
}

#[test]
fn flows_go_by_what_tells_them_apart() {
    let whole = Decision::Steer(finish(flow_of_tcp()));
    let flow = |flow: Flow| Steer::Flow(flow);
    assert_eq!(steer(flow(Flow::WHOLE), &tcp()), whole);
    assert_eq!(
        steer(flow(Flow::ADDRESSES), &tcp()),
        Decision::Steer(finish(by_addresses()))
    );
    let tcp_only = flow(Flow {
        ports: Ports::Tcp,
        ..Flow::WHOLE
    });
    assert_eq!(steer(tcp_only.clone(), &tcp()), whole);
    let datagram = ethernet(0x0800, &v4(17, 0, &udp(5, 6, &[])));
    assert_eq!(
        steer(tcp_only, &datagram),
        Decision::Steer(finish(by_addresses()))
    );
    let all = flow(Flow {
        ports: Ports::All,
        protocol: true,
        vlan: true,
    });
    let hash = fold(fold(flow_of_tcp(), 6), 0);
    assert_eq!(steer(all.clone(), &tcp()), Decision::Steer(finish(hash)));
    let tag = Some(Tag {
        tpid: 0x8100,
        tci: 0xe007,
    });
    let bytes = tcp();
    let tagged = Packet::of(Frame { bytes: &bytes, tag });
    let number = finish(fold(fold(flow_of_tcp(), 6), 7));
    let decided = Evaluator::new(&program(Function::Steer(all))).decide(&tagged);
    assert_eq!(decided, Decision::Steer(number));
    let six = ethernet(0x86dd, &v6(6, &TCP));
    let hash = both(end6(HIGH, 1, 8080), end6(HIGH, 2, 80));
    assert_eq!(
        steer(flow(Flow::WHOLE), &six),
        Decision::Steer(finish(hash))
    );
    assert_eq!(
        steer(flow(Flow::WHOLE), &ethernet(0x0806, &[0; 28])),
        Decision::Drop
    );
}

#[test]
fn an_icmp_error_goes_with_its_flow() {
    let message = [&[3, 1, 0, 0, 0, 0, 0, 0][..], &v4(6, 0, &TCP[..8])].concat();
    let error = ethernet(0x0800, &v4(1, 0, &message));
    let flow = Function::Steer(Steer::Flow(Flow::WHOLE));
    assert_eq!(decide(flow, &error), Decision::Steer(finish(flow_of_tcp())));
}

#[test]
fn functions_run_until_one_drops() {
    let sequence = |functions: Vec<Function>| decide(Function::Sequence(functions), &tcp());
    assert_eq!(sequence(vec![]), Decision::Copy);
    assert_eq!(sequence(vec![to(1), to(2)]), Decision::Member(2));
    assert_eq!(
        sequence(vec![to(1), Function::Broadcast]),
        Decision::Broadcast
    );
    assert_eq!(sequence(vec![to(1), Function::Drop, to(2)]), Decision::Drop);
    let has_port = |port| filter(Predicate::Port(Side::Either, port));
    assert_eq!(sequence(vec![has_port(80), to(1)]), Decision::Member(1));
    assert_eq!(sequence(vec![has_port(81), to(1)]), Decision::Drop);
}

#[test]
fn what_drops_is_forgotten_but_for_its_counters() {
    let tried = Function::Sequence(vec![
        Function::Count(3, 1),
        Function::SetState(7),
        to(1),
        Function::Drop,
    ]);
    let asked = Function::Sequence(vec![filter(is(Property::State, 0)), Function::Count(3, -2)]);
    for main in [
        Function::First(vec![tried.clone(), asked.clone()]),
        Function::Sequence(vec![Function::Inverse(Box::new(tried)), asked]),
    ] {
        let mut evaluator = Evaluator::new(&program(main));
        assert_eq!(evaluator.decide(&packet(&tcp())), Decision::Copy);
        assert_eq!(evaluator.counters()[3], u64::MAX);
    }
    assert_eq!(
        decide(Function::Inverse(Box::new(to(1))), &tcp()),
        Decision::Drop
    );
    assert_eq!(decide(Function::First(vec![]), &tcp()), Decision::Drop);
}

#[test]
fn inner_runs_on_the_packet_inside_or_on_this_one() {
    let flow = Function::Inner(Box::new(Function::Steer(Steer::Flow(Flow::WHOLE))));
    let carried = ethernet(0x0800, &v4(4, 0, &v4(17, 0, &udp(7, 9, &[]))));
    let hash = both(end4(ONE, 7), end4(TWO, 9));
    assert_eq!(
        decide(flow.clone(), &carried),
        Decision::Steer(finish(hash))
    );
    assert_eq!(decide(flow, &tcp()), Decision::Steer(finish(flow_of_tcp())));
    // The carried packet has no Ethernet header of its own.
    let link = Function::Inner(Box::new(Function::Steer(Steer::Link)));
    assert_eq!(decide(link, &carried), Decision::Drop);
}

#[test]
fn turns_and_samples_are_counted_on_each_cpu() {
    let bytes = tcp();
    let on = |cpu| Packet {
        cpu,
        ..packet(&bytes)
    };
    let mut evaluator = Evaluator::new(&program(Function::Steer(Steer::RoundRobin)));
    let turns = [0, 0, 1, 0, 1].map(|cpu| evaluator.decide(&on(cpu)));
    assert_eq!(turns, [0, 1, 0, 2, 1].map(Decision::Member));
    let sample = Function::Sample {
        keep: 2,
        of: 5,
        index: 0,
    };
    let mut evaluator = Evaluator::new(&program(Function::Sequence(vec![sample, to(1)])));
    let mut kept = |cpu: u32| evaluator.decide(&on(cpu)) != Decision::Drop;
    let pattern = [true, true, false, false, false];
    for _ in 0..3 {
        assert_eq!(pattern.map(|_| kept(0)), pattern);
    }
    assert_eq!(pattern.map(|_| kept(1)), pattern);
}

#[test]
fn the_hub_copies_where_a_group_goes_by_both() {
    let mut broadcast = tcp();
    broadcast[..6].fill(0xff);
    let links = both(end(0x0200_0000_0001), end(0xffff_ffff_ffff));
    assert_eq!(steer(Steer::Link, &broadcast), Decision::Broadcast);
    let in_group = decide_in_group(Function::Steer(Steer::Link), &broadcast);
    assert_eq!(in_group, Decision::Steer(finish(links)));

    let local = Steer::LocalIp(net([10, 0, 0, 0], 24));
    let (one, two) = (finish(end4(ONE, 0)), finish(end4(TWO, 0)));
    assert_eq!(steer(local.clone(), &tcp()), Decision::Double(one, two));
    let in_group = decide_in_group(Function::Steer(local), &tcp());
    assert_eq!(in_group, Decision::Steer(finish(by_addresses())));
    assert_eq!(
        steer(Steer::LocalIp(net([10, 0, 0, 2], 32)), &tcp()),
        Decision::Steer(two)
    );
    assert_eq!(
        steer(Steer::LocalIp(net([10, 0, 0, 1], 32)), &tcp()),
        Decision::Steer(one)
    );
    assert_eq!(
        steer(Steer::LocalIp(net([10, 1, 0, 0], 16)), &tcp()),
        Decision::Drop
    );
    let by_net = Steer::LocalNet(net([10, 0, 0, 0], 24), 31);
    let cut = finish(end4(0x0a00_0000, 0));
    assert_eq!(steer(by_net, &tcp()), Decision::Double(cut, two));

    let (from, at) = (end(0x0200_0000_0001), end(0x0200_0000_0002));
    let gateway = |last| Steer::LocalLink([2, 0, 0, 0, 0, last]);
    assert_eq!(steer(gateway(1), &tcp()), Decision::Steer(finish(at)));
    assert_eq!(steer(gateway(2), &tcp()), Decision::Steer(finish(from)));
    assert_eq!(
        steer(gateway(3), &tcp()),
        Decision::Double(finish(from), finish(at))
    );
    assert_eq!(
        steer(Steer::DoubleLink, &tcp()),
        Decision::Double(finish(from), finish(at))
    );
    assert_eq!(steer(Steer::DoubleIp, &tcp()), Decision::Double(one, two));
}

#[test]
fn fields_are_numbers_of_the_frame() {
    let field = |offset, len| Field { offset, len };
    let number = |value: u64| Decision::Steer(finish(end(value)));
    assert_eq!(
        steer(Steer::Field(field(26, 4)), &tcp()),
        number(ONE.into())
    );
    assert_eq!(steer(Steer::Field(field(27, 3)), &tcp()), number(1));
    assert_eq!(steer(Steer::Field(field(53, 1)), &tcp()), number(0));
    assert_eq!(steer(Steer::Field(field(53, 2)), &tcp()), Decision::Drop);
    let hash = both(end(ONE.into()), end(TWO.into()));
    let fields = |one, other| Steer::Fields(field(one, 4), field(other, 4));
    assert_eq!(steer(fields(26, 30), &tcp()), Decision::Steer(finish(hash)));
    assert_eq!(steer(fields(30, 26), &tcp()), Decision::Steer(finish(hash)));
    let double = Steer::DoubleField(field(26, 4), field(30, 4));
    let [one, two] = [ONE, TWO].map(|address| finish(end(address.into())));
    assert_eq!(steer(double, &tcp()), Decision::Double(one, two));
}

#[test]
fn keys_hash_their_fields_in_order() {
    let key = Key::DESTINATION_PORT
        .and(Key::IP_SOURCE)
        .and(Key::DSCP)
        .and(Key::ECN);
    let hash = [ONE.into(), 0, 0x2e, 80].into_iter().fold(0, fold);
    assert_eq!(
        steer(Steer::Key(key), &tcp()),
        Decision::Steer(finish(hash))
    );
    let addresses = Key::IP_DESTINATION.and(Key::PROTOCOL);
    let hash = [HIGH, 2, 6].into_iter().fold(0, fold);
    let six = ethernet(0x86dd, &v6(6, &TCP));
    assert_eq!(
        steer(Steer::Key(addresses), &six),
        Decision::Steer(finish(hash))
    );
    assert_eq!(
        steer(Steer::Key(addresses.and(Key::VLAN)), &six),
        Decision::Drop
    );
    let share = |index, of| Predicate::Share { index, of, key };
    let part = finish([ONE.into(), 0, 0x2e, 80].into_iter().fold(SHARE, fold)) % 5;
    for index in 0..5 {
        let is_in = decide(filter(share(index, 5)), &tcp()) == Decision::Copy;
        assert_eq!(is_in, index == part);
    }
}

#[test]
fn media_goes_by_half_its_ports() {
    let hash = both(end4(ONE, 2502), end4(TWO, 3002));
    let media = |source, destination, kind| {
        let datagram = udp(source, destination, &[&[0x80, kind][..], &[0; 10]].concat());
        steer(Steer::Media, &ethernet(0x0800, &v4(17, 0, &datagram)))
    };
    assert_eq!(media(5004, 6004, 0), Decision::Steer(finish(hash)));
    assert_eq!(media(5005, 6005, 200), Decision::Steer(finish(hash)));
    assert_eq!(media(5005, 6005, 0), Decision::Drop);
    assert_eq!(steer(Steer::Media, &tcp()), Decision::Drop);
}

#[test]
fn gtp_goes_by_its_users() {
    let mut user = v4(6, 0, &TCP);
    user[15] = 9;
    fanpcap_gen::headers::seal(&mut user);
    let header = [0x30, 255, 0, 0, 0, 0, 0, 1];
    let carried = |port, inside: &[u8]| {
        let datagram = udp(777, port, &[&header, inside].concat());
        ethernet(0x0800, &v4(17, 0, &datagram))
    };
    let hash = both(end4(0x0a00_0009, 0), end4(TWO, 0));
    assert_eq!(
        steer(Steer::Gtp, &carried(2152, &user)),
        Decision::Steer(finish(hash))
    );
    assert_eq!(steer(Steer::Gtp, &carried(2152, &[])), Decision::Drop);
    assert_eq!(steer(Steer::Gtp, &carried(2123, &[])), Decision::Broadcast);
    let in_group = decide_in_group(Function::Steer(Steer::Gtp), &carried(2123, &[]));
    assert_eq!(in_group, Decision::Steer(finish(by_addresses())));
    assert_eq!(steer(Steer::Gtp, &tcp()), Decision::Drop);
}

#[test]
fn what_the_receiver_knows_is_asked_and_steered_by() {
    let bytes = tcp();
    let known = Packet {
        hash: 0xffff_fff1,
        queue: Some(3),
        cpu: 2,
        mark: Some(8),
        ..packet(&bytes)
    };
    let on = |main: Function| Evaluator::new(&program(main)).decide(&known);
    assert_eq!(
        on(Function::Steer(Steer::Rss)),
        Decision::Steer(0x7fff_fff1)
    );
    assert_eq!(on(Function::Steer(Steer::Cpu)), Decision::Member(2));
    assert_eq!(
        steer(Steer::Rss, &bytes),
        Decision::Steer(finish(flow_of_tcp()))
    );
    assert_eq!(
        steer(Steer::Rss, &ethernet(0x0806, &[])),
        Decision::Steer(0)
    );
    assert_eq!(on(filter(is(Property::Queue, 3))), Decision::Copy);
    assert_eq!(on(filter(is(Property::Mark, 8))), Decision::Copy);
    assert_eq!(
        decide(filter(is(Property::Queue, 0)), &bytes),
        Decision::Drop
    );
    let differs = Predicate::Compare(Property::Queue, Comparison::NotEqual, 3);
    assert_eq!(
        decide(filter(differs), &bytes),
        Decision::Drop,
        "absent: nothing holds"
    );
}

#[test]
fn classes_marks_and_the_host_are_told() {
    let evaluate = |functions: Vec<Function>| {
        Evaluator::new(&program(Function::Sequence(functions))).evaluate(&packet(&tcp()))
    };
    let outcome = evaluate(vec![
        Function::Classify(4),
        Function::Mark(6),
        Function::Host(false),
        to(1),
    ]);
    assert_eq!((outcome.decision, outcome.class), (Decision::Member(1), 4));
    assert_eq!((outcome.mark, outcome.host), (Some(6), Host::Too));
    let outcome = evaluate(vec![
        Function::Mark(6),
        filter(is(Property::Mark, 6)),
        Function::Host(true),
    ]);
    assert_eq!(
        (outcome.decision, outcome.host),
        (Decision::Drop, Host::Only)
    );
    let outcome = evaluate(vec![
        Function::Classify(4),
        Function::Mark(6),
        Function::Drop,
    ]);
    assert_eq!(
        (outcome.decision, outcome.class, outcome.mark),
        (Decision::Drop, 0, None)
    );
}

#[test]
fn what_the_host_gets_outlasts_a_drop_behind_it() {
    let arp = ethernet(0x0806, &[0; 28]);
    let icmp = ethernet(0x0800, &v4(1, 0, &[0; 8]));
    let outcome = |source, bytes: &[u8]| {
        let program = tree(source, &|_| Err("no libpcap".to_owned())).unwrap();
        let outcome = Evaluator::new(&program).evaluate(&packet(bytes));
        (outcome.decision, outcome.host)
    };
    let dropped = |host| (Decision::Drop, host);
    let detour = "when is_eth_arp detour >-> steer_flow";
    assert_eq!(outcome(detour, &arp), dropped(Host::Only));
    assert_eq!(outcome(detour, &tcp()).1, Host::Unsaid);
    let known = "when is_eth_arp detour >-> inc 0 >-> steer_to 1 >-> kernel";
    assert_eq!(
        outcome(known, &arp),
        dropped(Host::Only),
        "a function ran after detour"
    );
    let kernel = "when is_icmp kernel >-> tcp >-> steer_flow";
    assert_eq!(outcome(kernel, &icmp), dropped(Host::Too));
    assert_eq!(outcome(kernel, &arp), dropped(Host::Unsaid));
    // Changes by an alternative that drops are undone.
    for source in ["par (kernel >-> tcp) udp", "inv (kernel >-> icmp)"] {
        assert_eq!(outcome(source, &icmp), dropped(Host::Unsaid), "{source}");
    }
}

#[test]
fn addresses_are_asked_by_side_family_and_set() {
    let holds = |predicate, sets: Vec<Vec<u128>>| {
        let asked = Tree {
            sets,
            ..program(filter(predicate))
        };
        Evaluator::new(&asked).decide(&packet(&tcp())) == Decision::Copy
    };
    let at = |side, address, bits| holds(Predicate::Address(side, net(address, bits)), vec![]);
    assert!(at(Side::Source, [10, 0, 0, 1], 32));
    assert!(!at(Side::Destination, [10, 0, 0, 1], 32));
    assert!(at(Side::Either, [10, 0, 0, 2], 32));
    assert!(at(Side::Either, [0, 0, 0, 0], 0));
    let all_of_ipv6 = Net {
        address: std::net::Ipv6Addr::UNSPECIFIED.into(),
        bits: 0,
    };
    assert!(!holds(
        Predicate::Address(Side::Either, all_of_ipv6),
        vec![]
    ));
    let in_set = |ipv6, bits, element| {
        let asked = Predicate::AddressIn {
            side: Side::Source,
            ipv6,
            bits,
            set: 0,
        };
        holds(asked, vec![vec![1, element]])
    };
    assert!(in_set(false, 24, 0x0a00_0000));
    assert!(!in_set(false, 32, 0x0a00_0000));
    assert!(!in_set(true, 24, 0x0a00_0000));
    assert!(holds(
        Predicate::Member(Property::TcpDestination, 0),
        vec![vec![53, 80]]
    ));
    assert!(!holds(
        Predicate::Member(Property::UdpDestination, 0),
        vec![vec![53, 80]]
    ));
}
