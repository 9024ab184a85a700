//! Checks classic BPF programs as predicates, and as a user's own filter.

use super::frames::*;
use super::*;
use fanpcap_bpf::classic::ancillary::*;
use fanpcap_bpf::classic::opcode::*;

/// `udp dst port 2222`, as libpcap compiles it.
fn port_filter() -> Vec<Classic> {
    vec![
        Classic::new(LD_H_ABS, 12),
        Classic::jump(JMP_JEQ_K, 0x0800, 0, 8),
        Classic::new(LD_B_ABS, 23),
        Classic::jump(JMP_JEQ_K, 17, 0, 6),
        Classic::new(LD_H_ABS, 20),
        Classic::jump(JMP_JSET_K, 0x1fff, 4, 0),
        Classic::new(LDX_B_MSH, 14),
        Classic::new(LD_H_IND, 16),
        Classic::jump(JMP_JEQ_K, 2222, 0, 1),
        Classic::keep(262_144),
        Classic::keep(0),
    ]
}

/// The number that a classic BPF program returns for a frame if it is the user's filter.
fn user(code: &[Classic], frame: &[u8]) -> u32 {
    let loaded = Loaded::load_apart(
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
    assert_eq!(inside.run(&carried), 2, "the filter reads the whole frame");
}

#[test]
#[ignore = "needs root: eBPF"]
fn a_users_filter_comes_behind_the_program() {
    let main = Function::If(
        Box::new(Predicate::Port(crate::ir::Side::Source, 1111)),
        Box::new(Function::Pass),
        Box::new(Function::Drop),
    );
    let loaded = Loaded::load_apart(
        &filter_of(&program(main), Some(&port_filter())).unwrap(),
        "test",
    )
    .unwrap();
    assert_eq!(loaded.run(&udp4()).unwrap(), 262_144);
    assert_eq!(loaded.run(&tcp4()).unwrap(), 0);
    let other = ethernet(0x0800, &v4(17, 0, &udp(1112, 2222, &[])));
    assert_eq!(loaded.run(&other).unwrap(), 0);
    // No other code changes the registers of the user's filter: A stays 7 while X is loaded.
    let kept = [
        Classic::new(LD_IMM, 7),
        Classic::new(LDX_B_MSH, 14),
        Classic::new(RET_A, 0),
    ];
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
            &[
                Classic::new(LD_IMM, a),
                Classic::new(code, k),
                Classic::new(RET_A, 0),
            ],
            &udp4(),
        )
    };
    for (code, k, expected) in [
        (ALU_ADD_K, 0x8000_0000, a.wrapping_add(0x8000_0000)),
        (ALU_SUB_K, 0xffff_ffff, a.wrapping_add(1)),
        (ALU_MUL_K, 0x1_0001, a.wrapping_mul(0x1_0001)),
        (ALU_DIV_K, 0xffff, a / 0xffff),
        (ALU_MOD_K, 0xffff_fff1, a % 0xffff_fff1),
        (ALU_OR_K, 0xf, a | 0xf),
        (ALU_AND_K, 0xffff_0000, a & 0xffff_0000),
        (ALU_XOR_K, 0xffff_ffff, !a),
        (ALU_LSH_K, 4, a << 4),
        (ALU_RSH_K, 4, a >> 4),
        (ALU_LSH_K, 36, a << 4),
        (ALU_NEG, 0, a.wrapping_neg()),
    ] {
        assert_eq!(of(code, k), expected, "{code:#x} {k:#x}");
        // The same operation, with the operand in X.
        let by_x = [
            Classic::new(LDX_IMM, k),
            Classic::new(LD_IMM, a),
            Classic::new(code | X, 0),
            Classic::new(RET_A, 0),
        ];
        if code != ALU_NEG {
            assert_eq!(user(&by_x, &udp4()), expected, "{code:#x} by X {k:#x}");
        }
    }
    let divided = [
        Classic::new(LD_IMM, 7),
        Classic::new(ALU_DIV_K | X, 0),
        Classic::keep(9),
    ];
    assert_eq!(user(&divided, &udp4()), 0, "by zero");
}

#[test]
#[ignore = "needs root: eBPF"]
fn loads_are_of_the_frame() {
    let of = |code: u16, k: u32| {
        user(
            &[
                Classic::new(LDX_IMM, 14),
                Classic::new(code, k),
                Classic::new(ALU_ADD_K, 1),
                Classic::new(RET_A, 0),
            ],
            &udp4(),
        )
    };
    let len = u32::try_from(udp4().len()).unwrap();
    for (code, k, expected) in [
        (LD_W_ABS, 26, 0x0a00_0001),
        (LD_H_ABS, 12, 0x0800),
        (LD_B_ABS, 14, 0x45),
        (LD_W_IND, 12, 0x0a00_0001),
        (LD_H_IND, 20, 1111),
        (LD_B_IND, 9, 17),
        (LD_W_LEN, 0, len),
        (LD_B_ABS, len - 1, 0),
        (LD_H_ABS, SKF_AD_OFF + SKF_AD_PROTOCOL, 0x0800),
        (LD_B_ABS, 0xfff0_0000, 0x45),
        (LD_H_ABS, 0xffe0_0000 + 12, 0x0800),
        (LD_W_ABS, SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT, 0),
        (LD_W_ABS, SKF_AD_OFF + SKF_AD_HATYPE, 1),
    ] {
        assert_eq!(of(code, k), expected + 1, "{code:#x} {k:#x}");
    }
    for (code, k) in [
        (LD_B_ABS, len),
        (LD_W_ABS, len - 3),
        (LD_W_IND, len - 17),
        (LD_B_IND, 0x7fff_ffff),
        (LD_W_ABS, 0x7fff_ffff),
    ] {
        assert_eq!(of(code, k), 0, "{code:#x} {k:#x}");
    }
    let memory = [
        Classic::new(LD_IMM, 5),
        Classic::new(ST, 3),
        Classic::new(LDX_IMM, 6),
        Classic::new(STX, 15),
        Classic::new(LD_MEM, 15),
        Classic::new(LDX_MEM, 3),
        Classic::new(ALU_ADD_K | X, 0),
        Classic::new(LDX_MEM, 9),
        Classic::new(ALU_ADD_K | X, 0),
        Classic::new(MISC_TAX, 0),
        Classic::new(MISC_TXA, 0),
        Classic::new(RET_A, 0),
    ];
    assert_eq!(user(&memory, &udp4()), 11);
}

#[test]
fn what_is_no_filter_is_refused() {
    for (code, why) in [
        (vec![Classic::new(LD_IMM, 1)], "a return is missing"),
        (vec![], "a return is missing"),
        (
            vec![Classic::jump(JMP_JEQ_K, 1, 0, 5), Classic::keep(0)],
            "it jumps out of the filter",
        ),
        (
            vec![Classic::new(JMP_JA, u32::MAX), Classic::keep(0)],
            "it jumps out of the filter",
        ),
        (
            vec![Classic::new(0xff, 1), Classic::keep(0)],
            "it is unknown",
        ),
        (
            vec![Classic::new(ALU_DIV_K, 0), Classic::keep(0)],
            "it divides by zero",
        ),
        (
            vec![Classic::new(LD_MEM, 16), Classic::keep(0)],
            "it uses memory beyond M[15]",
        ),
        (
            vec![
                Classic::new(LD_W_ABS, SKF_AD_OFF + SKF_AD_PAY_OFFSET),
                Classic::keep(0),
            ],
            "an eBPF program can't read this metadata",
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
        // A series of tests, each with an exit.
        let mut code = Vec::new();
        for number in 0..count {
            code.push(Classic::new(LD_H_ABS, number % 60));
            code.push(Classic::jump(JMP_JEQ_K, number, 0, 1));
            code.push(Classic::keep(1));
        }
        code.push(Classic::keep(0));
        let program = with_filter(choice(Predicate::Pcap(0)), code);
        for object in [
            fanout_of(&program),
            filter_of(&program, None),
            xdp_decision(&program),
        ] {
            match object {
                Ok(object) => {
                    let loaded = Loaded::load_apart(&object, "test")
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
