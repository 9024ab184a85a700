//! The root: the BPF program that a device runs if it has several groups, or if VLAN tags are
//! stored beside its frames. The root runs the groups' BPF programs.
//!
//! The root asks the device's driver for the tag beside a received frame, and puts it into the
//! frame. After the groups' BPF programs have run, the root takes the tag out of the frame again.
//!
//! A driver stores tags beside frames if the device takes tags out of frames. A veth gets a tag
//! beside a frame if the peer sends the frame in this form.

use crate::layout::{self, GROUP_SLOTS, settings};
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_bpf::{Object, ProgramKind};
use fanpcap_linux::bpf;
use fanpcap_linux::netlink::netdev;
use std::sync::atomic::{AtomicI32, Ordering};

const SETTINGS: usize = 0;
const STAMP: usize = 1;
const PROGRAMS: usize = 2;

/// Offsets on the stack: a key of 0, and whether a tag was put into the frame.
const NOUGHT: i16 = -4;
const IS_TAGGED: i16 = -8;

/// Returns the root for the groups whose bits are set in `group_slots`. With `tags`, the root
/// inserts the tag that is stored beside a frame before the groups get the frame.
pub(crate) fn root(group_slots: u32, tags: Option<Tags>) -> Result<Object, AssemblerError> {
    let maps = vec![layout::settings_row(), layout::stamp(), layout::programs()];
    let mut asm = Assembler::new();
    let served = (0..GROUP_SLOTS).filter(|group_slot| group_slots & (1 << group_slot) != 0);
    let groups: Vec<_> = served.map(|it| (it, asm.label())).collect();
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
    take_out(asm);
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
        take_out(asm);
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

/// How a root asks a device's driver for tags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tags {
    /// The kernel's number for its function that returns the tag.
    function: i32,
    /// The device's index. Only this device can run the root.
    pub(crate) ifindex: u32,
}

impl Tags {
    /// Returns how to ask the driver of a device in the calling thread's network namespace. `None`
    /// if the driver or the kernel can't return tags.
    pub(crate) fn of(ifindex: u32) -> Option<Self> {
        let tells = netdev::tells_vlan_tags(ifindex).unwrap_or(false);
        let function = tells.then(function).flatten()?;
        Some(Self { function, ifindex })
    }

    /// Inserts the tag that is stored beside the frame. Jumps to `none` if the frame has no such
    /// tag. Expects the context in r6, and uses the stack from [`TAG`] on.
    pub(crate) fn put(self, asm: &mut Assembler, none: Label) {
        let short = asm.label();
        asm.store(Width::Double, R10, TAG, 0);
        asm.call_kernel(self.function, (R6, stack(TAG), R2 + i32::from(TCI - TAG)));
        asm.jump32_if(R0.is_not(0), none);
        move_head(asm, -i32::from(TAG_LEN));
        // If the buffer has no room before the frame, the groups get the frame without its tag.
        asm.jump_if(R0.is_not(0), none);
        reach(asm, short);
        move_addresses(asm, TAG_LEN, 0);
        asm.load(Width::Half, R4, R10, TAG);
        asm.store(Width::Half, R1, ADDRESSES_LEN, R4);
        asm.load_big_endian(Width::Half, R4, R10, TCI);
        asm.store(Width::Half, R1, ADDRESSES_LEN + 2, R4);
        let done = asm.label();
        asm.jump(done);
        asm.bind(short);
        move_head(asm, TAG_LEN.into());
        asm.jump(none);
        asm.bind(done);
    }
}

/// Returns the number of the kernel's function [`FUNCTION`]. Looks up the number only once in a
/// process, because the lookup reads the kernel's BTF, which has megabytes.
fn function() -> Option<i32> {
    static NUMBER: AtomicI32 = AtomicI32::new(UNKNOWN);
    if NUMBER.load(Ordering::Relaxed) == UNKNOWN {
        let number = bpf::kernel_function(FUNCTION).unwrap_or(NONE);
        NUMBER.store(number, Ordering::Relaxed);
    }
    Some(NUMBER.load(Ordering::Relaxed)).filter(|number| *number != NONE)
}

/// Values of `NUMBER` that are not numbers of functions: the number is not looked up yet, or the
/// kernel does not have the function.
const UNKNOWN: i32 = 0;
const NONE: i32 = -1;

/// Removes from the frame the tag that [`Tags::put`] has inserted. The kernel still has the tag
/// beside the frame. Expects the context in r6.
pub(crate) fn take_out(asm: &mut Assembler) {
    let [failed, done] = asm.labels();
    reach(asm, failed);
    move_addresses(asm, 0, TAG_LEN);
    move_head(asm, TAG_LEN.into());
    asm.jump(done);
    // This can't happen, because `put` found the addresses in the frame's linear part.
    asm.bind(failed);
    asm.exit_with(XDP_ABORTED);
    asm.bind(done);
}

/// Moves the beginning of the frame by this many bytes. r0 is 0 on success.
fn move_head(asm: &mut Assembler, bytes: i32) {
    asm.call(XDP_ADJUST_HEAD, (R6, bytes));
}

/// Puts the frame's address into r1. Jumps to `beyond` if the frame's linear part is too short for
/// the two addresses and a tag.
fn reach(asm: &mut Assembler, beyond: Label) {
    asm.load(Width::Word, R1, R6, xdp::DATA);
    asm.load(Width::Word, R2, R6, xdp::DATA_END);
    asm.set(R3, R1 + i32::from(ADDRESSES_LEN + TAG_LEN));
    asm.jump_if(R3.above(R2), beyond);
}

/// Moves the two hardware addresses of the frame in r1 from one offset to another.
fn move_addresses(asm: &mut Assembler, from: i16, to: i16) {
    asm.load(Width::Double, R4, R1, from);
    asm.load(Width::Word, R5, R1, from + 8);
    asm.store(Width::Double, R1, to, R4);
    asm.store(Width::Word, R1, to + 8, R5);
}

/// The kernel's function that returns a frame's tag, since Linux 6.8 (net/core/xdp.c).
const FUNCTION: &str = "bpf_xdp_metadata_rx_vlan_tag";

/// Offsets on the stack: the tag's protocol in network order, and its control information in host
/// order.
const TAG: i16 = -16;
const TCI: i16 = TAG + 2;

/// Bytes of a tag, and of the hardware addresses before it.
const TAG_LEN: i16 = 4;
const ADDRESSES_LEN: i16 = 12;
