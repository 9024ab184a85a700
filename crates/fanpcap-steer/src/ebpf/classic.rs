//! Translates classic BPF to eBPF: the pcap filters of the steering program, and the user's filter.
//!
//! r7 is A, r8 is X. After a load out of range or a division by zero the filter returns 0, as in
//! libpcap's `bpf_filter` and in the kernel.

mod ancillary;
mod loads;
mod device;

use super::EbpfError;
use super::emitter::Emitter;
use crate::ir::Filter;
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::classic::opcode::*;
use fanpcap_bpf::{Classic, ProgramKind};

/// The bytes that a filter reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The frame as it is, without metadata.
    Frame,
    /// The frame with its VLAN tag, which is beside the frame, inserted again. r9 has the tag's
    /// protocol and TCI.
    Tagged,
    /// The frame as it is, and the metadata of its socket buffer.
    Socket,
    /// A frame that the host sends, as it is, and the metadata that a packet socket's filter finds
    /// for it.
    Sent,
    /// A frame at XDP without a VLAN tag, and the metadata that its socket buffer would have.
    Device,
    /// A frame at XDP with a VLAN tag, and the metadata that its socket buffer would have. The tag
    /// counts as metadata, so the filter does not read bytes 12 to 15 of the frame. r9 has the
    /// tag's protocol and TCI.
    Untagged,
}

/// The name of a handle's own filter in errors.
const OWN: &str = "the handle's own filter";

struct Making<'c> {
    text: &'c str,
    source: Source,
    /// A label for each instruction.
    labels: Vec<Label>,
    /// The label of code that returns 0.
    out: Label,
    at: usize,
}

type Made = Result<(), EbpfError>;

const TAG_LEN: i32 = 4;

/// Stack offset of a word of the filter's scratch memory. The offset is 4 beyond a multiple of
/// eight, because the verifier tracks no value there.
fn memory(index: u32) -> i16 {
    -4 - 8 * i16::try_from(index & 15).unwrap_or(0)
}

impl Emitter<'_> {
    /// Emits [`super::emitter::Routine::Pcap`].
    pub(super) fn pcap_routine(&mut self, filter: Option<&Filter>) {
        let Some(filter) = filter else {
            return self.asm.exit_with(0);
        };
        if let Err(error) = self.tagged_and_not(filter) {
            self.fail(error);
        }
    }

    /// The code of a pcap filter for packets with a tag beside the frame, and for others.
    fn tagged_and_not(&mut self, filter: &Filter) -> Made {
        let untagged = self.asm.label();
        self.tag_beside(untagged);
        if self.asm.is_live() {
            self.asm.set(R9, R1);
            self.tag_type();
            self.asm.alu(Op::Left, R1, 16);
            self.asm.alu(Op::Or, R9, R1);
            self.classic(&filter.code, &filter.text, Source::Tagged)?;
        }
        self.asm.bind(untagged);
        self.classic(&filter.code, &filter.text, Source::Frame)
    }

    /// Emits the user's own filter. Ends the BPF program with the filter's result.
    pub(super) fn user_filter(&mut self, code: &[Classic]) -> Made {
        self.asm.note("the user's filter");
        match self.target.kind() {
            ProgramKind::SocketFilter => self.classic(code, OWN, Source::Socket),
            ProgramKind::SchedCls => self.classic(code, OWN, Source::Sent),
            ProgramKind::Xdp => self.device_filter(code, OWN),
        }
    }

    fn classic(&mut self, code: &[Classic], text: &str, source: Source) -> Made {
        let labels = code.iter().map(|_| self.asm.label()).collect();
        let out = self.asm.label();
        let mut filter = Making {
            text,
            source,
            labels,
            out,
            at: 0,
        };
        self.asm.set32(R7, 0);
        self.asm.set32(R8, 0);
        for index in 0..16 {
            let reads = |one: &Classic| matches!(one.code, LD_MEM | LDX_MEM) && one.k == index;
            if code.iter().any(reads) {
                self.asm.store(Width::Word, R10, memory(index), R7);
            }
        }
        for (at, &instruction) in code.iter().enumerate() {
            filter.at = at;
            self.asm.bind(filter.label(at, 0)?);
            self.instruction(&filter, instruction)?;
        }
        if self.asm.is_live() {
            return Err(filter.refuse_at(code.len(), "a return is missing"));
        }
        self.asm.bind(filter.out);
        self.asm.set32(R0, 0);
        self.asm.exit();
        Ok(())
    }

    fn instruction(&mut self, filter: &Making<'_>, classic: Classic) -> Made {
        let Classic { code, k, .. } = classic;
        let number = k as i32;
        match code {
            LD_IMM => self.asm.alu32(Op::Move, R7, number),
            LDX_IMM => self.asm.alu32(Op::Move, R8, number),
            LD_W_ABS | LD_H_ABS | LD_B_ABS => {
                self.absolute(filter, k, size(code))?;
                self.asm.set(R7, R1);
            }
            LD_W_IND | LD_H_IND | LD_B_IND => {
                self.indirect(filter, k, size(code))?;
                self.asm.set(R7, R1);
            }
            LDX_B_MSH => {
                self.absolute(filter, k, 1)?;
                self.asm.set(R1, (R1 & 15) << 2);
                self.asm.set(R8, R1);
            }
            LD_W_LEN | LDX_W_LEN => {
                self.length();
                match filter.source {
                    Source::Tagged => self.asm.alu(Op::Add, R1, TAG_LEN),
                    Source::Untagged => self.asm.alu(Op::Sub, R1, TAG_LEN),
                    Source::Frame | Source::Socket | Source::Sent | Source::Device => {}
                }
                self.asm.set(if code == LD_W_LEN { R7 } else { R8 }, R1);
            }
            LD_MEM | LDX_MEM if k > 15 => return Err(filter.refuse("it uses memory beyond M[15]")),
            LD_MEM => self.asm.load(Width::Word, R7, R10, memory(k)),
            LDX_MEM => self.asm.load(Width::Word, R8, R10, memory(k)),
            ST if k < 16 => self.asm.store(Width::Word, R10, memory(k), R7),
            STX if k < 16 => self.asm.store(Width::Word, R10, memory(k), R8),
            MISC_TAX => self.asm.set(R8, R7),
            MISC_TXA => self.asm.set(R7, R8),
            RET_K | RET_A => {
                let value = if code == RET_K {
                    number.into()
                } else {
                    Operand::from(R7)
                };
                self.asm.set32(R0, value);
                match filter.source {
                    Source::Untagged => self.keep_tag(),
                    Source::Sent => self.keep_tag_beside(),
                    Source::Frame | Source::Tagged | Source::Socket | Source::Device => {}
                }
                self.asm.exit();
            }
            _ if code & CLASS == ALU => self.arithmetic(filter, classic)?,
            _ if code & CLASS == JMP => self.jump(filter, classic)?,
            _ => return Err(filter.refuse("it is unknown")),
        }
        Ok(())
    }

    fn arithmetic(&mut self, filter: &Making<'_>, classic: Classic) -> Made {
        let Classic { code, k, .. } = classic;
        let by_x = code & X != 0;
        let value = if by_x {
            Operand::from(R8)
        } else {
            (k as i32).into()
        };
        let op = match code & !X {
            ALU_ADD_K => Op::Add,
            ALU_SUB_K => Op::Sub,
            ALU_MUL_K => Op::Mul,
            ALU_DIV_K => Op::Div,
            ALU_OR_K => Op::Or,
            ALU_AND_K => Op::And,
            ALU_LSH_K => Op::Left,
            ALU_RSH_K => Op::Right,
            ALU_NEG if !by_x => {
                self.asm.alu32(Op::Negate, R7, 0);
                return Ok(());
            }
            ALU_MOD_K => Op::Mod,
            ALU_XOR_K => Op::Xor,
            _ => return Err(filter.refuse("it is unknown")),
        };
        match op {
            Op::Div | Op::Mod if by_x => self.asm.jump_if(R8.is(0), filter.out),
            Op::Div | Op::Mod if k == 0 => return Err(filter.refuse("it divides by zero")),
            Op::Left | Op::Right => {
                self.shift(op, by_x, k);
                return Ok(());
            }
            Op::Add
            | Op::Sub
            | Op::Mul
            | Op::Div
            | Op::Or
            | Op::And
            | Op::Negate
            | Op::Mod
            | Op::Xor
            | Op::Move => {}
        }
        self.asm.alu32(op, R7, value);
        Ok(())
    }

    /// The kernel masks the shift distance with 31.
    fn shift(&mut self, op: Op, by_x: bool, k: u32) {
        if by_x {
            self.asm.alu32(op, R7, R8);
        } else {
            self.asm.alu32(op, R7, (k % 32) as i32);
        }
    }

    fn jump(&mut self, filter: &Making<'_>, classic: Classic) -> Made {
        let Classic { code, jt, jf, k } = classic;
        let next = filter.at + 1;
        let what = match code & !X {
            JMP_JA if code & X == 0 => {
                self.asm.jump(filter.label(next, k)?);
                return Ok(());
            }
            JMP_JEQ_K => If::Equal,
            JMP_JGT_K => If::Greater,
            JMP_JGE_K => If::GreaterEqual,
            JMP_JSET_K => If::AnyBit,
            _ => return Err(filter.refuse("it is unknown")),
        };
        let value = if code & X != 0 {
            Operand::from(R8)
        } else {
            (k as i32).into()
        };
        let yes = filter.label(next, jt.into())?;
        self.asm.jump32_if(R7.compare(what, value), yes);
        self.asm.jump(filter.label(next, jf.into())?);
        Ok(())
    }
}

impl Making<'_> {
    fn label(&self, at: usize, further: u32) -> Result<Label, EbpfError> {
        let index = usize::try_from(further)
            .ok()
            .and_then(|further| at.checked_add(further));
        let label = index.and_then(|index| self.labels.get(index));
        label
            .copied()
            .ok_or_else(|| self.refuse_at(at, "it jumps out of the filter"))
    }

    fn refuse(&self, why: &'static str) -> EbpfError {
        self.refuse_at(self.at, why)
    }

    fn refuse_at(&self, instruction: usize, why: &'static str) -> EbpfError {
        let text = self.text.to_owned();
        EbpfError::Filter {
            text,
            instruction,
            why,
        }
    }
}

fn size(code: u16) -> u8 {
    match code & SIZE {
        B => 1,
        H => 2,
        _ => 4,
    }
}
