//! Puts our reader into a handle of the system's library.

use crate::handles::breaks;
use crate::message::ERRBUF_SIZE;
use crate::read::read;
use crate::system::{self, Pcap};
use crate::{handles, head, several};
use fanpcap_group::steered::Steered;
use fanpcap_linux::packet::{Filter, is_packet_socket};
use fanpcap_reader::{Direction, Kept, Options, Reader, Tell};
use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Link types whose packets are in the ring as the program gets them (pcap/dlt.h).
pub(crate) const EN10MB: c_int = 1;
const RAW: c_int = 12;

/// Hardly a packet is longer. Where one is, the reader cuts it.
const LONGEST: u32 = 65_535;

/// Reads `p` by our reader from now on, if it is one that we serve: else the system's library goes on to,
/// which programs can't tell but by what it costs.
///
/// # Safety
/// `p` is a handle that has just been activated.
pub(crate) unsafe fn take_over(p: *mut Pcap) {
    // SAFETY: the caller vouches for `p`.
    let Some((linktype, socket)) = (unsafe { served(p) }) else {
        return;
    };
    // SAFETY: as above.
    let options = unsafe { options(p, linktype) };
    let reader = fanpcap_tpacket::open(socket).and_then(|input| Reader::new(input, &options));
    if let Ok(reader) = reader {
        // SAFETY: as above.
        unsafe { install(p, reader) };
    }
}

/// Has the kernel cut the packets of a handle that we read to its snapshot length, where the program has set
/// no filter that does. It takes the kernel some microseconds, so a group is joined before.
///
/// # Safety
/// `p` is an activated handle; `reader_of` is the one that the program has.
pub(crate) unsafe fn truncate(p: *mut Pcap, reader_of: *mut Pcap) {
    // SAFETY: the caller vouches for both.
    let is_ours = unsafe { head::reader(reader_of, read) }.is_some();
    // SAFETY: as above.
    let snaplen = u32::try_from(unsafe { system::pcap_snapshot(p) });
    let Some(snaplen) = snaplen.ok().filter(|&snaplen| is_ours && snaplen < LONGEST) else {
        return;
    };
    // SAFETY: as above.
    if let Some((_, socket)) = unsafe { served(p) } {
        // A VLAN tag goes back in behind the addresses, and counts for the length.
        let keep = Filter::keep(snaplen.max(AFTER_ADDRESSES.into()));
        // Best effort: what the kernel does not cut off, the reader does.
        if let Some(steered) = handles::steered(p) {
            let _ = steered.truncate(socket, keep);
        } else if Filter::of(socket).is_ok_and(|filter| filter.is_none()) {
            let _ = keep.attach(socket);
        }
    }
}

/// Reads the handles of several devices together, as the first of them.
///
/// # Errors
/// Why that can't be. The system's library can't do it either.
///
/// # Safety
/// They are handles that have just been activated, one or more.
pub(crate) unsafe fn take_over_several(all: &[*mut Pcap]) -> Result<(), String> {
    // SAFETY: the caller vouches for them.
    if unsafe { head::reader(all[0], read) }.is_some() {
        return Ok(());
    }
    let mut sockets = Vec::new();
    let mut linktypes = Vec::new();
    for &p in all {
        // SAFETY: the caller vouches for them.
        let (linktype, socket) = unsafe { served(p) }.ok_or(
            "several devices in one handle must be Ethernet devices, or all without a link layer",
        )?;
        sockets.push(socket);
        linktypes.push(linktype);
    }
    let (first, linktype) = (all[0], linktypes[0]);
    if linktypes.iter().any(|other| *other != linktype) {
        return Err("the devices have other link types: open each by itself".to_owned());
    }
    // SAFETY: as above.
    let options = unsafe { options(first, linktype) };
    let failed = |error| format!("can't read several devices together: {error}");
    let inputs = sockets.into_iter().map(fanpcap_tpacket::open);
    let inputs = inputs.collect::<io::Result<_>>().map_err(failed)?;
    let reader = Reader::of_several(inputs, &options).map_err(failed)?;
    // SAFETY: as above.
    if !unsafe { install(first, reader) } {
        return Err("this libpcap's handles can't be read by fanpcap".to_owned());
    }
    Ok(())
}

/// Has the reader of a handle keep the counters of its members, one for each device, on their pages.
///
/// # Safety
/// `p` is an activated handle, the one that the program has.
pub(crate) unsafe fn keep_counters(p: *mut Pcap) {
    // SAFETY: the caller vouches for `p`.
    let Some(reader) = (unsafe { head::reader(p, read) }) else {
        handles::with(p, |entry| {
            if let Some((member, _)) = &entry.member {
                member.read_by_system();
            }
        });
        return;
    };
    for (device, part) in several::all(p).into_iter().enumerate() {
        let of_member = |entry: &mut handles::Entry| entry.member.as_ref()?.0.read_by_us();
        if let Some(kept) = handles::with(part, of_member).flatten() {
            let kept = Kept {
                taken: kept.taken,
                received: kept.received,
                dropped: kept.dropped,
                reading: kept.reading,
                read_ns: kept.read_ns,
                read_taken: kept.read_taken,
                idle_taken: kept.idle_taken,
                looked_ns: kept.looked_ns,
                more: kept
                    .steered
                    .map(|steered| Arc::new(OfProgram(steered)) as Arc<dyn Tell>),
            };
            reader.keep(device, kept);
        }
    }
}

/// The counters of a steering program.
#[derive(Debug)]
struct OfProgram(Arc<Steered>);

impl Tell for OfProgram {
    fn tell(&self) {
        self.0.publish();
    }

    fn goes_on(&self) -> bool {
        self.0.goes_on()
    }
}

/// The link type and socket of a handle that we can read.
///
/// # Safety
/// `p` is an activated handle.
unsafe fn served(p: *mut Pcap) -> Option<(c_int, BorrowedFd<'static>)> {
    // SAFETY: the caller vouches for `p`.
    let linktype = unsafe { system::pcap_datalink(p) };
    // SAFETY: as above.
    let fd = unsafe { system::pcap_fileno(p) };
    if fd < 0 || ![EN10MB, RAW].contains(&linktype) {
        return None;
    }
    // SAFETY: the handle's socket is open as long as the handle, and its reader goes before that.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let is_packet = is_packet_socket(socket).unwrap_or(false);
    is_packet.then_some((linktype, socket))
}

/// Puts a reader into a handle. Tells whether that was possible.
///
/// # Safety
/// `p` is a handle that has just been activated; nobody reads it yet.
unsafe fn install(p: *mut Pcap, reader: Reader) -> bool {
    let mut reader = Installed::new(reader);
    // SAFETY: the caller vouches for `p`; pcap_close() detaches the reader after the last read.
    let Some(own) = (unsafe { head::attach(p, read, reader.reader) }) else {
        return false;
    };
    reader.own = own;
    // From here on pcap_breakloop() finds the reader. It may have been called before.
    fence(Ordering::SeqCst);
    if breaks::take(p as usize) {
        reader.as_ref().break_loop();
    }
    handles::with_new(p, |entry| entry.reader = Some(reader));
    true
}

/// # Safety
/// `p` is an activated handle.
unsafe fn options(p: *mut Pcap, linktype: c_int) -> Options {
    const NANO: c_int = 1;
    // SAFETY: the caller vouches for `p`; so for the next two.
    let snaplen = unsafe { system::pcap_snapshot(p) };
    // SAFETY: as above.
    let precision = unsafe { system::pcap_get_tstamp_precision(p) };
    Options {
        snaplen: u32::try_from(snaplen).unwrap_or(u32::MAX),
        nanoseconds: precision == NANO,
        // SAFETY: as above.
        nonblocking: unsafe { is_nonblocking(p) },
        direction: Direction::InOut,
        tag_at: tag_at(linktype),
    }
}

/// # Safety
/// `p` is an activated handle.
unsafe fn is_nonblocking(p: *mut Pcap) -> bool {
    let mut errbuf = [0; ERRBUF_SIZE];
    // SAFETY: the caller vouches for `p`; the buffer has the length that libpcap asks for.
    unsafe { system::pcap_getnonblock(p, errbuf.as_mut_ptr()) == 1 }
}

/// Where a VLAN tag goes back in: in an Ethernet frame, after the addresses.
pub(crate) fn tag_at(linktype: c_int) -> Option<u8> {
    (linktype == EN10MB).then_some(AFTER_ADDRESSES)
}

const AFTER_ADDRESSES: u8 = 12;

/// A reader at an address that handles have too.
#[derive(Debug)]
pub(crate) struct Installed {
    reader: NonNull<Reader>,
    /// What has read the handle before.
    own: *const c_void,
}

// SAFETY: a reader may be used from any thread, and is owned by this alone.
unsafe impl Send for Installed {}

impl Installed {
    fn new(reader: Reader) -> Self {
        Self {
            reader: NonNull::from(Box::leak(Box::new(reader))),
            own: null(),
        }
    }

    pub(crate) fn as_ref(&self) -> &Reader {
        // SAFETY: it lives until this is dropped.
        unsafe { self.reader.as_ref() }
    }

    /// Takes the reader out of the handle, and drops it.
    ///
    /// # Safety
    /// `p` is the handle that it is installed in, and nobody reads it any more.
    pub(crate) unsafe fn remove(self, p: *mut Pcap) {
        // SAFETY: the caller vouches for `p`.
        unsafe { head::detach(p, self.own) };
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // SAFETY: new() has leaked it, and nobody reads the handle any more.
        drop(unsafe { Box::from_raw(self.reader.as_ptr()) });
    }
}
