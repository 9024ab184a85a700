//! BPF as data: classic and eBPF instructions, an assembler, compiled objects, and an interpreter
//! of classic BPF. The crate does no I/O.
#![forbid(unsafe_code)]

pub mod classic;
pub mod kernel;
mod instruction;
mod interpreter;
mod object;
mod listing;
pub mod assembler;

pub use classic::Classic;
pub use instruction::Instruction;
pub use interpreter::{Packet, Shifts, run};
pub use object::{MapKind, MapSpec, Object, ProgramKind, Relocation, TABLE_ROW};
