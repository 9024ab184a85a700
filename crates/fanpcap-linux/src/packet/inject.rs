//! Sends whole frames on an interface by a packet socket. One system call sends one frame or many.

use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use crate::interface;
use crate::option::{self, socklen};
use crate::packet::{self, Address, sockaddr};

/// Sends a frame on the interface to which a packet socket is bound. The socket's protocol does not
/// matter. Returns how many bytes were sent.
///
/// # Errors
/// `ENETDOWN`, `EMSGSIZE`, `ENOBUFS` and other errors of sendto(2).
pub fn send(socket: BorrowedFd<'_>, frame: &[u8]) -> io::Result<usize> {
    send_as(socket, frame, 0)
}

fn send_as(socket: BorrowedFd<'_>, frame: &[u8], flags: c_int) -> io::Result<usize> {
    // For ETH_P_ALL the kernel reads the protocol in the frame (`packet_parse_headers`).
    let to = libc::sockaddr_ll {
        sll_protocol: packet::ETH_P_ALL.to_be(),
        ..sockaddr(socket)?
    };
    let len = socklen::<libc::sockaddr_ll>();
    // SAFETY: the frame and the address live through the call, and have the given lengths.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            flags,
            (&raw const to).cast(),
            len,
        )
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Sends a frame as [`send`] does, without waiting. Returns false if the device's queue or the
/// socket has no room for the frame now.
///
/// # Errors
/// As [`send`], except `ENOBUFS` and `EAGAIN`.
pub fn try_send(socket: BorrowedFd<'_>, frame: &[u8]) -> io::Result<bool> {
    match send_as(socket, frame, libc::MSG_DONTWAIT) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// A packet socket that only sends. Its protocol is 0, so the kernel delivers no packets to it.
#[derive(Debug)]
pub struct Injector {
    socket: OwnedFd,
}

impl Injector {
    /// Opens `device` of the calling thread's network namespace.
    ///
    /// # Errors
    /// `ENODEV` for an unknown device, `EPERM` without `CAP_NET_RAW`.
    pub fn open(device: &str) -> io::Result<Self> {
        let ifindex =
            interface::index(device).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let socket = packet::open()?;
        packet::bind(
            socket.as_fd(),
            Address {
                ifindex,
                protocol: 0,
            },
        )?;
        Ok(Self { socket })
    }

    /// Opens `device` as [`Injector::open`] does, but the frames skip the queueing discipline
    /// (`PACKET_QDISC_BYPASS`). The number of the transmit queue is then the number of the sending
    /// CPU, modulo the number of queues (`packet_pick_tx_queue`). So [`crate::process::cpu::pin`]
    /// chooses the queue. Packet sockets on the device do not receive these frames.
    ///
    /// # Errors
    /// As [`Injector::open`].
    pub fn open_bypass(device: &str) -> io::Result<Self> {
        let injector = Self::open(device)?;
        option::set(
            injector.socket.as_fd(),
            libc::SOL_PACKET,
            PACKET_QDISC_BYPASS,
            &1_i32,
        )?;
        Ok(injector)
    }

    /// Sends one frame, including its link-layer header.
    ///
    /// # Errors
    /// `ENETDOWN`, `EMSGSIZE`, `ENOBUFS` and other errors of send(2).
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: the pointer and the length are those of one live slice.
        let sent = unsafe {
            libc::send(
                self.socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
            )
        };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Sends all `frames` in order, up to 64 with each system call.
    ///
    /// # Errors
    /// As [`Injector::send`]. The frames before the failed frame have been sent.
    pub fn send_all<F: AsRef<[u8]>>(&self, frames: &[F]) -> io::Result<()> {
        let mut rest = frames;
        while !rest.is_empty() {
            let sent = self.send_some(rest)?;
            rest = &rest[sent..];
        }
        Ok(())
    }

    /// Sends `frames` in order with one system call. Returns how many frames were sent. Not all
    /// frames are sent if there are more than [`BATCH`], or if the device accepts no more frames.
    ///
    /// # Errors
    /// As [`Injector::send`], if the first frame can't be sent. `ENOBUFS` when a device without a
    /// queueing discipline accepts no more frames at present. `EINTR` when a signal arrived.
    pub fn send_some<F: AsRef<[u8]>>(&self, frames: &[F]) -> io::Result<usize> {
        let mut parts: Vec<libc::iovec> = frames
            .iter()
            .take(BATCH)
            .map(|frame| libc::iovec {
                iov_base: frame.as_ref().as_ptr().cast_mut().cast(),
                iov_len: frame.as_ref().len(),
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts.iter_mut().map(message).collect();
        // SAFETY: each message points to one element of `parts`, which points to one frame. All of
        // them live through the call, which only reads the frames. BATCH limits the count.
        let sent = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                u32::try_from(messages.len()).unwrap_or(0),
                0,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

fn message(part: &mut libc::iovec) -> libc::mmsghdr {
    // SAFETY: mmsghdr is plain data. Zeros mean that a field is absent.
    let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
    message.msg_hdr.msg_iov = part;
    message.msg_hdr.msg_iovlen = 1;
    message
}

/// linux/if_packet.h, since Linux 3.14.
const PACKET_QDISC_BYPASS: libc::c_int = 20;
/// The error of a device that accepts no more frames at present (errno(3)).
pub use libc::ENOBUFS;

/// The most frames for one system call.
pub const BATCH: usize = 64;
