//! What a BPF program does with packets that it delivers itself.

use fanpcap_bpf::MapSpec;
use fanpcap_bpf::assembler::{Assembler, Label, R0};

/// Emits the parts of a BPF program that delivers packets to the members of a group.
///
/// The steering program decides first. Then these parts run, in this order: [`Delivery::arrive`];
/// for a packet with members [`Delivery::stamp`] once and [`Delivery::deliver`] for each member,
/// else [`Delivery::drop`] or [`Delivery::miss`]; at last [`Delivery::leave`].
///
/// All parts but [`Delivery::deliver`] and [`Delivery::filter`] are code of the main function,
/// which goes on behind their last instruction. They find the context in r6, and keep r6, r7 and
/// r8. r9 is theirs, and 0 at first. They may use the stack from r10 - 48 to r10 - 33. What
/// [`Delivery::arrive`] leaves there is kept in the 4 bytes at r10 - 40 alone, and not for sent
/// packets.
pub trait Delivery {
    /// The maps that the parts use. A map's index in this list is its index for [`Assembler::map`].
    /// The names are not those of this crate's maps.
    fn maps(&self) -> Vec<MapSpec>;

    /// Whether the packets are those that the host sends: the context is `struct __sk_buff`.
    fn is_of_sent(&self) -> bool {
        false
    }

    /// Begins with a packet.
    fn arrive(&self, asm: &mut Assembler);

    /// Puts the packet's stamp into r0.
    fn stamp(&self, asm: &mut Assembler);

    /// Delivers the packet to a slot. r1 is the context, r2 the slot in its lowest byte, r3 the
    /// stamp. Without `done`, r2 may have [`IS_COPY`] too.
    ///
    /// Without `done`, this is the body of a BPF function, which ends with an exit; r0 may be any
    /// number. With `done`, this is code of the main function for the packet's only delivery, and
    /// jumps there. Either may clobber all registers but r6, which is the context in the end. They
    /// use the stack from r10 - 32 on. `filter` is the function of [`Delivery::filter`].
    fn deliver(&self, asm: &mut Assembler, filter: Label, done: Option<Label>);

    /// The body of a BPF function that [`Delivery::deliver`] may call, with a tail call. It ends
    /// with an exit.
    fn filter(&self, asm: &mut Assembler);

    /// Counts a delivery of a packet that has been delivered before. This part may be in another
    /// function: it keeps r9.
    fn again(&self, _asm: &mut Assembler) {}

    /// Counts a packet that the steering program drops.
    fn drop(&self, asm: &mut Assembler);

    /// Counts a packet for which the group has no member.
    fn miss(&self, asm: &mut Assembler);

    /// Ends the BPF program: sets r0 and exits. r8 says what the host gets of the packet: 0 for
    /// what the steering program did not say, 1 for the packet too, 2 for the packet alone.
    fn leave(&self, asm: &mut Assembler);
}

/// Beside the slot: another slot gets the packet too.
pub const IS_COPY: i32 = 256;

/// Delivers nothing: shows whether a steering program can be compiled, and what a decision costs.
pub(crate) struct Nowhere;

impl Delivery for Nowhere {
    fn maps(&self) -> Vec<MapSpec> {
        Vec::new()
    }

    fn arrive(&self, _: &mut Assembler) {}

    fn stamp(&self, asm: &mut Assembler) {
        asm.set(R0, 0);
    }

    fn deliver(&self, asm: &mut Assembler, _: Label, done: Option<Label>) {
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
        asm.set(R0, XDP_DROP);
        asm.exit();
    }
}

/// linux/bpf.h, enum xdp_action.
const XDP_DROP: i32 = 1;
