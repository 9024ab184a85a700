//! The root: the BPF program that a device runs if it has several groups, or if tags are stored
//! beside its frames. The root runs the groups' BPF programs.

use crate::layout::{self, GROUP_SLOTS, settings};
use crate::tags::{self, Tags};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_bpf::{Object, ProgramKind};

const SETTINGS: usize = 0;
const STAMP: usize = 1;
const PROGRAMS: usize = 2;

/// Offsets on the stack: a key of 0, and whether a tag was put into the frame. [`tags`] uses the
/// next bytes of the stack.
const NOUGHT: i16 = -4;
const IS_TAGGED: i16 = -8;

/// Returns the root for the groups whose bits are set in `group_slots`. With `tags`, the root
/// inserts the tag that is stored beside a frame before the groups get the frame.
pub(crate) fn root(group_slots: u32, tags: Option<Tags>) -> Result<Object, AssemblerError> {
    let maps = vec![layout::settings_row(), layout::stamp(), layout::programs()];
    let mut asm = Assembler::new();
    let groups: Vec<(u32, Label)> = (0..GROUP_SLOTS)
        .filter(|group_slot| group_slots & (1 << group_slot) != 0)
        .map(|group_slot| (group_slot, asm.label()))
        .collect();
    asm.set(R6, R1);
    asm.set(R7, 0);
    match (groups.as_slice(), tags) {
        ([], _) => verdict(&mut asm),
        (&[group], Some(tags)) => serve_one(&mut asm, group, tags),
        _ => serve_all(&mut asm, &groups, tags),
    }
    for (group_slot, group) in groups {
        asm.bind(group);
        run(&mut asm, group_slot);
        asm.exit_with(0);
    }
    asm.finish(ProgramKind::Xdp, maps)
}

/// Runs one group's BPF program, whose verdict the kernel gets. If a frame has no tag beside it,
/// the root runs that BPF program by a tail call, which does not return.
fn serve_one(asm: &mut Assembler, (group_slot, group): (u32, Label), tags: Tags) {
    let [untagged, absent] = asm.labels();
    tags.put(asm, untagged);
    call(asm, group);
    asm.set(R7, R0);
    tags::take_out(asm);
    asm.jump_if(R7.is(0), absent);
    asm.exit_with(R7);
    asm.bind(untagged);
    asm.set(R1, R6);
    run(asm, group_slot);
    asm.bind(absent);
    unsaid(asm);
}

/// Reads the clock once, and stores this stamp for all groups. Runs each group's BPF program by a
/// tail call from a BPF function. The host gets the packet if a group's result or the settings
/// require it.
fn serve_all(asm: &mut Assembler, groups: &[(u32, Label)], tags: Option<Tags>) {
    let untagged = asm.label();
    if let Some(tags) = tags {
        asm.store(Width::Word, R10, IS_TAGGED, 0);
        tags.put(asm, untagged);
        asm.store(Width::Word, R10, IS_TAGGED, 1);
    }
    asm.bind(untagged);
    call_all(asm, groups);
    if tags.is_some() {
        let untagged = asm.label();
        asm.load(Width::Word, R1, R10, IS_TAGGED);
        asm.jump_if(R1.is(0), untagged);
        tags::take_out(asm);
        asm.bind(untagged);
    }
    verdict(asm);
}

/// Runs all groups' BPF programs, and collects their results in r7. The stamp is set only during
/// these calls. The stamp makes a group's BPF program return its result for the root. Without a
/// stamp, the group's BPF program would return a verdict for the kernel.
fn call_all(asm: &mut Assembler, groups: &[(u32, Label)]) {
    asm.store(Width::Word, R10, NOUGHT, 0);
    asm.call(MAP_LOOKUP, (map(STAMP), stack(NOUGHT)));
    asm.unless(R0.is(0), |asm| {
        asm.set(R9, R0);
        asm.call(KTIME_GET_NS, ());
        asm.store(Width::Double, R9, 0, R0);
        for &(_, group) in groups {
            call(asm, group);
            asm.alu(Op::Or, R7, R0);
        }
        asm.set(R8, 0);
        asm.store(Width::Double, R9, 0, R8);
    });
}

fn call(asm: &mut Assembler, group: Label) {
    asm.call_function(group, (R6, 0, 0));
}

/// Runs a group's BPF program by a tail call, if the array has it. Expects the context in r1.
fn run(asm: &mut Assembler, group_slot: u32) {
    asm.call(TAIL_CALL, (R1, map(PROGRAMS), group_slot as i32));
}

fn verdict(asm: &mut Assembler) {
    asm.unless(R7.is(0), |asm| asm.exit_with(XDP_PASS));
    unsaid(asm);
}

/// Ends the root with the settings' verdict on packets on which no steering program decides.
fn unsaid(asm: &mut Assembler) {
    asm.value(R1, SETTINGS, settings::VERDICT.into());
    asm.load(Width::Word, R0, R1, 0);
    asm.exit();
}
