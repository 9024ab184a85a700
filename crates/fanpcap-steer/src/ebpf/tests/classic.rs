//! Classic programs: as predicates, and as a user's own filter.

use super::frames::*;
use super::*;

const fn one(code: u16, jt: u8, jf: u8, k: u32) -> Classic {
    Classic { code, jt, jf, k }
}

/// `udp dst port 2222`, as libpcap makes it.
fn port_filter() -> Vec<Classic> {
    vec![
        one(0x28, 0, 0, 12),
        one(0x15, 0, 8, 0x0800),
        one(0x30, 0, 0, 23),
        one(0x15, 0, 6, 17),
        one(0x28, 0, 0, 20),
        one(0x45, 4, 0, 0x1fff),
        one(0xb1, 0, 0, 14),
        one(0x48, 0, 0, 16),
        one(0x15, 0, 1, 2222),
        one(0x06, 0, 0, 262_144),
        one(0x06, 0, 0, 0),
    ]
}

/// What a program returns as a user's filter of a frame.
fn user(code: &[Classic], frame: &[u8]) -> u32 {
    let loaded = Loaded::load(
        &filter_of(&program(Function::Pass), Some(code)).unwrap(),
        "test",
    )
    .unwrap();
    loaded.run(frame).unwrap()
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_pcap_filter_is_a_predicate() {
    let both = Predicate::And(
        Box::new(Predicate::Pcap(0)),
        Box::new(Predicate::Not(Box::new(Predicate::Pcap(1)))),
    );
    let all = All::of(&with_filter(choice(both), port_filter()));
    assert_eq!(all.run(&udp4()), 1);
    assert_eq!(all.run(&tcp4()), 2);
    assert_eq!(all.run(&udp6()), 2);
    assert_eq!(all.run(&udp4()[..37]), 2);
    let inside = All::of(&with_filter(
        inner(choice(Predicate::Pcap(0))),
        port_filter(),
    ));
    let carried = ethernet(0x0800, &v4(4, 0, &udp4()[14..]));
    assert_eq!(inside.run(&carried), 2, "it sees the whole frame");
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_users_filter_comes_behind_the_program() {
    let main = Function::If(
        Box::new(Predicate::Port(crate::ir::Side::Source, 1111)),
        Box::new(Function::Pass),
        Box::new(Function::Drop),
    );
    let loaded = Loaded::load(
        &filter_of(&program(main), Some(&port_filter())).unwrap(),
        "test",
    )
    .unwrap();
    assert_eq!(loaded.run(&udp4()).unwrap(), 262_144);
    assert_eq!(loaded.run(&tcp4()).unwrap(), 0);
    let other = ethernet(0x0800, &v4(17, 0, &udp(1112, 2222, &[])));
    assert_eq!(loaded.run(&other).unwrap(), 0);
    // It has its registers for itself.
    let kept = [one(0x00, 0, 0, 7), one(0xb1, 0, 0, 14), one(0x16, 0, 0, 0)];
    let web = Function::If(
        Box::new(Predicate::Port(crate::ir::Side::Source, 1111)),
        Box::new(Function::Pass),
        Box::new(Function::Drop),
    );
    let loaded = filter_of(&program(web), Some(&kept)).unwrap();
    assert_eq!(load(&loaded).run(&udp4()).unwrap(), 7);
}

#[test]
#[ignore = "needs root: eBPF"]
fn operations_are_as_the_interpreter_has_them() {
    let a = 0x8765_4321_u32;
    let of = |code: u16, k: u32| {
        user(
            &[one(0x00, 0, 0, a), one(code, 0, 0, k), one(0x16, 0, 0, 0)],
            &udp4(),
        )
    };
    for (code, k, expected) in [
        (0x04, 0x8000_0000, a.wrapping_add(0x8000_0000)),
        (0x14, 0xffff_ffff, a.wrapping_add(1)),
        (0x24, 0x1_0001, a.wrapping_mul(0x1_0001)),
        (0x34, 0xffff, a / 0xffff),
        (0x94, 0xffff_fff1, a % 0xffff_fff1),
        (0x44, 0xf, a | 0xf),
        (0x54, 0xffff_0000, a & 0xffff_0000),
        (0xa4, 0xffff_ffff, !a),
        (0x64, 4, a << 4),
        (0x74, 4, a >> 4),
        (0x64, 36, a << 4),
        (0x84, 0, a.wrapping_neg()),
    ] {
        assert_eq!(of(code, k), expected, "{code:#x} {k:#x}");
        // The same by X.
        let by_x = [
            one(0x01, 0, 0, k),
            one(0x00, 0, 0, a),
            one(code | 8, 0, 0, 0),
            one(0x16, 0, 0, 0),
        ];
        if code != 0x84 {
            assert_eq!(user(&by_x, &udp4()), expected, "{code:#x} by X {k:#x}");
        }
    }
    let divided = [one(0x00, 0, 0, 7), one(0x3c, 0, 0, 0), one(0x06, 0, 0, 9)];
    assert_eq!(user(&divided, &udp4()), 0, "by zero");
}

#[test]
#[ignore = "needs root: eBPF"]
fn loads_are_of_the_frame() {
    let of = |code: u16, k: u32| {
        user(
            &[
                one(0x01, 0, 0, 14),
                one(code, 0, 0, k),
                one(0x04, 0, 0, 1),
                one(0x16, 0, 0, 0),
            ],
            &udp4(),
        )
    };
    let len = u32::try_from(udp4().len()).unwrap();
    for (code, k, expected) in [
        (0x20, 26, 0x0a00_0001),
        (0x28, 12, 0x0800),
        (0x30, 14, 0x45),
        (0x40, 12, 0x0a00_0001),
        (0x48, 20, 1111),
        (0x50, 9, 17),
        (0x80, 0, len),
        (0x30, len - 1, 0),
        (0x28, 0xffff_f000, 0x0800),
        (0x30, 0xfff0_0000, 0x45),
        (0x28, 0xffe0_0000 + 12, 0x0800),
        (0x20, 0xffff_f000 + 48, 0),
        (0x20, 0xffff_f000 + 28, 1),
    ] {
        assert_eq!(of(code, k), expected + 1, "{code:#x} {k:#x}");
    }
    for (code, k) in [
        (0x30, len),
        (0x20, len - 3),
        (0x40, len - 17),
        (0x50, 0x7fff_ffff),
        (0x20, 0x7fff_ffff),
    ] {
        assert_eq!(of(code, k), 0, "{code:#x} {k:#x}");
    }
    let memory = [
        one(0x00, 0, 0, 5),
        one(0x02, 0, 0, 3),
        one(0x01, 0, 0, 6),
        one(0x03, 0, 0, 15),
        one(0x60, 0, 0, 15),
        one(0x61, 0, 0, 3),
        one(0x0c, 0, 0, 0),
        one(0x61, 0, 0, 9),
        one(0x0c, 0, 0, 0),
        one(0x07, 0, 0, 0),
        one(0x87, 0, 0, 0),
        one(0x16, 0, 0, 0),
    ];
    assert_eq!(user(&memory, &udp4()), 11);
}

#[test]
fn what_is_no_filter_is_refused() {
    for (code, why) in [
        (vec![one(0x00, 0, 0, 1)], "it has no end"),
        (vec![], "it has no end"),
        (
            vec![one(0x15, 0, 5, 1), one(0x06, 0, 0, 0)],
            "it jumps out of the filter",
        ),
        (
            vec![one(0x05, 0, 0, u32::MAX), one(0x06, 0, 0, 0)],
            "it jumps out of the filter",
        ),
        (
            vec![one(0xff, 0, 0, 1), one(0x06, 0, 0, 0)],
            "it is unknown",
        ),
        (
            vec![one(0x34, 0, 0, 0), one(0x06, 0, 0, 0)],
            "it divides by zero",
        ),
        (
            vec![one(0x60, 0, 0, 16), one(0x06, 0, 0, 0)],
            "it has no such memory",
        ),
        (
            vec![one(0x20, 0, 0, 0xffff_f034), one(0x06, 0, 0, 0)],
            "an eBPF program can't ask the kernel for that",
        ),
    ] {
        let refused = filter_of(&program(Function::Pass), Some(&code)).unwrap_err();
        assert!(
            matches!(refused, EbpfError::Filter { why: said, .. } if said == why),
            "{refused}"
        );
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn the_longest_filters_are_taken_or_refused() {
    for count in [100, 400, 800, 1600, 3200] {
        // A row of questions, each with a way out.
        let mut code = Vec::new();
        for number in 0..count {
            code.push(one(0x28, 0, 0, number % 60));
            code.push(one(0x15, 0, 1, number));
            code.push(one(0x06, 0, 0, 1));
        }
        code.push(one(0x06, 0, 0, 0));
        let program = with_filter(choice(Predicate::Pcap(0)), code);
        for object in [
            fanout_of(&program),
            filter_of(&program, None),
            xdp_decision(&program),
        ] {
            match object {
                Ok(object) => {
                    let loaded = Loaded::load(&object, "test")
                        .unwrap_or_else(|error| panic!("{count}: {error}"));
                    println!(
                        "{count}: {} instructions, {} verified",
                        object.instructions.len(),
                        loaded.verified().unwrap()
                    );
                }
                Err(error) => println!("{count}: {error}"),
            }
        }
    }
}
