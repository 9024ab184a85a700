//! The root: the BPF program of a device that serves several groups.

use crate::layout::{self, BERTHS, settings};
use fanpcap_bpf::assembler::{
    Assembler, AssemblerError, If, Label, Op, R0, R1, R2, R3, R6, R7, R8, R9, R10, Width,
};
use fanpcap_bpf::{Object, ProgramKind};

/// The indices of the maps.
const SETTINGS: usize = 0;
const STAMP: usize = 1;
const PROGRAMS: usize = 2;

/// The stack: a key of 0.
const NOUGHT: i16 = -4;

/// The BPF program for the groups whose bit is set in `berths`. It takes one stamp for all groups
/// and has each of them run by a tail call from a BPF function. Their results say what the host
/// gets of the packet: it gets the packet if one of them says so, or if the settings do.
pub(crate) fn root(berths: u32) -> Result<Object, AssemblerError> {
    let maps = vec![layout::settings_row(), layout::stamp(), layout::programs()];
    let mut asm = Assembler::new();
    let done = asm.label();
    asm.set(R6, R1);
    asm.set(R7, 0);
    let groups: Vec<(u32, Label)> = (0..BERTHS)
        .filter(|berth| berths & (1 << berth) != 0)
        .map(|berth| (berth, asm.label()))
        .collect();
    if !groups.is_empty() {
        call_all(&mut asm, &groups, done);
    }
    asm.bind(done);
    verdict(&mut asm);
    for (berth, group) in groups {
        asm.bind(group);
        asm.map(R2, PROGRAMS);
        asm.set(R3, berth as i32);
        asm.call(TAIL_CALL);
        asm.set(R0, 0);
        asm.exit();
    }
    asm.finish(ProgramKind::Xdp, maps)
}

/// Has all groups run, and puts what they say into r7. The stamp is only there meanwhile: without
/// it a group's BPF program returns a verdict for the kernel.
fn call_all(asm: &mut Assembler, groups: &[(u32, Label)], failed: Label) {
    asm.store(Width::Word, R10, NOUGHT, 0);
    asm.map(R1, STAMP);
    asm.set(R2, R10);
    asm.alu(Op::Add, R2, i32::from(NOUGHT));
    asm.call(MAP_LOOKUP);
    asm.jump_if(If::Equal, R0, 0, failed);
    asm.set(R9, R0);
    asm.call(KTIME_GET_NS);
    asm.store(Width::Double, R9, 0, R0);
    for &(_, group) in groups {
        asm.set(R1, R6);
        asm.set(R2, 0);
        asm.set(R3, 0);
        asm.call_function(group);
        asm.alu(Op::Or, R7, R0);
    }
    asm.set(R8, 0);
    asm.store(Width::Double, R9, 0, R8);
}

/// Returns the verdict for the kernel.
fn verdict(asm: &mut Assembler) {
    let unsaid = asm.label();
    asm.jump_if(If::Equal, R7, 0, unsaid);
    asm.set(R0, XDP_PASS);
    asm.exit();
    asm.bind(unsaid);
    asm.value(R1, SETTINGS, settings::VERDICT.into());
    asm.load(Width::Word, R0, R1, 0);
    asm.exit();
}

// linux/bpf.h, enum xdp_action and enum bpf_func_id.
const XDP_PASS: i32 = 2;
const MAP_LOOKUP: i32 = 1;
const KTIME_GET_NS: i32 = 5;
const TAIL_CALL: i32 = 12;
