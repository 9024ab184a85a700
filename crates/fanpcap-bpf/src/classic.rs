//! Classic BPF: one instruction, its opcodes and the metadata that it loads.

pub mod opcode;
pub mod ancillary;

/// One instruction of classic BPF, laid out as `struct sock_filter` (linux/filter.h) and libpcap's
/// `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classic {
    /// Operation.
    pub code: u16,
    /// Number of instructions that the jump skips if the condition is true.
    pub jt: u8,
    /// Number of instructions that the jump skips if the condition is false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

impl Classic {
    /// An instruction that does not jump on a condition (`BPF_STMT`).
    pub const fn new(code: u16, k: u32) -> Self {
        Self::jump(code, k, 0, 0)
    }

    /// A conditional jump (`BPF_JUMP`).
    pub const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Self {
        Self { code, jt, jf, k }
    }

    /// Ends the BPF program and keeps the packet's first `bytes` bytes; 0 rejects the packet.
    pub const fn keep(bytes: u32) -> Self {
        Self::new(opcode::RET_K, bytes)
    }
}
