//! eBPF by bpf(2): instructions, maps that programs and processes share, and programs for sockets and devices.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

mod locked;
mod map;
mod refused;
mod types;
mod program;

pub use locked::locked_limit;
pub use map::{Map, MapKind};
pub use program::{Attached, Hook, Program, ProgramKind, Run};
pub use refused::LoadError;

/// One instruction (linux/bpf.h, `struct bpf_insn`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

impl Instruction {
    /// Puts it together; registers are 0 to 10.
    pub const fn new(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> Self {
        // The struct has two bit-fields of four bits, whose order is that of the machine's bytes.
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

    /// Operation (BPF_CLASS, BPF_OP, BPF_SRC; BPF_SIZE and BPF_MODE).
    pub const fn code(self) -> u8 {
        self.code
    }

    /// The register that is written, compared or stored through.
    pub const fn target(self) -> u8 {
        let [low, high] = [self.registers & 15, self.registers >> 4];
        if cfg!(target_endian = "little") {
            low
        } else {
            high
        }
    }

    /// The register that is read.
    pub const fn source(self) -> u8 {
        let [low, high] = [self.registers & 15, self.registers >> 4];
        if cfg!(target_endian = "little") {
            high
        } else {
            low
        }
    }

    /// Bytes from an address, or instructions to jump over.
    pub const fn offset(self) -> i16 {
        self.offset
    }

    /// The operand in the instruction.
    pub const fn immediate(self) -> i32 {
        self.immediate
    }

    /// The same with another offset.
    pub const fn with_offset(self, offset: i16) -> Self {
        Self { offset, ..self }
    }

    /// The same with another immediate operand.
    pub const fn with_immediate(self, immediate: i32) -> Self {
        Self { immediate, ..self }
    }
}

/// The attributes of one command.
///
/// # Safety
/// It is `repr(C)`, of integers alone and without hidden padding, as the kernel lays out what the command reads and writes. Whoever fills
/// one in and hands it to [`bpf`] sees to it that its addresses are 0 or those of memory as large as the kernel takes it to be, that
/// stays through the call and, where the kernel writes, is borrowed for nothing else.
unsafe trait Attributes {}

fn bpf<A: Attributes>(command: libc::c_long, attributes: &mut A) -> io::Result<libc::c_long> {
    let size = mem::size_of::<A>();
    // SAFETY: the kernel reads and writes `size` bytes of a live struct, in which any bits are valid; `Attributes` vouches for
    // that and for the addresses in it.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

fn descriptor(rc: libc::c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(rc).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the command has just opened it for us, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

fn len<T>(slice: &[T]) -> u32 {
    u32::try_from(slice.len()).unwrap_or(u32::MAX)
}

/// A name as the kernel keeps it: 15 bytes of letters, digits, dots and underscores.
fn short(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    for (to, from) in short[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    short
}
