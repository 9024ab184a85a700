//! Checks that pcap filters in steering programs read a frame with its tag in the frame's bytes, as
//! the reader's filters do.

use fanpcap_bpf::classic::opcode::*;
use fanpcap_bpf::{Classic, Shifts, run};
use fanpcap_reader::filter::{LinkInfo, View};
use fanpcap_steer::ir::{Filter, Function, Predicate, Steer, Tree};
use fanpcap_steer::native::{Decision, Evaluator};
use fanpcap_steer_testkit::{Draw, Made, packet, programs};
use proptest::collection::vec;
use proptest::prelude::*;

/// Whether a program that only runs the filter accepts the packet.
fn ours(code: &[Classic], made: &Made) -> bool {
    let program = Tree {
        main: Function::If(
            Box::new(Predicate::Pcap(0)),
            Box::new(Function::Steer(Steer::To(1))),
            Box::new(Function::Drop),
        ),
        sets: Vec::new(),
        filters: vec![Filter {
            text: String::new(),
            code: code.to_vec(),
        }],
    };
    Evaluator::new(&program).decide(&made.packet(0)) == Decision::Member(1)
}

fn theirs(code: &[Classic], made: &Made) -> bool {
    let mut data = made.bytes.clone();
    let mut wire_len = made.length;
    if let Some(tag) = made.tag.filter(|_| data.len() >= 14) {
        let bytes = [tag.tpid.to_be_bytes(), tag.tci.to_be_bytes()].concat();
        data.splice(12..12, bytes);
        wire_len += 4;
    }
    let view = View {
        data: &data,
        is_tag_inside: false,
        wire_len,
        link: LinkInfo {
            protocol: 0,
            pkttype: 0,
            ifindex: 0,
            hatype: 0,
        },
        vlan: None,
    };
    run(code, &view, Shifts::Modulo) != 0
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn filters_take_what_the_engine_takes(tape in vec(any::<u8>(), 200), made in packet()) {
        let code = programs::classic(&mut Draw::new(&tape));
        prop_assert_eq!(ours(&code, &made), theirs(&code, &made), "{:#?}", code);
    }

    #[test]
    fn any_instructions_end_without_a_panic(
        code in vec((0..0x200_u16, 0..6_u8, 0..6_u8, any::<u32>()), 0..40),
        made in packet(),
    ) {
        let code: Vec<Classic> = code
            .into_iter()
            .map(|(code, jt, jf, k)| Classic { code, jt, jf, k })
            .collect();
        ours(&code, &made);
    }
}

#[test]
fn shifts_are_the_kernels() {
    let made = Made::default();
    let op = Classic::new;
    // The filter computes A = 1; X = 33; A <<= X. It must return 2, not 0, because shifts use only
    // the lower 5 bits of X.
    let code = [
        op(LD_IMM, 1),
        op(LDX_IMM, 33),
        op(ALU_LSH_K | X, 0),
        op(RET_A, 0),
    ];
    assert!(ours(&code, &made));
}
