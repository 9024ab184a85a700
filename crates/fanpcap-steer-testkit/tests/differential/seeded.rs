//! Checks that the comparison would find a bug in the code for the kernel. The test changes one
//! instruction at a time.

use fanpcap_bpf::Instruction;

use super::case::{Case, check};
use super::seed::Seed;
use super::side::{HOOKS, Hook};
use super::traffic::drawn;
use super::workers::pinned;
use super::written;

const PACKETS: usize = 5000;
/// Number of changed instructions in each program.
const MUTANTS: usize = 24;

/// Programs that together use most of the back ends.
const PROGRAMS: [&str; 4] = [
    "main = par3 (inner steer_flow) steer_link (steer_to 0)",
    "main = filter (is_tcp .&&. ip_ttl .< 65 .||. has_addr \"10.0.0.0/8\") >-> sample 2 3 >-> inc 1 >-> steer_key \"ip_src,ip_dst,vlan\"",
    "main = do\n  put_state 2\n  par (udp >-> filter (has_state 2) >-> steer_flow_6_tuple) (when (is_rtp .||. vlan_id [1, 2]) (inc 3) >-> ip >-> steer_p2p)",
    "main = do\n  when (is_udp .||. is_icmp) (classify 4 >-> mark 5)\n  when is_tcp kernel\n  inv (filter is_frag >-> kernel)\n  \
     par3 (filter (has_mark 5 .&&. has_port 53) >-> double_steer_ip) (filter (ip_ttl .> 64) >-> broadcast) (vlan >-> steer_to 3)",
];

pub(crate) fn case(source: &str, hooks: &'static [Hook]) -> Case {
    Case {
        hooks,
        ..written::case(source, &drawn(1 << 32, PACKETS).shots)
    }
}

/// A mutant of the instruction: its operand is greater by one, its condition is inverted, or it
/// reads or writes at the next offset. `None` if the test does not change such an instruction.
fn changed(instruction: Instruction) -> Option<Instruction> {
    let code = instruction.code();
    let more = instruction.with_immediate(instruction.immediate().wrapping_add(1));
    match (code & 7, code & 0xf0) {
        // Loads and stores, except wide constants.
        (1..=3, _) => {
            let size = match code & 0x18 {
                0x10 => 1,
                0x08 => 2,
                0x00 => 4,
                _ => 8,
            };
            Some(instruction.with_offset(instruction.offset() + size))
        }
        // Increments the constant of arithmetic instructions, except byte swaps.
        (4 | 7, op) if code & 8 == 0 && op != 0xd0 => Some(more),
        // Swaps equal with not equal, greater with not greater, less with not less.
        (5 | 6, 0x10 | 0x50) => Some(with_code(instruction, code ^ 0x40)),
        (5 | 6, 0x20 | 0xb0) => Some(with_code(instruction, code ^ 0x90)),
        (5 | 6, 0x30 | 0xa0) => Some(with_code(instruction, code ^ 0x90)),
        _ => None,
    }
}

fn with_code(instruction: Instruction, code: u8) -> Instruction {
    let (target, source) = (instruction.target(), instruction.source());
    Instruction::new(
        code,
        target,
        source,
        instruction.offset(),
        instruction.immediate(),
    )
}

/// Results of the mutants of all programs at one hook.
#[derive(Debug, Default)]
struct Found {
    found: usize,
    /// Mutants that the verifier refuses.
    refused: usize,
    /// Mutants whose instruction no packet reaches. If a detour replaces the instruction and
    /// changes no result, no packet has reached it.
    not_run: usize,
    survivors: Vec<String>,
}

fn mutants(hook: Hook) -> Found {
    let cpu = pinned();
    let mut all = Found::default();
    for source in PROGRAMS {
        let case = case(source, hook.alone());
        assert!(check(&case, cpu, &Seed::None).is_ok(), "{source}");
        let Ok(Some(object)) = hook.object(&case.program) else {
            continue;
        };
        let code = &object.instructions;
        let changes = code.iter().enumerate().filter_map(|(at, &instruction)| {
            let is_second_half = at > 0 && code[at - 1].code() == 0x18;
            Some((at, changed(instruction)?)).filter(|_| !is_second_half)
        });
        let changes: Vec<_> = changes.collect();
        for &(at, instruction) in changes.iter().step_by(changes.len().div_ceil(MUTANTS)) {
            let detour =
                detour(code, at).map(|jump| check(&case, cpu, &Seed::Code(hook, at, jump)));
            if !matches!(detour, Some(Err(difference)) if difference.is_taken) {
                all.not_run += 1;
                continue;
            }
            match check(&case, cpu, &Seed::Code(hook, at, instruction)) {
                Err(difference) if difference.is_taken => all.found += 1,
                Err(_) => all.refused += 1,
                Ok(_) => all.survivors.push(line(&object.listing(), at)),
            }
        }
    }
    all
}

/// A jump to the function's end, in place of an instruction. It shows whether any packet reaches
/// the instruction. The jump has a condition that always holds, because the verifier requires every
/// instruction to be reachable.
fn detour(code: &[Instruction], at: usize) -> Option<Instruction> {
    let calls = code.iter().enumerate();
    let calls = calls.filter(|(_, call)| call.code() == CALL && call.source() == OF_PROGRAM);
    let starts = calls.filter_map(|(from, call)| {
        (from + 1).checked_add_signed(isize::try_from(call.immediate()).ok()?)
    });
    let end = starts
        .filter(|&start| start > at)
        .min()
        .unwrap_or(code.len());
    let last = (at + 1..end)
        .rev()
        .find(|&place| code[place].code() == EXIT)?;
    let distance = i16::try_from(last.checked_sub(at + 2)?).ok()?;
    Some(Instruction::new(JUMP_UNEQUAL, FRAME, 0, distance, 0))
}

/// Parts of instructions: the codes BPF_JMP | BPF_CALL, BPF_JMP | BPF_EXIT and BPF_JMP | BPF_JNE;
/// the source register by which a call means a function of the BPF program; and the register with
/// the address of the stack frame, which is never 0.
const CALL: u8 = 0x85;
const OF_PROGRAM: u8 = 1;
const EXIT: u8 = 0x95;
const JUMP_UNEQUAL: u8 = 0x55;
const FRAME: u8 = 10;

/// The line of an instruction in a listing.
fn line(listing: &str, at: usize) -> String {
    let mut lines = listing.lines();
    let is_at = |line: &&str| line.trim_start().starts_with(&format!("{at}:"));
    lines.find(is_at).unwrap_or_default().to_owned()
}

/// Tests that take too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn bugs_in_the_code_are_found() {
        for hook in HOOKS {
            let found = mutants(hook);
            let left = found.survivors.len();
            println!(
                "{hook:?}: {} found, {} refused by the kernel, {left} not found; no packet reaches {} others:",
                found.found, found.refused, found.not_run
            );
            found
                .survivors
                .iter()
                .for_each(|line| println!("  -{line}"));
            // Some mutants behave like the original, so no test can find them.
            assert!(found.found >= 10, "{hook:?}");
        }
    }
}
