//! Checks that the comparison would find a bug in the code that looks up slots in the group's
//! table.

use fanpcap_bpf::Instruction;
use fanpcap_buckets::layout::{RANK_COUNT, RANKS};

use super::case::check;
use super::seed::Seed;
use super::seeded::case;
use super::side::Hook;
use super::workers::pinned;

/// Each bug: its name, a steering program that shows the bug, the right operand of an instruction,
/// and the wrong operand that replaces it.
const BUGS: [(&str, &str, [usize; 2]); 7] = [
    ("half of the buckets", "steer_flow", [0xfff, 0x7ff]),
    ("a row has four bytes", "steer_flow", [56, 24]),
    (
        "a number is a hash",
        "steer_cpu",
        [0x7fff_ffff, 0xffff_ffff],
    ),
    ("half of the ranks", "steer_to 255", [0xff, 0x7f]),
    ("ranks begin later", "steer_rrobin", [RANKS, RANKS + 1]),
    (
        "the number of ranks is elsewhere",
        "steer_to 300",
        [RANK_COUNT / 8, RANK_COUNT / 8 + 1],
    ),
    (
        "the sign bit counts",
        "steer_to 7",
        [0x7fff_ffff, 0x7fff_fffe],
    ),
];

/// The places of the instructions with this operand.
fn places(code: &[Instruction], operand: i32) -> Vec<usize> {
    let all = code.iter().enumerate();
    let has = all.filter(|(_, instruction)| instruction.immediate() == operand);
    has.map(|(at, _)| at).collect()
}

#[test]
#[ignore = "needs root: eBPF"]
fn wrong_slots_are_found() {
    let cpu = pinned();
    for (what, source, operands) in BUGS {
        let [right, wrong] = operands.map(|operand| u32::try_from(operand).unwrap() as i32);
        let case = case(source, Hook::Fanout.alone());
        assert!(check(&case, cpu, &Seed::None).is_ok(), "{source}");
        let object = Hook::Fanout.object(&case.program).unwrap().unwrap();
        let code = &object.instructions;
        let mut found = places(code, right).into_iter().filter(|&at| {
            let bug = Seed::Code(Hook::Fanout, at, code[at].with_immediate(wrong));
            check(&case, cpu, &bug).is_err_and(|difference| difference.is_taken)
        });
        assert!(found.next().is_some(), "{what}: not found with {source}");
    }
}
