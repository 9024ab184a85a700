//! Classic BPF, interpreted: for packets that were in the ring before their filter was, and for
//! filters that the kernel does not take.
//!
//! The machine is that of McCanne and Jacobson, "The BSD Packet Filter" (1993), with the kernel's
//! ancillary loads (linux/filter.h, `SKF_AD_*`), which libpcap's compiler uses for VLAN tags, direction
//! and interface. Values that only the kernel knows, such as the mark, reject the packet.

use fanpcap_ring::Frame;

/// One instruction (`struct bpf_insn`, `struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Operation, size, mode and source.
    pub code: u16,
    /// How far to jump when a condition is true.
    pub jt: u8,
    /// How far to jump when it is false.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// A program. Any instructions are one: what is none, or leads nowhere, rejects the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program(Vec<Instruction>);

/// What a program looks at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The captured bytes, from the link-layer header on, without the tag that the kernel took out.
    pub data: &'a [u8],
    /// The packet's length on the wire.
    pub wire_len: u32,
    /// Its protocol in host byte order.
    pub protocol: u16,
    /// `PACKET_HOST`, `PACKET_OUTGOING` ...
    pub pkttype: u8,
    /// The interface's index.
    pub ifindex: u32,
    /// The interface's hardware type.
    pub hatype: u16,
    /// The tag that the kernel took out: its protocol and control information.
    pub vlan: Option<(u16, u16)>,
}

impl<'a> View<'a> {
    /// What a program sees of a packet in a ring.
    pub fn of(frame: &'a Frame<'_>) -> Self {
        let link = frame.link();
        Self {
            data: frame.data(),
            wire_len: frame.wire_len(),
            protocol: link.protocol,
            pkttype: link.pkttype,
            ifindex: link.ifindex,
            hatype: link.hatype,
            vlan: frame.vlan().map(|vlan| (vlan.tpid, vlan.tci)),
        }
    }

    /// `SKF_AD_*`, by offset from `SKF_AD_OFF`.
    fn ancillary(&self, which: u32) -> Option<u32> {
        let tag = |of: fn((u16, u16)) -> u16| u32::from(self.vlan.map_or(0, of));
        Some(match which {
            0 => self.protocol.into(),
            4 => self.pkttype.into(),
            8 => self.ifindex,
            28 => self.hatype.into(),
            // The whole control information, as the kernel loads it; libpcap masks what it wants.
            44 => tag(|(_, tci)| tci),
            48 => self.vlan.is_some().into(),
            60 => tag(|(tpid, _)| tpid),
            _ => return None,
        })
    }

    fn bytes<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        let at = usize::try_from(at).ok()?;
        self.data.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    /// A load of the size that `code` tells.
    fn load(&self, code: u16, at: u32) -> Option<u32> {
        if at >= SKF_AD_OFF {
            return self.ancillary(at - SKF_AD_OFF);
        }
        Some(match code & 0x18 {
            W => u32::from_be_bytes(self.bytes(at)?),
            H => u16::from_be_bytes(self.bytes(at)?).into(),
            B => self.bytes::<1>(at)?[0].into(),
            _ => return None,
        })
    }
}

/// -0x1000 as the kernel's programs carry it.
const SKF_AD_OFF: u32 = 0xffff_f000;
/// `SKF_AD_ALU_XOR_X`.
const XOR_X: u32 = SKF_AD_OFF + 40;

// Classes, sizes, modes, operations (linux/bpf_common.h).
const LD: u16 = 0x00;
const LDX: u16 = 0x01;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const RET: u16 = 0x06;
const MISC: u16 = 0x07;
const W: u16 = 0x00;
const H: u16 = 0x08;
const B: u16 = 0x10;
const IMM: u16 = 0x00;
const ABS: u16 = 0x20;
const IND: u16 = 0x40;
const MEM: u16 = 0x60;
const LEN: u16 = 0x80;
const MSH: u16 = 0xa0;
/// The operand is the index register, not the constant.
const X: u16 = 0x08;
const A: u16 = 0x10;

/// The machine's registers.
#[derive(Default)]
struct Registers {
    a: u32,
    x: u32,
    memory: [u32; 16],
}

impl Program {
    /// A program of these instructions.
    pub fn new(instructions: Vec<Instruction>) -> Self {
        Self(instructions)
    }

    /// Runs it: how many bytes of the packet it keeps, 0 for none of it.
    pub fn run(&self, view: &View<'_>) -> u32 {
        self.result(view).unwrap_or(0)
    }

    /// Jumps go forward only, so this ends.
    fn result(&self, view: &View<'_>) -> Option<u32> {
        let mut registers = Registers::default();
        let mut at = 0_usize;
        loop {
            let instruction = self.0.get(at)?;
            at += 1;
            match instruction.code & 0x07 {
                RET => return registers.returned(instruction),
                JMP => at = at.checked_add(registers.jump(instruction)?)?,
                _ => registers.step(instruction, view)?,
            }
        }
    }
}

impl Registers {
    fn returned(&self, instruction: &Instruction) -> Option<u32> {
        match instruction.code & 0x18 {
            0 => Some(instruction.k),
            A => Some(self.a),
            _ => None,
        }
    }

    fn operand(&self, instruction: &Instruction) -> u32 {
        if instruction.code & X == 0 {
            instruction.k
        } else {
            self.x
        }
    }

    fn jump(&self, instruction: &Instruction) -> Option<usize> {
        let operand = self.operand(instruction);
        let taken = match instruction.code & 0xf0 {
            0x00 => return usize::try_from(instruction.k).ok(),
            0x10 => self.a == operand,
            0x20 => self.a > operand,
            0x30 => self.a >= operand,
            0x40 => self.a & operand != 0,
            _ => return None,
        };
        Some(usize::from(if taken {
            instruction.jt
        } else {
            instruction.jf
        }))
    }

    fn step(&mut self, instruction: &Instruction, view: &View<'_>) -> Option<()> {
        let Instruction { code, k, .. } = *instruction;
        let slot = || self.memory.get(k as usize).copied();
        match code & 0x07 {
            LD => match code & 0xe0 {
                IMM => self.a = k,
                ABS if k == XOR_X => self.a ^= self.x,
                ABS => self.a = view.load(code, k)?,
                // Not an ancillary load, however large the sum.
                IND => {
                    self.a =
                        view.load(code, self.x.checked_add(k).filter(|&at| at < SKF_AD_OFF)?)?
                }
                MEM => self.a = slot()?,
                LEN => self.a = view.wire_len,
                _ => return None,
            },
            LDX => match code & 0xe0 {
                IMM => self.x = k,
                MEM => self.x = slot()?,
                LEN => self.x = view.wire_len,
                MSH => self.x = u32::from(view.bytes::<1>(k)?[0] & 0x0f) << 2,
                _ => return None,
            },
            ST => *self.memory.get_mut(k as usize)? = self.a,
            STX => *self.memory.get_mut(k as usize)? = self.x,
            ALU => self.a = self.computed(instruction)?,
            MISC if code & 0xf8 == 0 => self.x = self.a,
            MISC if code & 0xf8 == 0x80 => self.a = self.x,
            _ => return None,
        }
        Some(())
    }

    fn computed(&self, instruction: &Instruction) -> Option<u32> {
        let (a, operand) = (self.a, self.operand(instruction));
        Some(match instruction.code & 0xf0 {
            0x00 => a.wrapping_add(operand),
            0x10 => a.wrapping_sub(operand),
            0x20 => a.wrapping_mul(operand),
            0x30 => a.checked_div(operand)?,
            0x40 => a | operand,
            0x50 => a & operand,
            // libpcap's rule; the kernel takes the shift modulo 32, and its compiler emits neither.
            0x60 => a.checked_shl(operand).unwrap_or(0),
            0x70 => a.checked_shr(operand).unwrap_or(0),
            0x80 => a.wrapping_neg(),
            0x90 => a.checked_rem(operand)?,
            0xa0 => a ^ operand,
            _ => return None,
        })
    }
}
