//! Calls of bpf(2): maps that BPF programs and processes share, and BPF programs for sockets and
//! devices.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

mod locked;
mod info;
mod object_id;
mod map;
mod table;
mod shared_array;
mod ring;
mod object_array;
mod refused;
mod types;
mod kernel_types;
mod program;
mod link;
mod loaded;
mod pin;
mod grace;

pub use grace::{try_to_wait_for_programs, wait_for_programs};
pub use kernel_types::kernel_function;
pub use link::{Attached, Hook, has_ingress_programs};
pub use loaded::{LoadError, Loaded};
pub use locked::{locked_limit, may_load};
pub use map::Map;
pub use object_array::ObjectArray;
pub use object_id::ObjectId;
pub use pin::{open_pinned, pin};
pub use program::{LoadedProgram, Run, program_name};
pub use refused::Refused;
pub use ring::{RingBuffer, RingMapping};
pub use shared_array::SharedArray;
pub use table::Table;

/// The attributes of one command.
///
/// # Safety
/// The struct is `repr(C)`, has only integers and no hidden padding, and has the kernel's layout of
/// the command's arguments. The caller of [`bpf`] guarantees that each address in the struct is
/// valid: it is 0, or it points to memory that is as large as the kernel expects and lives through
/// the call. During the call, no other reference borrows memory to which the kernel writes.
unsafe trait Attributes {}

fn bpf<A: Attributes>(command: libc::c_long, attributes: &mut A) -> io::Result<libc::c_long> {
    let size = mem::size_of::<A>();
    // SAFETY: the kernel reads and writes `size` bytes of a live struct, in which any bits are
    // valid. `Attributes` guarantees the struct's layout, and the caller guarantees its addresses.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

fn len<T>(slice: &[T]) -> u32 {
    u32::try_from(slice.len()).unwrap_or(u32::MAX)
}

/// Returns a name in the kernel's form: at most its first 15 bytes, padded with zeros. The kernel
/// accepts only letters, digits, dots and underscores.
fn short(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    for (to, from) in short[..15].iter_mut().zip(name.bytes()) {
        *to = from;
    }
    short
}
