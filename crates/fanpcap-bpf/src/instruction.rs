//! eBPF: one instruction.

/// One eBPF instruction (linux/bpf.h, `struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    /// An instruction from its fields. Registers are 0 to 10.
    pub const fn new(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> Self {
        // The struct has two bit-fields of four bits each. Their order depends on the machine's
        // byte order.
        let registers = if cfg!(target_endian = "little") {
            (source << 4) | target
        } else {
            (target << 4) | source
        };
        Self {
            code,
            registers,
            offset,
            immediate,
        }
    }

    /// Sets a register to a number.
    pub const fn set(register: u8, value: i32) -> Self {
        Self::new(0xb7, register, 0, 0, value) // BPF_ALU64 | BPF_MOV | BPF_K
    }

    /// Returns from the function, or ends the BPF program.
    pub const fn exit() -> Self {
        Self::new(0x95, 0, 0, 0, 0) // BPF_JMP | BPF_EXIT
    }

    /// The two instructions that load a map into a register, as the helper `bpf_map_lookup_elem`
    /// needs it. `fd` is the map's descriptor.
    pub const fn map(register: u8, fd: i32) -> [Self; 2] {
        Self::wide(register, PSEUDO_MAP_FD, fd, 0)
    }

    /// The two instructions that load the address of byte `offset` of an array's entry 0 into a
    /// register. `fd` is the array's descriptor.
    pub const fn map_value(register: u8, fd: i32, offset: i32) -> [Self; 2] {
        Self::wide(register, PSEUDO_MAP_VALUE, fd, offset)
    }

    const fn wide(register: u8, kind: u8, low: i32, high: i32) -> [Self; 2] {
        [
            Self::new(LOAD_WIDE, register, kind, 0, low),
            Self::new(0, 0, 0, 0, high),
        ]
    }

    /// Calls a function of the same BPF program. The function begins `distance` instructions after
    /// the next instruction.
    pub const fn call_function(distance: i32) -> Self {
        Self::new(CALL, 0, PSEUDO_CALL, 0, distance)
    }

    /// If this instruction calls a function of the BPF program, the index of the function's first
    /// instruction. `at` is the index of this instruction.
    pub fn called_from(self, at: usize) -> Option<usize> {
        let calls = self.code == CALL && self.source() == PSEUDO_CALL;
        let distance = isize::try_from(self.immediate).ok().filter(|_| calls)?;
        at.checked_add(1)?.checked_add_signed(distance)
    }

    /// Operation (BPF_CLASS, BPF_OP, BPF_SRC; BPF_SIZE and BPF_MODE).
    pub const fn code(self) -> u8 {
        self.code
    }

    /// The register that the instruction writes or compares, or that holds the address of a store.
    pub const fn target(self) -> u8 {
        let [low, high] = [self.registers & 15, self.registers >> 4];
        if cfg!(target_endian = "little") {
            low
        } else {
            high
        }
    }

    /// The register that the instruction reads.
    pub const fn source(self) -> u8 {
        let [low, high] = [self.registers & 15, self.registers >> 4];
        if cfg!(target_endian = "little") {
            high
        } else {
            low
        }
    }

    /// The offset of an address in bytes, or the number of instructions that a jump skips.
    pub const fn offset(self) -> i16 {
        self.offset
    }

    /// The immediate operand.
    pub const fn immediate(self) -> i32 {
        self.immediate
    }

    /// The same instruction with another offset.
    pub const fn with_offset(self, offset: i16) -> Self {
        Self { offset, ..self }
    }

    /// The same instruction with another immediate operand.
    pub const fn with_immediate(self, immediate: i32) -> Self {
        Self { immediate, ..self }
    }
}

/// `BPF_LD | BPF_IMM | BPF_DW`, and the values of its source register.
const LOAD_WIDE: u8 = 0x18;
const PSEUDO_MAP_FD: u8 = 1;
const PSEUDO_MAP_VALUE: u8 = 2;
/// `BPF_JMP | BPF_CALL`, and the value of its source register for a function of the same BPF
/// program.
const CALL: u8 = 0x85;
const PSEUDO_CALL: u8 = 1;
