//! Checks that the kernel accepts every steering program that the compiler accepts: long ones,
//! deeply nested ones, and those with all kinds of nodes.

use super::*;
use crate::ir::{Comparison, Header, Key, Net, Ports, Property, Side};
use std::net::IpAddr;

fn load(program: &Tree) -> Result<[u32; 3], EbpfError> {
    let mut verified = [0; 3];
    let table = table();
    let objects = [
        by_table(program, GroupOptions::default())?,
        filter_of(program, None)?,
        xdp_decision(program)?,
    ];
    for (object, verified) in objects.iter().zip(&mut verified) {
        let loaded = load_with(object, &table)
            .unwrap_or_else(|error| panic!("{error}\n{}", program.main_text()));
        *verified = loaded.verified().unwrap();
        let times = *verified as usize / object.steps();
        assert!(
            times < 20,
            "the verifier visited {verified} instructions for {} steps",
            object.steps()
        );
        assert!(
            *verified < 500_000,
            "the verifier visited half of its limit of instructions: {verified}"
        );
    }
    Ok(verified)
}

fn net(text: &str, bits: u8) -> Net {
    Net {
        address: text.parse::<IpAddr>().unwrap(),
        bits,
    }
}

pub(super) fn predicates() -> Vec<Predicate> {
    let mut all = vec![
        Predicate::Address(Side::Either, net("10.0.0.0", 8)),
        Predicate::Address(Side::Source, net("2001:db8::", 61)),
        Predicate::AddressIn {
            side: Side::Either,
            ipv6: false,
            bits: 24,
            set: 0,
        },
        Predicate::AddressIn {
            side: Side::Either,
            ipv6: true,
            bits: 64,
            set: 1,
        },
        Predicate::Member(Property::UdpDestination, 0),
        Predicate::Member(Property::TcpDestination, 1),
        Predicate::Port(Side::Either, 53),
        Predicate::Share {
            index: 1,
            of: 3,
            key: Key(0x1fff),
        },
        Predicate::Rtp,
        Predicate::Rtcp,
        Predicate::Xor(
            Box::new(Predicate::Rtp),
            Box::new(Predicate::Has(Header::Tag)),
        ),
    ];
    all.extend(Header::ALL.map(Predicate::Has));
    for property in Property::ALL {
        all.push(Predicate::Compare(property, Comparison::Less, 1 << 33));
        all.push(Predicate::Compare(property, Comparison::AllBits, 5));
    }
    all
}

pub(super) fn steers() -> Vec<Function> {
    let flow = |ports, protocol, vlan| {
        Steer::Flow(Flow {
            ports,
            protocol,
            vlan,
        })
    };
    [
        flow(Ports::All, true, true),
        flow(Ports::Tcp, false, true),
        flow(Ports::None, true, false),
        Steer::Link,
        Steer::Vlan,
        Steer::RoundRobin,
        Steer::Random,
        Steer::Cpu,
        Steer::Rss,
        Steer::To(7),
        Steer::Field(crate::ir::Field {
            offset: 700,
            len: 3,
        }),
        Steer::Fields(
            crate::ir::Field { offset: 14, len: 4 },
            crate::ir::Field {
                offset: 0xffff,
                len: 1,
            },
        ),
        Steer::LocalIp(net("10.0.0.0", 8)),
        Steer::LocalNet(net("2001:db8::", 32), 48),
        Steer::LocalLink([2, 0, 0, 0, 0, 1]),
        Steer::Key(Key(0x1fff)),
        Steer::Media,
        Steer::Gtp,
    ]
    .map(Function::Steer)
    .to_vec()
}

pub(super) fn sets() -> Vec<Vec<u128>> {
    vec![
        (0..5).collect(),
        (0..2000).map(|number| number << 64).collect(),
    ]
}

/// A function that restores the outcome after a drop at many levels.
fn rich(depth: usize) -> Function {
    let mut main = Function::Sequence(
        predicates()
            .into_iter()
            .enumerate()
            .map(|(number, predicate)| {
                let then = Function::Sequence(vec![
                    Function::SetState(u32::try_from(number).unwrap()),
                    Function::Count(3, -1),
                ]);
                Function::If(
                    Box::new(predicate),
                    Box::new(then),
                    Box::new(Function::Pass),
                )
            })
            .collect(),
    );
    for _ in 0..depth {
        let drops = Function::Sequence(vec![
            Function::Steer(Steer::To(3)),
            Function::SetState(9),
            Function::Steer(Steer::Vlan),
        ]);
        main = Function::First(vec![
            drops,
            inner(main),
            Function::Sample {
                keep: 1,
                of: 3,
                index: 200,
            },
        ]);
    }
    main
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_kernel_takes_each_node() {
    for predicate in predicates() {
        for main in [choice(predicate.clone()), inner(choice(predicate))] {
            load(&Tree {
                main,
                sets: sets(),
                filters: Vec::new(),
            })
            .unwrap();
        }
    }
    for steer in steers() {
        for main in [steer.clone(), inner(steer)] {
            load(&Tree {
                main,
                sets: sets(),
                filters: Vec::new(),
            })
            .unwrap();
        }
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_kernel_takes_programs_with_all_nodes() {
    for depth in [0, 1, 3, 8] {
        let main = Function::Sequence(vec![rich(depth), Function::First(steers())]);
        let verified = load(&Tree {
            main,
            sets: sets(),
            filters: Vec::new(),
        })
        .unwrap();
        println!("all nodes, depth {depth}: {verified:?} verified");
    }
    the_kernel_takes_sockets_programs_with_all_nodes();
    let deep = (0..10).fold(by_flow(), |main, _| Function::Inverse(Box::new(main)));
    assert_eq!(fanout_of(&program(deep)).err(), Some(EbpfError::TooDeep));
}

/// Loads steering programs that have all kinds of nodes except those that only XDP runs.
pub(super) fn the_kernel_takes_sockets_programs_with_all_nodes() {
    for depth in [0, 8] {
        let main = Function::Sequence(vec![rich(depth), Function::First(steers())]);
        let program = Tree {
            main,
            sets: sets(),
            filters: Vec::new(),
        };
        for object in [
            by_table(&program, GroupOptions::default()).unwrap(),
            by_table(&program, GroupOptions::sticky(65_536)).unwrap(),
            filter_of(&program, None).unwrap(),
        ] {
            let loaded = load_with(&object, &table()).unwrap_or_else(|error| panic!("{error}"));
            println!(
                "{} instructions, {} verified",
                object.instructions.len(),
                loaded.verified().unwrap()
            );
        }
    }
}

/// Grows a steering program until the compiler refuses it. The kernel must accept all smaller ones,
/// and there must be at least one that the compiler accepts.
fn grow(name: &str, sizes: &[usize], main: impl Fn(usize) -> Function) {
    let mut taken = 0;
    for &size in sizes {
        let program = Tree {
            main: main(size),
            sets: sets(),
            filters: Vec::new(),
        };
        match load(&program) {
            Ok(verified) => {
                taken += 1;
                let steps = by_table(&program, GroupOptions::default()).unwrap().steps();
                println!("{name}, {size}: {verified:?} verified, {steps} steps");
            }
            Err(error) => {
                println!("{name}, {size}: {error}");
                break;
            }
        }
    }
    assert!(taken > 0, "{name}");
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_kernel_takes_what_is_long() {
    let sizes = [10, 50, 100, 200, 400, 600, 800, 1000, 2000, 4000];
    let all = predicates();
    let each = |number: usize| all[number % all.len()].clone();
    grow("a row of conditions", &sizes, |size| {
        Function::Sequence((0..size).map(|number| choice(each(number))).collect())
    });
    grow("alternatives", &sizes, |size| {
        let one = |number| {
            Function::Sequence(vec![
                Function::If(
                    Box::new(each(number)),
                    Box::new(Function::Pass),
                    Box::new(Function::Drop),
                ),
                Function::Steer(Steer::To(u32::try_from(number).unwrap())),
            ])
        };
        Function::First((0..size).map(one).collect())
    });
    grow("one disjunction", &sizes, |size| {
        let any = (0..size)
            .map(each)
            .reduce(|sum, next| Predicate::Or(Box::new(next), Box::new(sum)));
        choice(any.unwrap())
    });
    grow("ports", &sizes, |size| {
        let port = |number| Predicate::Port(Side::Either, u16::try_from(number).unwrap());
        let any = (0..size).map(port).reduce(|sum, next| {
            Predicate::And(Box::new(Predicate::Not(Box::new(next))), Box::new(sum))
        });
        choice(any.unwrap())
    });
    grow("steering", &sizes, |size| {
        let steers = steers();
        let one = |number: usize| {
            let steer = steers[number % steers.len()].clone();
            Function::If(
                Box::new(each(number)),
                Box::new(inner(steer)),
                Box::new(Function::Pass),
            )
        };
        Function::Sequence((0..size).map(one).collect())
    });
    grow("members", &sizes, |size| {
        let to = |number| {
            let port = Predicate::Port(Side::Either, u16::try_from(number).unwrap());
            let member = Function::Steer(Steer::To(u32::try_from(number).unwrap()));
            Function::If(port.into(), member.into(), Function::Pass.into())
        };
        let members = (0..size).map(to);
        Function::Sequence([by_flow()].into_iter().chain(members).collect())
    });
    grow("counters", &sizes, |size| {
        Function::Sequence((0..size).map(|_| Function::Count(1, 1)).collect())
    });
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_kernel_takes_what_is_deep() {
    let sizes = [2, 5, 8, 9, 20, 100, 300, 390, 1000];
    grow("exclusive or", &sizes, |size| {
        let all = predicates();
        let each = |number: usize| all[number % all.len()].clone();
        choice(
            (0..size)
                .map(each)
                .reduce(|sum, next| Predicate::Xor(Box::new(next), Box::new(sum)))
                .unwrap(),
        )
    });
    grow("exclusive or, to the left", &sizes, |size| {
        let all = predicates();
        let each = |number: usize| all[number % all.len()].clone();
        choice(
            (0..size)
                .map(each)
                .reduce(|sum, next| Predicate::Xor(Box::new(sum), Box::new(next)))
                .unwrap(),
        )
    });
    grow("conditions", &sizes, |size| {
        let mut main = by_flow();
        for number in 0..size {
            let predicate = Predicate::Port(Side::Either, u16::try_from(number).unwrap());
            main = Function::If(
                Box::new(predicate),
                Box::new(main),
                Box::new(Function::Drop),
            );
        }
        main
    });
    grow("inverses", &sizes, |size| {
        (0..size).fold(by_flow(), |main, _| Function::Inverse(Box::new(main)))
    });
}

/// Checks that the verifier visits each function only once, which needs type information. The
/// kernel also loads code without type information, so no other test would find that it is missing.
#[test]
#[ignore = "needs root: eBPF"]
fn functions_are_verified_once() {
    let site = |port| {
        let (port, flow) = (Predicate::Port(Side::Either, port), by_flow());
        Function::If(port.into(), flow.into(), Function::Pass.into())
    };
    let [ten, twenty] = [10, 20].map(|sites| {
        let main = Function::Sequence((0..sites).map(site).collect());
        load(&program(main)).unwrap()
    });
    for (twenty, ten) in twenty.into_iter().zip(ten) {
        assert!(
            (twenty - ten) / 10 < 1000,
            "instructions visited: {twenty} for twenty calls, {ten} for ten"
        );
    }
}
