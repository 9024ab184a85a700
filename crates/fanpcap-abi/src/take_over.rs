//! Installs our reader in handles of the system's library.

use crate::dispatch::read;
use crate::handles::{self, breaks};
use crate::installed::Installed;
use crate::pcap_handle::PcapHandle;
use fanpcap::handle::{Life, Notes};
use fanpcap::several;
use fanpcap_linux::packet::{Filter, is_packet_socket};
use fanpcap_reader::{Direction, Input, Options, Reader};
use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Link types whose packets have the same form in the ring and in the application (pcap/dlt.h).
pub(crate) const EN10MB: c_int = 1;
const RAW: c_int = 12;

/// From this snapshot length in bytes on, the kernel is not asked to truncate packets. The reader
/// cuts longer packets, which are rare.
const LONGEST: u32 = 65_535;

/// Installs our reader in `p`, which has just been activated, if our reader supports such a handle.
/// Otherwise the system's library reads the handle: the application gets the same packets, at a
/// higher cost.
pub(crate) fn take_over(p: PcapHandle) {
    let Some((linktype, socket)) = served(p) else {
        return;
    };
    let options = options(p, linktype);
    let reader = fanpcap_engines::of_socket(socket).and_then(|input| Reader::new(input, &options));
    if let Ok(reader) = reader {
        install(p, reader);
    }
}

/// Installs our reader for the handle's engine or poller in `p`, which has just been activated as a
/// silent handle.
///
/// # Errors
/// The reason why the reader can't be installed.
pub(crate) fn take_over_on_engine(p: PcapHandle) -> Result<(), String> {
    let served = served(p).filter(|(linktype, _)| *linktype == EN10MB);
    let engine = p.notes().on_engine.map_or("", |asked| asked.engine.name());
    let (linktype, socket) =
        served.ok_or_else(|| format!("the engine {engine} reads only Ethernet devices"))?;
    let input = open(p, socket);
    let options = options(p, linktype);
    let reader = input.and_then(|input| Reader::new(input, &options));
    let reader = reader.map_err(|error| format!("opening the engine {engine}: {error}"))?;
    match install(p, reader) {
        true => Ok(()),
        false => Err("this libpcap's handles can't be read by fanpcap".to_owned()),
    }
}

/// Makes the kernel truncate the packets of a handle to its snapshot length, if our reader reads
/// `reader_of` and the application has set no filter. The truncation takes the kernel some
/// microseconds to set up, so the handle joins its group first.
pub(crate) fn truncate(p: PcapHandle, reader_of: PcapHandle) {
    if p.notes().on_engine.is_some() {
        // The engine truncates the packets.
        return;
    }
    let is_ours = reader_of.has_reader();
    let snaplen = u32::try_from(p.snapshot());
    let Some(snaplen) = snaplen.ok().filter(|&snaplen| is_ours && snaplen < LONGEST) else {
        return;
    };
    if let Some((_, socket)) = served(p) {
        // The reader inserts a VLAN tag after the addresses, so it needs all bytes of the
        // addresses. The snapshot length counts the tag too.
        let keep = Filter::keep(snaplen.max(AFTER_ADDRESSES.into()));
        // Best effort: the reader cuts what the kernel does not.
        if let Some(steered) = handles::steered(p) {
            let _ = steered.truncate(socket, keep);
        } else if Filter::of(socket).is_ok_and(|filter| filter.is_none()) {
            let _ = keep.attach(socket);
        }
    }
}

/// Installs one reader in the first of the handles on several devices, which have just been
/// activated. The reader reads all of them.
///
/// # Errors
/// The reason why no reader can be installed. The handle can't be read at all, because the system's
/// library can't read several devices.
pub(crate) fn take_over_several(all: &[PcapHandle]) -> Result<(), String> {
    let first = all[0];
    if first.has_reader() {
        return Ok(());
    }
    let mut sockets = Vec::new();
    let mut linktypes = Vec::new();
    for &p in all {
        let (linktype, socket) = served(p).ok_or(
            "several devices in one handle must be Ethernet devices, or all without a link layer",
        )?;
        sockets.push(socket);
        linktypes.push(linktype);
    }
    let linktype = linktypes[0];
    if linktypes.iter().any(|other| *other != linktype) {
        return Err("the devices have different link types: open a handle for each".to_owned());
    }
    let options = options(first, linktype);
    let inputs = all.iter().zip(sockets).map(|(p, socket)| open(*p, socket));
    let inputs = inputs.collect::<io::Result<_>>();
    let reader = inputs.and_then(|inputs| Reader::of_several(inputs, &options));
    let reader = reader.map_err(|error| format!("can't read several devices together: {error}"))?;
    if !install(first, reader) {
        return Err("this libpcap's handles can't be read by fanpcap".to_owned());
    }
    Ok(())
}

/// Makes the reader of `p` publish the counters of the handle's members. The handle has one member
/// for each device. If the system's library reads `p`, the member gets its share at once, because
/// there is no reader that could begin the share at its first read.
pub(crate) fn publish_counters(p: PcapHandle) {
    if !p.has_reader() {
        let membership = handles::with(p, |entry| {
            let (member, _) = entry.member.as_ref()?;
            member.read_by_system();
            member.membership().cloned()
        });
        if let Some(membership) = membership.flatten() {
            membership.begin_share_unread();
        }
        return;
    }
    for (device, part) in several::all(p).into_iter().enumerate() {
        if let Some(polled) = handles::polled(part) {
            p.with_reader(|reader| polled.attend_by(reader, device));
        }
        let of_member = |entry: &mut handles::Entry| {
            let (member, _) = entry.member.as_ref()?;
            Some((member.read_by_us(), member.membership().cloned()))
        };
        let (kept, membership) = handles::with(part, of_member).flatten().unwrap_or_default();
        if let Some(kept) = kept {
            p.with_reader(|reader| reader.keep(device, kept));
        }
        if let Some(membership) = membership {
            p.with_reader(|reader| reader.control().attend_to(device, membership));
        }
    }
}

/// The link type and socket of a handle; `None` if our reader does not support the handle.
fn served(p: PcapHandle) -> Option<(c_int, BorrowedFd<'static>)> {
    let (linktype, fd) = (p.datalink(), p.fileno());
    if fd < 0 || ![EN10MB, RAW].contains(&linktype) {
        return None;
    }
    // SAFETY: the handle's socket is open as long as the handle, and the reader is dropped before
    // that.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let is_packet = is_packet_socket(socket).unwrap_or(false);
    is_packet.then_some((linktype, socket))
}

/// Installs a reader in a handle that has just been activated. Returns false if the reader can't be
/// installed.
fn install(p: PcapHandle, reader: Reader) -> bool {
    // SAFETY: pcap_activate(3PCAP) asks that nobody reads the handle yet, and pcap_close() removes
    // the reader.
    let Some(reader) = (unsafe { Installed::new(p, reader, read) }) else {
        return false;
    };
    // From here on pcap_breakloop() finds the reader. If the application has called
    // pcap_breakloop() before, only `breaks` has the break, so pass it on to the reader.
    fence(Ordering::SeqCst);
    if breaks::take(p.address()) {
        reader.as_ref().control().break_loop();
    }
    handles::with_new(p, |entry| entry.reader = Some(reader));
    true
}

/// The input of a handle whose device is back.
///
/// # Errors
/// As [`fanpcap_engines::of_socket`].
pub(crate) fn input(p: PcapHandle) -> io::Result<Input> {
    let (_, socket) = served(p).ok_or(io::ErrorKind::NotConnected)?;
    open(p, socket)
}

/// The rings that a handle reads: rings that an engine or a poller fills, or the ring of its
/// socket.
fn open(p: PcapHandle, socket: BorrowedFd<'static>) -> io::Result<Input> {
    let notes = p.notes();
    if notes.on_engine.is_none() {
        return fanpcap_engines::of_socket(socket);
    }
    if let Some(polled) = handles::polled(p) {
        return polled.io.input(timeout(notes));
    }
    let membership = handles::membership(p).ok_or(io::ErrorKind::NotConnected)?;
    let (slot, rings) = membership.io().ok_or(io::ErrorKind::NotConnected)?;
    rings.input(slot, socket, timeout(notes))
}

/// The time within which a packet is delivered; 0: at once; `None`: no limit.
fn timeout(notes: Notes) -> Option<Duration> {
    let milliseconds = notes.timeout.and_then(|it| u64::try_from(it).ok());
    match milliseconds.filter(|&it| it > 0) {
        _ if notes.is_immediate => Some(Duration::ZERO),
        milliseconds => milliseconds.map(Duration::from_millis),
    }
}

fn options(p: PcapHandle, linktype: c_int) -> Options {
    const NANO: c_int = 1;
    Options {
        snaplen: u32::try_from(p.snapshot()).unwrap_or(u32::MAX),
        nanoseconds: p.tstamp_precision() == NANO,
        nonblocking: p.is_nonblocking(),
        direction: Direction::InOut,
        tag_at: tag_at(linktype),
    }
}

/// The offset at which the reader inserts a VLAN tag: in an Ethernet frame, after the addresses.
/// `None` for other link types.
pub(crate) fn tag_at(linktype: c_int) -> Option<u8> {
    (linktype == EN10MB).then_some(AFTER_ADDRESSES)
}

const AFTER_ADDRESSES: u8 = 12;
