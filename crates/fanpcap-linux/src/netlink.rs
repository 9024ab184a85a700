//! Netlink: a request to the kernel, and the messages of its answer (netlink(7), linux/netlink.h).

pub mod address;
pub mod diag;
pub mod link;
pub mod monitor;
pub mod netdev;
pub mod route;
pub mod host_use;

use crate::bytes::{u16_at, u32_at};
use crate::errno::owned;
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

const NLM_F_REQUEST: u16 = 0x0001;
const NLM_F_DUMP: u16 = 0x0300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Bits of an attribute's type that are not flags (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;
const HEADER_LEN: usize = 16;
/// Larger than any datagram from the kernel. A dump's datagrams have at most 32 KiB.
const ANSWER_LEN: usize = 64 * 1024;

/// A type of request, and the type of the messages that answer the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) protocol: c_int,
    pub(crate) asks: u16,
    pub(crate) answers: u16,
}

impl Question {
    /// Requests one object and returns the payload of the answer.
    pub(crate) fn get(self, body: &[u8]) -> io::Result<Vec<u8>> {
        let netlink = open(self.protocol)?;
        send(&netlink, &self.request(0, body))?;
        let mut answer = vec![0; ANSWER_LEN];
        let len = receive(&netlink, &mut answer, 0)?;
        let mut found = None;
        self.read(&answer[..len], &mut |payload| {
            found = Some(payload.to_vec());
            Some(())
        })?;
        found.ok_or_else(malformed)
    }

    /// Requests all objects and passes each payload to `each`. The function `each` returns `None`
    /// for a malformed payload.
    pub(crate) fn list(
        self,
        body: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Option<()>,
    ) -> io::Result<()> {
        self.list_by(&open(self.protocol)?, body, each)
    }

    /// Requests all objects as [`Question::list`] does, but by an open netlink socket. The answer
    /// has the objects of the socket's network namespace.
    pub(crate) fn list_by(
        self,
        netlink: &OwnedFd,
        body: &[u8],
        each: &mut dyn FnMut(&[u8]) -> Option<()>,
    ) -> io::Result<()> {
        send(netlink, &self.request(NLM_F_DUMP, body))?;
        let mut answer = vec![0; ANSWER_LEN];
        let listed = self.answered(netlink, &mut answer, each);
        if listed.is_err() {
            // Discards the rest of this answer. Otherwise the next request by this socket would
            // read this rest as its answer.
            while receive(netlink, &mut answer, libc::MSG_DONTWAIT).is_ok_and(|len| len > 0) {}
        }
        listed
    }

    fn answered(
        self,
        netlink: &OwnedFd,
        answer: &mut [u8],
        each: &mut dyn FnMut(&[u8]) -> Option<()>,
    ) -> io::Result<()> {
        loop {
            let len = receive(netlink, answer, 0)?;
            if self.read(&answer[..len], each)? {
                return Ok(());
            }
        }
    }

    /// Builds nlmsghdr (length, type, flags, sequence, port) and the body after it.
    fn request(self, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        let len = u32::try_from(HEADER_LEN + body.len()).unwrap_or(u32::MAX);
        bytes.extend(len.to_ne_bytes());
        bytes.extend(self.asks.to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        bytes
    }

    /// Reads one datagram of an answer. Returns true when the list is complete.
    fn read(self, mut bytes: &[u8], each: &mut dyn FnMut(&[u8]) -> Option<()>) -> io::Result<bool> {
        while let Some(len) = u32_at(bytes, 0).map(|len| len as usize) {
            let message = bytes
                .get(..len)
                .filter(|_| len >= HEADER_LEN)
                .ok_or_else(malformed)?;
            let payload = &message[HEADER_LEN..];
            match u16_at(message, 4) {
                // The message that ends a list also has an error code; 0 is success.
                Some(NLMSG_DONE) if u32_at(payload, 0).unwrap_or(0) == 0 => return Ok(true),
                Some(NLMSG_DONE | NLMSG_ERROR) => return Err(error_of(payload)),
                Some(kind) if kind == self.answers => each(payload).ok_or_else(malformed)?,
                _ => {}
            }
            bytes = bytes.get(align(len)..).unwrap_or_default();
        }
        Ok(false)
    }
}

/// Passes each attribute's type and value to `visit`. An attribute whose length is beyond the end
/// of the data ends the list.
pub(crate) fn for_each_attribute(mut rest: &[u8], mut visit: impl FnMut(u16, &[u8])) {
    while let (Some(len), Some(kind)) = (u16_at(rest, 0).map(usize::from), u16_at(rest, 2)) {
        let Some(value) = rest.get(4..len) else {
            return;
        };
        visit(kind & TYPE_MASK, value);
        rest = rest.get(align(len)..).unwrap_or_default();
    }
}

/// Rounds a length up: messages and attributes begin at multiples of four.
fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

fn error_of(payload: &[u8]) -> io::Error {
    u32_at(payload, 0).map_or_else(malformed, |code| {
        let code = i32::from_ne_bytes(code.to_ne_bytes());
        io::Error::from_raw_os_error(code.wrapping_neg())
    })
}

/// Returns the error for an answer that does not have netlink's layout.
pub(crate) fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed netlink answer")
}

pub(crate) fn open(protocol: c_int) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes plain numbers.
    owned(unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) })
}

fn send(netlink: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let source: *const c_void = bytes.as_ptr().cast();
    // SAFETY: `source` points to `bytes.len()` readable bytes. An unconnected netlink socket sends
    // to the kernel.
    let sent = unsafe { libc::send(netlink.as_raw_fd(), source, bytes.len(), 0) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn receive(netlink: &OwnedFd, buffer: &mut [u8], flags: c_int) -> io::Result<usize> {
    loop {
        let target: *mut c_void = buffer.as_mut_ptr().cast();
        // SAFETY: `target` points to `buffer.len()` writable bytes.
        let received = unsafe { libc::recv(netlink.as_raw_fd(), target, buffer.len(), flags) };
        match usize::try_from(received).map_err(|_| io::Error::last_os_error()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: Question = Question {
        protocol: libc::NETLINK_ROUTE,
        asks: 18,
        answers: 16,
    };

    #[test]
    fn truncated_answers_are_errors_or_silence_never_panics() {
        let mut whole = QUESTION.request(0, &[0; 24]);
        whole[4..6].copy_from_slice(&QUESTION.answers.to_ne_bytes());
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            for claimed in [0_u32, 15, 16, 36, 40, 60, u32::MAX] {
                if let Some(head) = cut.get_mut(..4) {
                    head.copy_from_slice(&claimed.to_ne_bytes());
                }
                let _ = QUESTION.read(&cut, &mut |payload| {
                    for_each_attribute(payload, |_, value| assert!(value.len() <= len));
                    Some(())
                });
            }
        }
    }

    #[test]
    fn attributes_that_lie_about_their_length_end_the_list() {
        for bytes in [&[0, 0, 3, 0][..], &[255, 255, 3, 0, 1], &[4, 0], &[]] {
            for_each_attribute(bytes, |_, value| assert!(value.len() <= bytes.len()));
        }
    }

    #[test]
    fn a_kernel_error_is_told() {
        let mut bytes = vec![];
        bytes.extend(20_u32.to_ne_bytes());
        bytes.extend(NLMSG_ERROR.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend((-libc::ENOENT).to_ne_bytes());
        let error = QUESTION.read(&bytes, &mut |_| Some(())).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }
}
