//! An eBPF program as a socket's filter, one that counts what it refuses.

use super::{
    BPF_PROG_LOAD, Instruction, LICENSE, LOG_LEN, LoadError, Number, ProgramLoad, bpf, descriptor,
    len, short, text,
};
use crate::packet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A program of type socket filter, loaded.
#[derive(Debug)]
pub struct SocketFilter {
    fd: OwnedFd,
}

impl SocketFilter {
    /// One that adds 1 to `refused` for each packet, and lets none in. It may be dropped once it is
    /// attached.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn refusing(refused: &Number) -> Result<Self, LoadError> {
        let [address, address_high] = refused.address(1);
        Self::load(
            "refuse",
            &[
                address,
                address_high,
                Instruction::new(MOVE, 2, 0, 0, 1),
                Instruction::new(ATOMIC_ADD, 1, 2, 0, 0),
                Instruction::new(MOVE, 0, 0, 0, 0),
                Instruction::new(EXIT, 0, 0, 0, 0),
            ],
        )
    }

    fn load(name: &str, code: &[Instruction]) -> Result<Self, LoadError> {
        let mut log = vec![0_u8; LOG_LEN];
        let mut attr = ProgramLoad {
            kind: PROGRAM_SOCKET_FILTER,
            code_len: len(code),
            code: code.as_ptr().expose_provenance() as u64,
            license: LICENSE.as_ptr().expose_provenance() as u64,
            log_level: 1,
            log_len: len(&log),
            log: log.as_mut_ptr().expose_provenance() as u64,
            name: short(name),
            ..ProgramLoad::default()
        };
        let fd = bpf(BPF_PROG_LOAD, &mut attr).and_then(descriptor);
        fd.map(|fd| Self { fd }).map_err(|error| LoadError {
            error,
            log: text(&log),
        })
    }

    /// Attaches it in place of the socket's filter.
    ///
    /// # Errors
    /// `EPERM` when the socket's filter is locked, `ENOMEM` when its memory is used up.
    pub fn attach(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        packet::attach_program(socket, self.fd.as_fd())
    }
}

/// enum bpf_prog_type.
const PROGRAM_SOCKET_FILTER: u32 = 1;

/// BPF_ALU64 | BPF_MOV | BPF_K; BPF_STX | BPF_ATOMIC | BPF_DW, with BPF_ADD as its immediate 0;
/// BPF_JMP | BPF_EXIT.
const MOVE: u8 = 0xb7;
const ATOMIC_ADD: u8 = 0xdb;
const EXIT: u8 = 0x95;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn what_a_socket_refuses_is_counted() {
        let refused = Number::new("refused").unwrap();
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let filter = SocketFilter::refusing(&refused).unwrap();
        filter.attach(to.as_fd()).unwrap();
        drop(filter);
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..3 {
            from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        }
        assert_eq!(refused.get().unwrap(), 3);
        to.set_nonblocking(true).unwrap();
        assert!(to.recv(&mut [0]).is_err());
    }
}
