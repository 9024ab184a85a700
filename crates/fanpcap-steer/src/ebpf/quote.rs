//! Moves from an ICMP error to the packet that it quotes.

use super::emitter::Emitter;
use super::stack::{CARRIED, OUTER, WALKED_SCRATCH};
use super::view::{IPV4, IPV6, Origin, PROTOCOL_MASK};
use fanpcap_bpf::assembler::*;

impl Emitter<'_> {
    /// Emits [`super::emitter::Routine::Quoted`] (RFC 792, RFC 4443).
    pub(super) fn quoted_routine(&mut self) {
        let keep = self.asm.label();
        let stages = self.stages();
        let scratch = std::mem::replace(&mut self.scratch, WALKED_SCRATCH);
        self.asm.set(R7, R2);
        self.asm.set(R0, R7 & PROTOCOL_MASK);
        self.require_transport(keep);
        self.unless(R7.has_any(IPV6), |this| {
            this.asm.jump_if(R0.is_not(1), keep);
            this.quote(&[3, 4, 5, 11, 12], stages.ipv4, keep);
        });
        self.asm.jump_if(R0.is_not(58), keep);
        self.quote(&[1, 2, 3, 4], stages.ipv6, keep);
        self.walk_from(stages);
        self.forget(CARRIED);
        self.asm.jump_if(R7.has_any(IPV4 | IPV6), keep);
        self.recall(OUTER);
        self.asm.bind(keep);
        self.asm.exit_with(R7);
        self.scratch = scratch;
    }

    fn quote(&mut self, types: &[u8], to: Label, keep: Label) {
        self.read(R1, Width::Byte, Origin::Transport, 0, keep);
        self.require_one_of(R1, types, keep);
        self.transport_to_current();
        self.asm.alu(Op::Add, R8, 8);
        self.forget(OUTER);
        self.restart_view(0);
        self.asm.jump(to);
    }
}
