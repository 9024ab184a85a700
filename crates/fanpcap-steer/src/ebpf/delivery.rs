//! The interface of the code that delivers packets.

use fanpcap_bpf::MapSpec;
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;

/// Emits the parts of a BPF program that delivers packets to the members of a group.
///
/// The steering program decides after [`Delivery::arrive`]. For a packet with members,
/// [`Delivery::stamp`] then runs once, and [`Delivery::deliver`] runs for each member. For any
/// other packet, [`Delivery::drop`] or [`Delivery::miss`] runs. [`Delivery::leave`] runs last.
///
/// All parts except [`Delivery::deliver`] and [`Delivery::filter`] are code of the main function,
/// which continues after the part's last instruction. The context is in r6. The parts must keep r6,
/// r7 and r8. They may use r9, which is 0 at first, and the stack from r10 - 48 to r10 - 33. If
/// [`Delivery::arrive`] stores bytes there, later parts find only the 4 bytes at r10 - 40
/// unchanged. For sent packets they find no bytes unchanged.
pub trait Delivery {
    /// The maps that the parts use. A map's index in this list is its index for [`Assembler::map`].
    /// The names must differ from those of this crate's maps.
    fn maps(&self) -> Vec<MapSpec>;

    /// Whether the BPF program is for packets that the host sends. The context of such a BPF
    /// program is `struct __sk_buff`; the context of any other is `struct xdp_md`.
    fn is_of_sent(&self) -> bool {
        false
    }

    /// Runs first for each packet.
    fn arrive(&self, asm: &mut Assembler);

    /// Puts the packet's stamp into r0: a number that [`Delivery::deliver`] gets for each member.
    fn stamp(&self, asm: &mut Assembler);

    /// Delivers the packet to a slot. r1 is the context, r2 has the slot in its lowest byte, and r3
    /// is the stamp. Without `done`, r2 may also have the bit [`IS_COPY`].
    ///
    /// Without `done`, this is the body of a BPF function. It ends with an exit; r0 may be any
    /// number. With `done`, this is code of the main function for the packet's only delivery, and
    /// jumps to `done`. In both cases the code may clobber all registers except r6, which must hold
    /// the context at the end. The code may use the stack from r10 - 32 on.
    fn deliver(&self, asm: &mut Assembler, apart: Apart, done: Option<Label>);

    /// The body of a BPF function with a tail call, which [`Delivery::deliver`] may call. It ends
    /// with an exit.
    fn filter(&self, asm: &mut Assembler);

    /// The body of a BPF function that [`Delivery::deliver`] calls if a member has no room for the
    /// packet. It ends with an exit.
    fn make_room(&self, _asm: &mut Assembler) {}

    /// Counts a further delivery of a packet that has been delivered already. The code may be in
    /// another BPF function than the other parts. The code must keep r9.
    fn again(&self, _asm: &mut Assembler) {}

    /// Counts a packet that the steering program drops.
    fn drop(&self, asm: &mut Assembler);

    /// Counts a packet for which the group has no member.
    fn miss(&self, asm: &mut Assembler);

    /// Ends the BPF program: sets r0 and exits. r8 is the decision about the host: 0 if the
    /// steering program did not decide, 1 if the host gets the packet too, 2 if only the host gets
    /// the packet.
    fn leave(&self, asm: &mut Assembler);
}

/// The BPF functions that [`Delivery::deliver`] may call.
#[derive(Clone, Copy)]
pub struct Apart {
    /// The function of [`Delivery::filter`].
    pub filter: Label,
    /// The function of [`Delivery::make_room`].
    pub room: Label,
}

/// The bit in r2 of [`Delivery::deliver`] that is set if another slot gets the packet too.
pub const IS_COPY: i32 = 256;

/// A delivery that delivers nothing, to check whether a steering program can be compiled and to
/// measure the cost of a decision.
pub(crate) struct Nowhere;

impl Delivery for Nowhere {
    fn maps(&self) -> Vec<MapSpec> {
        Vec::new()
    }

    fn arrive(&self, _: &mut Assembler) {}

    fn stamp(&self, asm: &mut Assembler) {
        asm.set(R0, 0);
    }

    fn deliver(&self, asm: &mut Assembler, _: Apart, done: Option<Label>) {
        asm.set(R0, 0);
        match done {
            Some(done) => asm.jump(done),
            None => asm.exit(),
        }
    }

    fn filter(&self, asm: &mut Assembler) {
        asm.exit();
    }

    fn drop(&self, _: &mut Assembler) {}

    fn miss(&self, _: &mut Assembler) {}

    fn leave(&self, asm: &mut Assembler) {
        asm.exit_with(XDP_DROP);
    }
}
