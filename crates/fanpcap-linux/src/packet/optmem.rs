//! Room for a socket's filter. The kernel charges the filter's instructions to the socket, up to
//! `net.core.optmem_max` bytes (net/core/filter.c, `sk_filter_charge`). When a filter is replaced,
//! there must be room for both the old and the new one.

use crate::packet::{self, Filter};
use fanpcap_bpf::Object;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;

/// Returns `net.core.optmem_max`, in bytes. Since Linux 6.8, each network namespace has its own
/// limit. Before Linux 6.8, the machine has one limit, which only processes in the first network
/// namespace can read.
///
/// # Errors
/// The limit can't be read.
pub fn limit() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/sys/net/core/optmem_max")?;
    let number = text.trim().parse();
    number.map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Whether a socket has room for a loaded BPF program as its filter, in addition to
/// [`Filter::reject_all`]. To find out, attaches both filters to a new socket.
///
/// # Errors
/// The socket can't be created, or a filter can't be attached for a reason other than lack of room.
pub fn has_room(program: BorrowedFd<'_>) -> io::Result<bool> {
    let socket = UnixDatagram::unbound()?;
    Filter::reject_all().attach(socket.as_fd())?;
    match packet::attach_program(socket.as_fd(), program) {
        Ok(()) => Ok(true),
        Err(error) if is_no_room(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether `error` means that a socket has no room for a filter.
pub fn is_no_room(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOMEM)
}

/// The error for a filter that does not fit into the option memory of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// `net.core.optmem_max`, if it can be read.
    limit: Option<u64>,
    /// The value that `net.core.optmem_max` must have.
    needs: u64,
}

impl NoRoom {
    /// Returns the error for a filter of `bytes` bytes, which did not fit.
    pub fn new(bytes: u64) -> Self {
        Self::within(bytes, limit().ok())
    }

    /// Returns the error for a compiled filter that is longer than the limit. `None` for any other
    /// filter. `None` does not mean that the filter fits: the verifier may lengthen the filter
    /// beyond the limit.
    pub fn of(filter: &Object) -> Option<Self> {
        let (bytes, limit) = (filter.instructions.len() as u64 * 8, limit().ok());
        (bytes > limit.unwrap_or(USUAL)).then(|| Self::within(bytes, limit))
    }

    fn within(bytes: u64, limit: Option<u64>) -> Self {
        let least = bytes.max(limit.unwrap_or(0)) + 1;
        let needs = least.next_multiple_of(STEP).max(USUAL);
        Self { limit, needs }
    }
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its filter has no room in the socket: net.core.optmem_max is ")?;
        match self.limit {
            Some(limit) => write!(f, "{limit}")?,
            None => f.write_str("too small")?,
        }
        let needs = self.needs;
        write!(
            f,
            ", set it to {needs} or more (sysctl -w net.core.optmem_max={needs}), or write a shorter program"
        )
    }
}

/// The kernel's default since Linux 6.8; before, the default was 20480.
const USUAL: u64 = 131_072;

/// Messages round values above [`USUAL`] up to a multiple of [`STEP`].
const STEP: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::LoadedProgram;
    use fanpcap_bpf::{Instruction, ProgramKind};

    /// Returns a BPF program of `count` instructions and an exit.
    fn program(count: usize) -> LoadedProgram {
        let mut code = vec![Instruction::set(0, 0); count];
        code.push(Instruction::exit());
        LoadedProgram::load(ProgramKind::SocketFilter, "room", &code).unwrap()
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

    #[test]
    fn a_filter_without_room_says_which_setting_bounds_it() {
        assert_eq!(
            NoRoom::within(16_000, Some(20_480)).to_string(),
            "its filter has no room in the socket: net.core.optmem_max is 20480, set it to 131072 or more \
             (sysctl -w net.core.optmem_max=131072), or write a shorter program"
        );
        let unread = NoRoom::within(16_000, None).to_string();
        assert!(
            unread.contains("net.core.optmem_max is too small, set it to 131072"),
            "{unread}"
        );
    }

    #[test]
    fn what_is_asked_for_is_more_than_there_was() {
        let needs = |bytes, limit| NoRoom::within(bytes, limit).needs;
        assert_eq!(needs(131_072, Some(20_480)), 196_608);
        assert_eq!(needs(240_000, None), 262_144);
        assert_eq!(needs(0, Some(131_072)), 196_608);
    }
}
