//! Room for a socket's filter. The kernel charges the filter's instructions to the socket, up to
//! `net.core.optmem_max` bytes (net/core/filter.c `sk_filter_charge`). A new filter has to fit
//! beside the old one.

use crate::packet::{self, Filter};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

/// `net.core.optmem_max`, in bytes. Each network namespace has its own limit. Before Linux 6.8
/// there is one for the machine, which only the first namespace can read.
///
/// # Errors
/// Where it can't be read.
pub fn limit() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/sys/net/core/optmem_max")?;
    let number = text.trim().parse();
    number.map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether a loaded BPF program fits as the filter of a socket beside [`Filter::reject_all`].
/// Attaches both to a new socket to find out.
///
/// # Errors
/// What creating the socket or attaching says otherwise.
pub fn has_room(program: BorrowedFd<'_>) -> io::Result<bool> {
    let socket = UnixDatagram::unbound()?;
    Filter::reject_all().attach(socket.as_fd())?;
    match packet::attach_program(socket.as_fd(), program) {
        Ok(()) => Ok(true),
        Err(error) if is_no_room(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a socket has refused a filter because it has no room for it.
pub fn is_no_room(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::Program;
    use fanpcap_bpf::{Instruction, ProgramKind};

    /// `count` instructions, and the one that ends the BPF program.
    fn program(count: usize) -> Program {
        let mut code = vec![Instruction::set(0, 0); count];
        code.push(Instruction::exit());
        Program::load(ProgramKind::SocketFilter, "room", &code).unwrap()
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_program_has_room_up_to_the_limit() {
        let Ok(limit) = limit() else {
            println!("SKIP: net.core.optmem_max can't be read here");
            return;
        };
        let most = usize::try_from(limit / 8).unwrap();
        assert!(has_room(program(10).as_fd()).unwrap());
        assert!(has_room(program(most - 100).as_fd()).unwrap());
        assert!(!has_room(program(most).as_fd()).unwrap());
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn a_program_tells_how_long_the_kernel_has_made_it() {
        assert_eq!(program(10).translated().unwrap(), 11 * 8);
    }
}
