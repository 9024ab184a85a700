//! Compares our interpreter of classic BPF with the interpreter of the system's library. For any
//! BPF program and any packet, both must return the same result.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "lengths are below 100, and a test may panic"
)]

use fanpcap_bpf::Classic;
use fanpcap_bpf::classic::ancillary::*;
use fanpcap_bpf::classic::opcode::*;
use fanpcap_pcap::System;
use fanpcap_reader::filter::{LinkInfo, View};
use proptest::prelude::*;
use std::sync::OnceLock;

fn system() -> &'static System {
    static SYSTEM: OnceLock<System> = OnceLock::new();
    SYSTEM.get_or_init(|| System::find(None))
}

fn view(data: &[u8], wire_len: u32) -> View<'_> {
    View {
        data,
        is_tag_inside: false,
        wire_len,
        link: LinkInfo {
            protocol: 0x86dd,
            pkttype: 4,
            ifindex: 7,
            hatype: 1,
        },
        vlan: Some((0x88a8, 0x6005)),
    }
}

/// All operations that the system's library implements. The library aborts the process at any other
/// operation.
const CODES: [u16; 49] = [
    0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x00, 0x60, 0x80, 0x01, 0x61, 0x81, 0xb1, 0x02, 0x03, 0x04,
    0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x34, 0x3c, 0x44, 0x4c, 0x54, 0x5c, 0x64, 0x6c, 0x74, 0x7c, 0x84,
    0x94, 0x9c, 0xa4, 0xac, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d, 0x06, 0x16, 0x07,
    0x87,
];

fn instruction(codes: impl Strategy<Value = u16>) -> impl Strategy<Value = Classic> {
    let operands = prop_oneof![0..16_u32, 0..80_u32, any::<u32>()];
    (codes, 0..6_u8, 0..6_u8, operands).prop_map(|(code, jt, jf, k)| Classic { code, jt, jf, k })
}

proptest! {
    #![proptest_config(ProptestConfig { max_global_rejects: 10_000_000, ..ProptestConfig::default() })]

    #[test]
    fn programs_that_libpcap_takes_answer_as_there(
        mut program in proptest::collection::vec(instruction(proptest::sample::select(&CODES)), 1..20),
        answer in any::<u32>(),
        data in proptest::collection::vec(any::<u8>(), 0..80),
        cut in 0..100_u32,
    ) {
        // A BPF program must end with a return.
        program.push(Classic::keep(answer));
        // Leave out ancillary loads, which have a test of their own. The library's interpreter
        // treats them as loads from outside the packet.
        program.retain(|instruction| instruction.code & CLASS != LD || instruction.k < SKF_AD_OFF);
        // Leave out shifts by 32 or more bits. They are undefined in C, and the kernel refuses
        // them.
        for shift in program.iter_mut().filter(|instruction| matches!(instruction.code, ALU_LSH_K | ALU_RSH_K)) {
            shift.k %= 32;
        }
        // The library does not clear its scratch memory, so the BPF program clears it first.
        let cleared = (0..16).map(|k| Classic::new(ST, k));
        program.splice(0..0, cleared);
        let (filter, validate) = (system().bpf_filter.unwrap(), system().bpf_validate.unwrap());
        let len = i32::try_from(program.len()).unwrap();
        // SAFETY: `program` has `len` instructions.
        prop_assume!(unsafe { validate(program.as_ptr(), len) } != 0);
        let wire_len = data.len() as u32 + cut;
        // SAFETY: the program is valid, and `data` has the given length.
        let theirs =
            unsafe { filter(program.as_ptr(), data.as_ptr(), wire_len, data.len() as u32) };
        prop_assert_eq!(view(&data, wire_len).filtered(&program), theirs);
    }

    #[test]
    fn any_program_ends_without_a_panic(
        program in proptest::collection::vec(instruction(0..0x200_u16), 0..40),
        data in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        view(&data, 80).filtered(&program);
    }
}

/// The kernel refuses a filter with an undefined instruction (core/filter.c, `bpf_check_classic`).
/// Our interpreter must reject the packet then.
#[test]
fn what_neither_libpcap_nor_the_kernel_defines_rejects_the_packet() {
    for code in (0..=u16::MAX).filter(|code| !CODES.contains(code)) {
        let program = [Classic::new(code, 1), Classic::keep(9), Classic::keep(9)];
        assert_eq!(view(&[0; 60], 60).filtered(&program), 0, "{code:#x}");
    }
}

#[test]
fn ancillary_loads_answer_as_the_kernel_does() {
    let loaded = |offset: u32| {
        let code = [
            Classic::new(LD_W_ABS, SKF_AD_OFF + offset),
            Classic::new(RET_A, 0),
        ];
        view(&[1, 2, 3, 4], 4).filtered(&code)
    };
    assert_eq!(loaded(SKF_AD_PROTOCOL), 0x86dd);
    assert_eq!(loaded(SKF_AD_PKTTYPE), 4);
    assert_eq!(loaded(SKF_AD_IFINDEX), 7);
    assert_eq!(loaded(SKF_AD_HATYPE), 1);
    assert_eq!(loaded(SKF_AD_VLAN_TAG), 0x6005);
    assert_eq!(loaded(SKF_AD_VLAN_TAG_PRESENT), 1);
    assert_eq!(loaded(SKF_AD_VLAN_TPID), 0x88a8);
    assert_eq!(
        loaded(SKF_AD_MARK),
        0,
        "the reader does not have the mark: rejected"
    );
}
