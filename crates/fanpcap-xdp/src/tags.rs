//! VLAN tags that are stored beside received frames. A root asks the device's driver for the tag,
//! and puts it into the frame. After the groups' BPF programs have run, the root takes the tag out
//! of the frame again.
//!
//! A driver stores tags beside frames if the device takes tags out of frames. A veth gets a tag
//! beside a frame if the peer sends the frame in this form.

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_linux::bpf;
use fanpcap_linux::netlink::netdev;
use std::sync::atomic::{AtomicI32, Ordering};

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
