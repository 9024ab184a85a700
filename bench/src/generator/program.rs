//! The eBPF programs: one numbers a frame and sends it, the other lets the frame through.

use fanpcap_linux::bpf::{Instruction, Number};

use super::frame::{
    FIRST_PORT, FLOWS, IP_CHECKSUM, IP_ID, PAYLOAD, SOURCE_ADDRESS_LOW, SOURCE_PORT, header_sum,
};

/// Rewrites the frame that `template` becomes, by the next number, and redirects it to a device.
pub(crate) fn send(template: &[u8], ifindex: u32, next: &Number) -> Vec<Instruction> {
    let rewrite = [take_number(next), write_fields(template), redirect(ifindex)].concat();
    let headers = i32::try_from(PAYLOAD).unwrap_or(i32::MAX);
    let rewritten = i16::try_from(rewrite.len()).unwrap_or(i16::MAX);
    let mut code = vec![
        // The verifier wants to see that the headers are there.
        load_u32(DATA, CONTEXT, 0),
        load_u32(SCRATCH, CONTEXT, 4),
        copy(SUM, DATA),
        add(SUM, headers),
        skip_if_greater(SUM, SCRATCH, rewritten),
    ];
    code.extend(rewrite);
    code.extend([set(RESULT, XDP_DROP), exit()]);
    code
}

/// Only one core runs the program, so the number needs no atomic instruction.
fn take_number(next: &Number) -> Vec<Instruction> {
    let [address, address_high] = next.address(COUNTER);
    vec![
        address,
        address_high,
        load_u64(NUMBER, COUNTER, 0),
        copy(SCRATCH, NUMBER),
        add(SCRATCH, 1),
        store_u64(COUNTER, 0, SCRATCH),
        and(NUMBER, 0xffff),
    ]
}

/// The checksum is the template's sum with the number and the flow, folded twice.
fn write_fields(template: &[u8]) -> Vec<Instruction> {
    let mut code = vec![
        store_u16(DATA, IP_ID, NUMBER),
        set(SUM, i32::from(header_sum(template))),
        add_register(SUM, NUMBER),
        and(NUMBER, i32::from(FLOWS) - 1),
        store_u16(DATA, SOURCE_ADDRESS_LOW, NUMBER),
        add_register(SUM, NUMBER),
        add(NUMBER, i32::from(FIRST_PORT)),
        store_u16(DATA, SOURCE_PORT, NUMBER),
    ];
    for _ in 0..2 {
        code.extend([
            copy(SCRATCH, SUM),
            shift_right(SCRATCH, 16),
            and(SUM, 0xffff),
            add_register(SUM, SCRATCH),
        ]);
    }
    code.extend([exclusive_or(SUM, 0xffff), store_u16(DATA, IP_CHECKSUM, SUM)]);
    code
}

fn redirect(ifindex: u32) -> Vec<Instruction> {
    let ifindex = i32::try_from(ifindex).unwrap_or(0);
    vec![set(CONTEXT, ifindex), set(DATA, 0), call(REDIRECT), exit()]
}

/// Lets every frame through to the stack.
pub(crate) fn pass() -> Vec<Instruction> {
    vec![set(RESULT, XDP_PASS), exit()]
}

/// Registers: r0 is the result, r1 to r5 are a helper's arguments and lost when one is called.
const RESULT: u8 = 0;
const CONTEXT: u8 = 1;
const DATA: u8 = 2;
const SCRATCH: u8 = 3;
const SUM: u8 = 4;
const COUNTER: u8 = 5;
const NUMBER: u8 = 0;

/// enum xdp_action and bpf_func_id of linux/bpf.h.
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const REDIRECT: i32 = 23;

// Operation codes: Documentation/bpf/standardization/instruction-set.rst. All arithmetic has 64 bits.

fn load_u32(to: u8, at: u8, offset: i16) -> Instruction {
    Instruction::new(0x61, to, at, offset, 0)
}

fn load_u64(to: u8, at: u8, offset: i16) -> Instruction {
    Instruction::new(0x79, to, at, offset, 0)
}

fn store_u16(at: u8, offset: i16, from: u8) -> Instruction {
    Instruction::new(0x6b, at, from, offset, 0)
}

fn store_u64(at: u8, offset: i16, from: u8) -> Instruction {
    Instruction::new(0x7b, at, from, offset, 0)
}

fn set(to: u8, value: i32) -> Instruction {
    Instruction::new(0xb7, to, 0, 0, value)
}

fn copy(to: u8, from: u8) -> Instruction {
    Instruction::new(0xbf, to, from, 0, 0)
}

fn add(to: u8, value: i32) -> Instruction {
    Instruction::new(0x07, to, 0, 0, value)
}

fn add_register(to: u8, from: u8) -> Instruction {
    Instruction::new(0x0f, to, from, 0, 0)
}

fn and(to: u8, value: i32) -> Instruction {
    Instruction::new(0x57, to, 0, 0, value)
}

fn exclusive_or(to: u8, value: i32) -> Instruction {
    Instruction::new(0xa7, to, 0, 0, value)
}

fn shift_right(to: u8, bits: i32) -> Instruction {
    Instruction::new(0x77, to, 0, 0, bits)
}

fn skip_if_greater(left: u8, right: u8, instructions: i16) -> Instruction {
    Instruction::new(0x2d, left, right, instructions, 0)
}

fn call(helper: i32) -> Instruction {
    Instruction::new(0x85, 0, 0, 0, helper)
}

fn exit() -> Instruction {
    Instruction::new(0x95, 0, 0, 0, 0)
}
