//! Rings of PF_RING in safe Rust.

use crate::environment;
use crate::error::OpenError;
use crate::functions::{
    self, DEMO_ENDED, Functions, Header, NO_PACKET, NO_ROOM, NOT_SUPPORTED, PacketInfo, Pfring,
    Stat,
};
use fanpcap_linux::{packet, process};
use std::ffi::{CString, c_int};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::ptr::{NonNull, null_mut, with_exposed_provenance_mut};
use std::sync::Arc;
use std::time::Duration;
use std::{io, slice};

/// How a ring is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of each packet to keep.
    pub snaplen: u32,
    /// The number of the ring's cluster, and how its packets are shared (`cluster_type`).
    pub cluster: Option<(u16, i32)>,
    /// Whether packets that the host sends come too.
    pub outgoing: bool,
    /// Whether the device takes frames for other hosts, too.
    pub is_promiscuous: bool,
}

/// A ring that is open. Any thread may call its functions.
pub struct Handle {
    ring: NonNull<Pfring>,
    functions: &'static Functions,
    /// The index of the device on which the module has the ring; `None` for a ring of a driver,
    /// such as `zc:eth0`.
    ifindex: Option<c_int>,
    /// Whether the kernel module has the ring, and no driver of the library.
    is_of_module: bool,
}

// SAFETY: the library keeps no state of threads. Packets are received by the only `Receiver`. All
// other functions only read.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// The receiving side of a ring.
pub struct Receiver {
    handle: Arc<Handle>,
    header: Box<Header>,
    infos: Box<[PacketInfo; BURST]>,
    /// Whether the library can receive several packets at once here.
    has_bursts: bool,
}

// SAFETY: the pointers in `infos` are those of the ring, which any one thread may use.
unsafe impl Send for Receiver {}

/// The most packets of a burst.
const BURST: usize = 64;

/// A packet in the memory of the ring.
#[derive(Debug)]
pub struct Received<'ring> {
    data: NonNull<u8>,
    captured: u32,
    /// Bytes of the packet on the wire.
    pub wire_len: u32,
    /// The time of day of its arrival; 0 if the ring does not have it.
    pub stamp: Duration,
    /// Whether the host sends the packet.
    pub is_sent: bool,
    /// The hash from the device; 0 if there is no hash.
    pub hash: u32,
    ring: PhantomData<&'ring mut [u8]>,
}

/// The counters of a ring since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were received, and are read.
    pub read: u64,
    /// Packets for which the ring had no room.
    pub dropped: u64,
}

/// Opens a ring on a device, such as `eth0`, `zc:eth0` or `zc:eth0@1`. Packets come from now on.
///
/// # Errors
/// See [`OpenError`].
pub fn open(device: &str, options: &Options) -> Result<Receiver, OpenError> {
    if let Some(name) = environment::obeyed(process::is_secure()) {
        return Err(OpenError::Environment(name));
    }
    let functions = functions::load().map_err(OpenError::Library)?;
    let invalid = |_| OpenError::Failed("pfring_open", io::ErrorKind::InvalidInput.into());
    let name = CString::new(device).map_err(invalid)?;
    let is_of_module = !device.contains(':');
    let promiscuous = u32::from(options.is_promiscuous) * PROMISCUOUS;
    let symmetric = u32::from(!is_of_module) * SYMMETRIC_RSS;
    let flags = promiscuous | symmetric;
    // Not all of the library's errors set errno.
    // SAFETY: no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: errno is the calling thread's.
    unsafe { errno.write(0) };
    // SAFETY: the name is a C string that lives through the call.
    let ring = unsafe { (functions.open)(name.as_ptr(), options.snaplen, flags) };
    let Some(ring) = NonNull::new(ring) else {
        return Err(OpenError::of_open(io::Error::last_os_error()));
    };
    let mut handle = Handle {
        ring,
        functions,
        ifindex: None,
        is_of_module,
    };
    handle.ifindex = handle.bound();
    handle.prepare(options)?;
    Ok(Receiver {
        handle: Arc::new(handle),
        header: Box::new(Header::EMPTY),
        infos: Box::new([PacketInfo::EMPTY; BURST]),
        has_bursts: true,
    })
}

impl Handle {
    fn prepare(&self, options: &Options) -> Result<(), OpenError> {
        let ring = self.ring.as_ptr();
        if let Some(fd) = self.waits_on() {
            // The library opens it without this flag. A program that the application runs would
            // keep the ring in its cluster after the application's end.
            let failed = |error| OpenError::Failed("F_SETFD", error);
            packet::close_on_exec(fd).map_err(failed)?;
        }
        if !options.outgoing {
            // SAFETY: the ring is open.
            let rc = unsafe { (self.functions.set_direction)(ring, RECEIVED_ONLY) };
            // A ring without this function receives only anyway.
            check("pfring_set_direction", rc, true)?;
        }
        if let Some((number, kind)) = options.cluster {
            self.enter(number, kind)?;
        }
        // poll(2) then wakes for one packet.
        // SAFETY: as above.
        let rc = unsafe { (self.functions.set_poll_watermark)(ring, 1) };
        check("pfring_set_poll_watermark", rc, true)?;
        // SAFETY: as above.
        let rc = unsafe { (self.functions.enable_ring)(ring) };
        check("pfring_enable_ring", rc, false)
    }

    /// Enters a cluster. The options are those of the cluster's first ring. `RELAXED` matters most
    /// when a ring leaves: its place stays, and without the option the module gives the packets of
    /// that place to nobody until another ring takes it. Versions without the option keep no place.
    fn enter(&self, number: u16, kind: i32) -> Result<(), OpenError> {
        let ring = self.ring.as_ptr();
        let Some(set_cluster_consumer) = self.functions.set_cluster_consumer else {
            // SAFETY: the ring is open.
            let rc = unsafe { (self.functions.set_cluster)(ring, number.into(), kind) };
            return check("pfring_set_cluster", rc, false).map_err(of_cluster);
        };
        // SAFETY: as above.
        let rc = unsafe { set_cluster_consumer(ring, number, ANY_PLACE, kind, RELAXED) };
        check("pfring_set_cluster_consumer", rc, false).map_err(of_cluster)
    }

    /// The index of the device on which the module has the ring now. After a removal of the device
    /// it is the index of no device (pf_ring.c: `none_dev`).
    fn bound(&self) -> Option<c_int> {
        let mut index = 0;
        let ring = self.ring.as_ptr();
        // SAFETY: the ring is open, and the number lives through the call.
        let rc = unsafe { (self.functions.get_bound_device_ifindex)(ring, &raw mut index) };
        (self.is_of_module && rc == 0).then_some(index)
    }

    /// The counters. Allocates nothing.
    ///
    /// # Errors
    /// The ring has no counters.
    pub fn counts(&self) -> io::Result<Counts> {
        let mut stat = Stat::default();
        // SAFETY: the ring is open, and the struct lives through the call.
        let rc = unsafe { (self.functions.stats)(self.ring.as_ptr(), &raw mut stat) };
        if rc != 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Counts {
            read: stat.received,
            dropped: stat.dropped,
        })
    }

    /// The descriptor that poll(2) finds readable when packets have come. `None` for a ring that
    /// must be polled.
    pub fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the ring is open.
        let fd = unsafe { (self.functions.get_selectable_fd)(self.ring.as_ptr()) };
        // SAFETY: the descriptor is open as long as the ring.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// The number of the device's receive queues; 1 if it is not known.
    pub fn queues(&self) -> u8 {
        // SAFETY: the ring is open.
        let queues = unsafe { (self.functions.get_num_rx_channels)(self.ring.as_ptr()) };
        queues.max(1)
    }
}

/// Says what the module may mean by EINVAL and EPERM (pf_ring.c: `add_sock_to_cluster_list`).
fn of_cluster(error: OpenError) -> OpenError {
    let OpenError::Failed(function, error) = error else {
        return error;
    };
    let reason = match error.raw_os_error() {
        Some(libc::EINVAL) => {
            "a cluster is of one device, so if another device has a group of this number, take \
             another number"
        }
        Some(libc::EPERM) => "the cluster has all 64 rings that a cluster can have",
        _ => return OpenError::Failed(function, error),
    };
    OpenError::Failed(function, io::Error::other(format!("{error}: {reason}")))
}

/// What the library has after [`Handle::detach`].
struct Detached {
    /// The ring's descriptor, which is that of another socket now.
    fd: RawFd,
    /// The inodes of the ring and of the other socket.
    ring: u64,
    other: u64,
}

impl Handle {
    /// Puts another socket in the place of the ring's. That socket refuses all further requests of
    /// the library's.
    fn detach(&self) -> io::Result<Detached> {
        let other = UnixDatagram::unbound()?;
        let fd = self.waits_on().ok_or(io::ErrorKind::Unsupported)?;
        let detached = Detached {
            fd: fd.as_raw_fd(),
            ring: packet::inode(fd)?,
            other: packet::inode(other.as_fd())?,
        };
        // Without /proc, `free` could not unmap the ring, and the module would keep it.
        packet::mappings(detached.ring)?;
        // SAFETY: dup3 takes plain numbers. Nothing but the library has the ring's descriptor.
        match unsafe { libc::dup3(other.as_raw_fd(), detached.fd, libc::O_CLOEXEC) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(detached),
        }
    }
}

impl Detached {
    /// Frees what the library has not freed. `pfring_close` of a library without hiredis keeps the
    /// memory and the descriptor, unless `PF_RING_RUNTIME_MANAGER` is set (pfring.c, 8.9.0).
    fn free(self) {
        for (begin, end) in packet::mappings(self.ring).unwrap_or_default() {
            let (at, len) = (with_exposed_provenance_mut(begin), end - begin);
            // SAFETY: the ring is closed, so nobody uses its memory in this process.
            unsafe { libc::munmap(at, len) };
        }
        // SAFETY: fstat(2) is the only use. It fails if the descriptor is closed.
        let fd = unsafe { BorrowedFd::borrow_raw(self.fd) };
        if packet::inode(fd).is_ok_and(|it| it == self.other) {
            // SAFETY: the descriptor is still that of `detach`, and only the closed ring has it.
            drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
        }
    }
}

/// A forked child has a copy of the ring. The module frees the ring when all copies are closed
/// (pf_ring.c: `ring_release`).
impl Drop for Handle {
    fn drop(&mut self) {
        if self.bound() != self.ifindex {
            // The module frees the ring of such a device, but leaves it in its cluster. A ring
            // outside of clusters refuses the call.
            // SAFETY: the ring is open, and nobody uses it any more.
            unsafe { (self.functions.remove_from_cluster)(self.ring.as_ptr()) };
        }
        // `pfring_close` shuts the ring down for all processes that have a copy
        // (`SO_SHUTDOWN_RING`). It does so here, too, if no descriptor is free for another socket.
        let detached = self.is_of_module.then(|| self.detach());
        // SAFETY: as above.
        unsafe { (self.functions.close)(self.ring.as_ptr()) };
        if let Some(Ok(detached)) = detached {
            detached.free();
        }
    }
}

impl Receiver {
    /// The ring.
    pub fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Takes the next packet without waiting. Its bytes stay valid until the next call, and as long
    /// as the receiver lives.
    ///
    /// # Errors
    /// The ring is closed or broken.
    pub fn receive(&mut self) -> io::Result<Option<Received<'_>>> {
        let mut data = null_mut();
        let ring = self.handle.ring.as_ptr();
        let (room, header) = (&raw mut data, &raw mut *self.header);
        // With a length of 0, the library stores the address of the packet in its own memory.
        // SAFETY: the ring is open, and `&mut self` makes this the only call that receives. The
        // library writes an address to `data` and fewer bytes than the header has.
        match unsafe { (self.handle.functions.recv)(ring, room, 0, header, 0) } {
            0 | NO_PACKET => Ok(None),
            1.. => Ok(received(&self.header, data)),
            rc => Err(broken(rc)),
        }
    }

    /// Takes the next packets without waiting, at most `most`, and passes them to `lend`. Their
    /// bytes stay valid until the next call. A ring without bursts has one packet at a time.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn burst<'r>(
        &'r mut self,
        most: usize,
        mut lend: impl FnMut(Received<'r>),
    ) -> io::Result<()> {
        let most = most.min(BURST);
        if self.has_bursts && most > 0 {
            let ring = self.handle.ring.as_ptr();
            let (infos, count) = (self.infos.as_mut_ptr(), u8::try_from(most).unwrap_or(1));
            // SAFETY: as above; the library writes `count` structs at most.
            match unsafe { (self.handle.functions.recv_burst)(ring, infos, count, 0) } {
                NOT_SUPPORTED => self.has_bursts = false,
                NO_PACKET => return Ok(()),
                count @ 0.. => {
                    let count = usize::try_from(count).unwrap_or(0);
                    let infos = self.infos.iter().take(count);
                    infos.filter_map(of_burst).for_each(lend);
                    return Ok(());
                }
                rc => return Err(broken(rc)),
            }
        }
        if most > 0 {
            if let Some(packet) = self.receive()? {
                lend(packet);
            }
        }
        Ok(())
    }
}

impl Receiver {
    /// Sends a frame. Returns false if the device has no room for the frame now.
    ///
    /// # Errors
    /// The ring can't send, or can't send this frame.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        let len = u32::try_from(frame.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The library only reads the frame, although the header has a pointer to mutable bytes.
        let (ring, data) = (self.handle.ring.as_ptr(), frame.as_ptr().cast_mut());
        // SAFETY: the ring is open, and the frame has `len` bytes. `&mut self` makes this the only
        // call that sends.
        match unsafe { (self.handle.functions.send)(ring, data.cast(), len, 1) } {
            0.. => Ok(true),
            NO_ROOM => Ok(false),
            NOT_SUPPORTED => Err(io::ErrorKind::Unsupported.into()),
            DEMO_ENDED => Err(broken(DEMO_ENDED)),
            _ => Err(io::Error::other("pfring_send")),
        }
    }
}

impl<'ring> Received<'ring> {
    /// The captured bytes, which the application may change.
    pub fn into_bytes(self) -> &'ring mut [u8] {
        // SAFETY: the library returned this address and length, and the bytes are valid as long as
        // the receiver is borrowed. The ring's memory is writable, and the value, which is never
        // copied, ends here: so nothing else refers to the bytes.
        unsafe { slice::from_raw_parts_mut(self.data.as_ptr(), self.captured as usize) }
    }
}

fn received<'ring>(header: &Header, data: *mut u8) -> Option<Received<'ring>> {
    let stamp = match header.stamp_ns {
        0 => time_of_day(header.seconds, header.microseconds),
        stamp_ns => Duration::from_nanos(stamp_ns),
    };
    Some(Received {
        data: NonNull::new(data)?,
        captured: header.captured,
        wire_len: header.len,
        stamp,
        is_sent: header.is_received == 0,
        hash: 0,
        ring: PhantomData,
    })
}

fn of_burst<'ring>(info: &PacketInfo) -> Option<Received<'ring>> {
    Some(Received {
        data: NonNull::new(info.data)?,
        captured: info.captured.into(),
        wire_len: info.len.into(),
        stamp: time_of_day(info.seconds, info.microseconds),
        is_sent: false,
        hash: info.hash,
        ring: PhantomData,
    })
}

fn time_of_day(seconds: i64, microseconds: i64) -> Duration {
    let [seconds, microseconds] = [seconds, microseconds].map(|it| u64::try_from(it).unwrap_or(0));
    Duration::from_secs(seconds) + Duration::from_micros(microseconds.min(999_999))
}

/// The error of a function of the library. `may_lack`: the ring may lack the function.
fn check(function: &'static str, rc: c_int, may_lack: bool) -> Result<(), OpenError> {
    match rc {
        0 => Ok(()),
        NOT_SUPPORTED if may_lack => Ok(()),
        DEMO_ENDED => Err(OpenError::Failed(function, broken(rc))),
        NOT_SUPPORTED => {
            let error = io::Error::from(io::ErrorKind::Unsupported);
            Err(OpenError::Failed(function, error))
        }
        _ => Err(OpenError::failed(function, io::Error::last_os_error())),
    }
}

/// The error of a ring that receives or sends no more.
fn broken(rc: c_int) -> io::Error {
    io::Error::other(match rc {
        DEMO_ENDED => "the demo mode of ZC has ended: it needs a licence of ntop",
        _ => "PF_RING has closed the ring",
    })
}

/// `PF_RING_PROMISC`.
const PROMISCUOUS: u32 = 1 << 3;

/// `PF_RING_ZC_SYMMETRIC_RSS`: both directions of a flow come to one receive queue. ntop's own
/// programs ask for it.
const SYMMETRIC_RSS: u32 = 1 << 0;

/// `CLUSTER_OPTION_RELAXED_DISTRIBUTION`: a packet comes to the next ring if that of its place has
/// left or has no room.
const RELAXED: u32 = 1;

/// `MAX_CLUSTER_QUEUES` or more: the first place that is free.
const ANY_PLACE: u16 = u16::MAX;

/// `rx_only_direction`.
const RECEIVED_ONLY: c_int = 1;

#[cfg(test)]
mod tests;
