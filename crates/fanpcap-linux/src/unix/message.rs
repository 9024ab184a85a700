//! Sends and receives messages that carry descriptors (`SCM_RIGHTS`, unix(7)), and peeks at such
//! messages in a queue.

use crate::option::set;
use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The most descriptors in a message.
pub const DESCRIPTORS_MAX: usize = 24;

/// A received message.
#[derive(Debug)]
pub struct Message {
    /// How many bytes of the buffer the message fills.
    pub len: usize,
    /// The message's descriptors, which are closed on exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Sends a message with duplicates of `descriptors`, without waiting.
///
/// # Errors
/// - `InvalidInput` for more descriptors than [`DESCRIPTORS_MAX`], and for a message without bytes,
///   which the receiver would take for the end of the connection.
/// - `EAGAIN` when the send buffer has no room.
/// - `QuotaExceeded` when the user has as many descriptors in transit as a process may open
///   (`RLIMIT_NOFILE`).
/// - `EPIPE` when the other end is closed.
/// - `EMSGSIZE` when the message is larger than the send buffer.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if bytes.is_empty() || descriptors.len() > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut control = Control::with(descriptors);
    // The kernel only reads the bytes.
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let header = header(&mut part, &mut control, descriptors.len());
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the header's buffers are live, with their own lengths. The call only reads them.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const header, flags) };
    match usize::try_from(sent).map_err(|_| io::Error::last_os_error()) {
        Ok(_) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => Err(too_many()),
        Err(error) => Err(error),
    }
}

fn too_many() -> io::Error {
    let text = "this user's descriptors in the queues of Unix sockets have reached the number that \
                this process may open (ulimit -n)";
    io::Error::new(io::ErrorKind::QuotaExceeded, text)
}

/// Takes the next message out of the queue, without waiting. The message may have at most `room`
/// descriptors. Returns `None` when the other end is closed.
///
/// # Errors
/// - `EAGAIN` when no message is in the queue.
/// - `InvalidInput` when `room` is above [`DESCRIPTORS_MAX`], or when the buffer is empty.
/// - `InvalidData` when the message has more bytes than the buffer or more descriptors than `room`,
///   or when the process can't open more descriptors (`RLIMIT_NOFILE`). The message is then lost,
///   and all its descriptors are closed.
pub fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8], room: usize) -> io::Result<Option<Message>> {
    take(fd, buffer, room, 0)
}

/// Peeks at the message at byte `offset` of the queue, and duplicates its descriptors. The queue
/// does not change. `offset` is the sum of the lengths of all earlier messages in the queue.
/// Returns `None` at the end of the queue.
///
/// The offset is a state of the socket (`SO_PEEK_OFF`), not of the descriptor. So processes that
/// share the socket must not call this function at the same time.
///
/// # Errors
/// As [`receive`], but no message is lost. In place of `EAGAIN`, the function returns `None`.
pub fn peek_at(
    fd: BorrowedFd<'_>,
    offset: u32,
    buffer: &mut [u8],
    room: usize,
) -> io::Result<Option<Message>> {
    let offset = c_int::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    set(fd, libc::SOL_SOCKET, libc::SO_PEEK_OFF, &offset)?;
    match take(fd, buffer, room, libc::MSG_PEEK) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        result => result,
    }
}

fn take(
    fd: BorrowedFd<'_>,
    buffer: &mut [u8],
    room: usize,
    flags: c_int,
) -> io::Result<Option<Message>> {
    if buffer.is_empty() || room > DESCRIPTORS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut control = Control::with(&[]);
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut header = header(&mut part, &mut control, room);
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let len = loop {
        // SAFETY: the header's buffers are live and writable, with their own lengths.
        let len = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut header, flags) };
        match usize::try_from(len).map_err(|_| io::Error::last_os_error()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            len => break len?,
        }
    };
    // If the message was cut off, the descriptors are dropped, which closes them.
    let descriptors = control.take(header.msg_controllen);
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(cut(header.msg_flags));
    }
    Ok((len > 0).then_some(Message { len, descriptors }))
}

fn cut(flags: c_int) -> io::Error {
    let text = if flags & libc::MSG_TRUNC != 0 {
        "the message has more bytes than expected"
    } else {
        "the message has more descriptors than expected, or this process can't open more \
         (ulimit -n)"
    };
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// Control data: one `struct cmsghdr` (linux/socket.h), then up to [`DESCRIPTORS_MAX`] descriptors.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// Bytes of struct cmsghdr: length, level and type.
const HEADER_LEN: usize = 16;
const DESCRIPTOR_LEN: usize = size_of::<RawFd>();
const CONTROL_LEN: usize = HEADER_LEN + DESCRIPTORS_MAX * DESCRIPTOR_LEN;
const _: () = assert!(size_of::<Control>() == CONTROL_LEN);

impl Control {
    /// Makes control data with these descriptors, which may be at most [`DESCRIPTORS_MAX`].
    fn with(descriptors: &[BorrowedFd<'_>]) -> Self {
        let len = HEADER_LEN + descriptors.len() * DESCRIPTOR_LEN;
        let numbers = descriptors.iter().map(|fd| fd.as_raw_fd().to_ne_bytes());
        let mut bytes = Vec::from(len.to_ne_bytes());
        bytes.extend(libc::SOL_SOCKET.to_ne_bytes());
        bytes.extend(libc::SCM_RIGHTS.to_ne_bytes());
        bytes.extend(numbers.flatten());
        let mut control = Self([0; CONTROL_LEN]);
        for (to, from) in control.0.iter_mut().zip(bytes) {
            *to = from;
        }
        control
    }

    /// Returns the descriptors whose numbers the kernel has written to the first `len` bytes.
    fn take(&self, len: usize) -> Vec<OwnedFd> {
        let mut all = Vec::new();
        let mut rest = self.0.get(..len).unwrap_or(&self.0);
        while let Some((len, data)) = first(rest) {
            all.extend(data.into_iter().flatten().map(|number| {
                // SAFETY: the kernel has opened the descriptor for this message, and no other value
                // owns it.
                unsafe { OwnedFd::from_raw_fd(number) }
            }));
            rest = rest.get(len.next_multiple_of(8)..).unwrap_or_default();
        }
        all
    }
}

/// Returns the length of the first control message, and its descriptors if it carries descriptors.
fn first(bytes: &[u8]) -> Option<(usize, Option<Vec<RawFd>>)> {
    let number = |at: usize| {
        Some(c_int::from_ne_bytes(
            bytes.get(at..at + 4)?.try_into().ok()?,
        ))
    };
    let len = usize::from_ne_bytes(bytes.get(..8)?.try_into().ok()?);
    let data = bytes.get(HEADER_LEN..len)?;
    let has_descriptors = (number(8)?, number(12)?) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    let numbers = data.chunks_exact(DESCRIPTOR_LEN);
    let numbers = numbers.filter_map(|bytes| Some(RawFd::from_ne_bytes(bytes.try_into().ok()?)));
    Some((len, has_descriptors.then(|| numbers.collect())))
}

/// Returns a header for one part and this many descriptors. The header is valid as long as `part`
/// and `control`.
fn header(part: &mut libc::iovec, control: &mut Control, descriptors: usize) -> libc::msghdr {
    // SAFETY: zeros are a valid value of this struct: null addresses and no lengths.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    if descriptors > 0 {
        header.msg_control = (&raw mut *control).cast();
        // This length excludes the padding at the end. Otherwise the kernel would put one more
        // descriptor into the padding.
        header.msg_controllen = HEADER_LEN + descriptors * DESCRIPTOR_LEN;
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::inode;
    use crate::unix::{pair, set_send_buffer};
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    fn sockets<const N: usize>() -> [UdpSocket; N] {
        [(); N].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap())
    }

    fn inodes<F: AsFd>(all: &[F]) -> Vec<u64> {
        all.iter().map(|fd| inode(fd.as_fd()).unwrap()).collect()
    }

    fn borrowed<F: AsFd>(all: &[F]) -> Vec<BorrowedFd<'_>> {
        all.iter().map(AsFd::as_fd).collect()
    }

    #[test]
    fn descriptors_arrive_in_their_order_and_are_closed_on_exec() {
        let [from, to] = pair().unwrap();
        let all: [UdpSocket; DESCRIPTORS_MAX] = sockets();
        for count in 0..=DESCRIPTORS_MAX {
            send(from.as_fd(), b"some", &borrowed(&all[..count])).unwrap();
            let mut buffer = [0; 8];
            let message = receive(to.as_fd(), &mut buffer, count).unwrap().unwrap();
            assert_eq!(&buffer[..message.len], b"some");
            assert_eq!(inodes(&message.descriptors), inodes(&all[..count]));
            for fd in &message.descriptors {
                // SAFETY: fcntl takes plain numbers here.
                let flags = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) };
                assert_eq!(flags, libc::FD_CLOEXEC);
            }
        }
    }

    #[test]
    fn an_offset_skips_whole_messages_and_the_queue_stays() {
        let [from, to] = pair().unwrap();
        let all: [UdpSocket; 3] = sockets();
        let texts: [&[u8]; 3] = [b"first", b"2", b"the third"];
        for (text, socket) in texts.iter().zip(&all) {
            send(from.as_fd(), text, &[socket.as_fd()]).unwrap();
        }
        let mut buffer = [0; 16];
        for _ in 0..2 {
            let mut offset = 0;
            for (text, socket) in texts.iter().zip(&all) {
                let message = peek_at(to.as_fd(), offset, &mut buffer, 1);
                let message = message.unwrap().unwrap();
                assert_eq!(&&buffer[..message.len], text);
                assert_eq!(inodes(&message.descriptors), inodes(&[socket]));
                offset += u32::try_from(message.len).unwrap();
            }
            assert!(
                peek_at(to.as_fd(), offset, &mut buffer, 1)
                    .unwrap()
                    .is_none()
            );
        }
        // Peeks at the middle message a second time, then takes all messages in order. All messages
        // are there, because peeking takes none.
        let middle = peek_at(to.as_fd(), 5, &mut buffer, 1).unwrap().unwrap();
        assert_eq!((middle.len, buffer[0]), (1, b'2'));
        for text in texts {
            let message = receive(to.as_fd(), &mut buffer, 1).unwrap().unwrap();
            assert_eq!(&buffer[..message.len], text);
        }
        let nothing = receive(to.as_fd(), &mut buffer, 1).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_message_that_was_peeked_at_keeps_its_descriptors_open() {
        let [from, to] = pair().unwrap();
        let pipe = crate::wait::pipe::Pipe::new().unwrap();
        send(from.as_fd(), b"x", &[pipe.write.as_fd()]).unwrap();
        drop(pipe.write);
        drop(peek_at(to.as_fd(), 0, &mut [0], 1).unwrap());
        assert!(!crate::wait::pipe::has_hung_up(pipe.read.as_fd()).unwrap());
        drop((from, to));
        assert!(crate::wait::pipe::hangs_up(pipe.read.as_fd()));
    }

    #[test]
    fn what_has_no_room_is_an_error_and_closed() {
        let [from, to] = pair().unwrap();
        let pipe = crate::wait::pipe::Pipe::new().unwrap();
        let both = [pipe.write.as_fd(), pipe.write.as_fd()];
        for (bytes, room, text) in [(2, 1, "more descriptors"), (1, 2, "more bytes")] {
            send(from.as_fd(), b"xx", &both).unwrap();
            for _ in 0..2 {
                let error = peek_at(to.as_fd(), 0, &mut [0; 2][..bytes], room).unwrap_err();
                assert!(error.to_string().contains(text), "{error}");
            }
            let error = receive(to.as_fd(), &mut [0; 2][..bytes], room).unwrap_err();
            assert!(error.to_string().contains(text), "{error}");
        }
        drop(pipe.write);
        assert!(crate::wait::pipe::hangs_up(pipe.read.as_fd()));
    }

    #[test]
    fn limits_and_the_end_are_told_apart() {
        let [from, to] = pair().unwrap();
        set_send_buffer(from.as_fd(), 10_000).unwrap();
        let all: [UdpSocket; DESCRIPTORS_MAX + 1] = sockets();
        for refused in [
            send(from.as_fd(), b"", &[]),
            send(from.as_fd(), b"x", &borrowed(&all)),
        ] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let full = loop {
            if let Err(error) = send(from.as_fd(), b"x", &[all[0].as_fd()]) {
                break error;
            }
        };
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(from);
        while matches!(receive(to.as_fd(), &mut [0], 1), Ok(Some(_))) {}
        assert!(crate::wait::pipe::hangs_up(to.as_fd()));
        assert!(receive(to.as_fd(), &mut [0], 1).unwrap().is_none());
        let broken = send(to.as_fd(), b"x", &[]).unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    }
}
