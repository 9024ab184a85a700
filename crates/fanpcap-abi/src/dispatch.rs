//! The function through which the system's library calls our reader, and access to a handle's
//! reader.

use crate::handles;
use crate::head;
use crate::pcap_handle::PcapHandle;
use crate::system::{Callback, ERROR, Header, Pcap};
use fanpcap::several;
use fanpcap_linux::wait::clock;
use fanpcap_reader::{Call, End, Packet, ReadError, Reader};
use std::ffi::c_int;

/// `PCAP_ERROR_BREAK`.
const BREAK: c_int = -2;

/// Reads a handle for the system's pcap_dispatch() and similar functions. Callbacks may throw or
/// longjmp, so no value with a destructor is live while a callback runs.
///
/// # Safety
/// As pcap_dispatch(3PCAP) requires. `p` has a reader.
pub(crate) unsafe extern "C-unwind" fn read(
    p: *mut Pcap,
    max: c_int,
    callback: Callback,
    user: *mut u8,
) -> c_int {
    // SAFETY: pcap_dispatch() was called with an open handle.
    let p = unsafe { PcapHandle::new(p) };
    // SAFETY: a handle is not closed while it is read, and its reader lives as long as the handle.
    let (Some(reader), Some(callback)) = (unsafe { head::reader(p, read) }, callback) else {
        return ERROR;
    };
    let mut call = Call::new(max);
    let mut packet = Packet::NONE;
    if reader.control().is_away() {
        if let Some(status) = await_device(p, reader, None) {
            return status;
        }
    }
    loop {
        // SAFETY: pcap_dispatch() asks that one thread at a time reads a handle.
        if let Err(end) = unsafe { reader.next(&mut call, &mut packet) } {
            match ended(p, reader, end) {
                Some(status) => return status,
                None => continue,
            }
        }
        let header: *const Header = (&raw const packet).cast();
        // SAFETY: a packet begins with a header. Its `caplen` bytes stay until the next packet is
        // asked for.
        unsafe { callback(user, header, packet.data) };
    }
}

/// The status with which a read ends; `None` if the read goes on.
#[cold]
fn ended(p: PcapHandle, reader: &Reader, end: End) -> Option<c_int> {
    match end {
        End::Delivered(count) => Some(count),
        End::Broken => Some(BREAK),
        End::Failed(error) if error.is_gone() => await_device(p, reader, Some(&error)),
        End::Failed(error) => Some(p.fail(&error.to_string())),
    }
}

/// Waits until the handle captures again on its device, which is gone. Returns the status with
/// which the read ends; `None` if the read goes on. `error` is the error of a handle that does not
/// wait.
#[cold]
fn await_device(p: PcapHandle, reader: &Reader, error: Option<&ReadError>) -> Option<c_int> {
    let Some(away) = handles::away(p) else {
        return error.map(|error| p.fail(&error.to_string()));
    };
    loop {
        away.clear();
        let Err(attempt) = (away.come_back)(p) else {
            // The application was woken by the news of the device, and does not expect that the
            // read waits for packets.
            return reader.control().is_asked().then_some(0);
        };
        let limit = match away.after(attempt, clock::monotonic_ns()) {
            Ok(limit) => limit,
            Err(text) => return Some(p.fail(&text)),
        };
        match reader.control().await_return(limit) {
            Ok(true) => {}
            Ok(false) => return Some(0),
            Err(_) => return Some(BREAK),
        }
    }
}

impl PcapHandle {
    /// Runs `look` on the reader of a handle that our reader reads.
    pub(crate) fn with_reader<T>(self, look: impl FnOnce(&Reader) -> T) -> Option<T> {
        // SAFETY: the handle is open while `look` runs, and its reader lives as long as the handle.
        unsafe { head::reader(self, read) }.map(look)
    }

    /// The descriptor on which an application can wait, if the socket alone does not suffice. The
    /// call also gives the handle its share of the group's packets. Otherwise an application that
    /// waits before its first read would never get any packets.
    pub(crate) fn descriptor(self) -> Option<c_int> {
        let descriptor = self.with_reader(|reader| reader.control().selectable())??;
        for part in several::all(self) {
            if let Some(membership) = handles::membership(part) {
                membership.note_asked();
            }
            if let Some(polled) = handles::polled(part) {
                polled.io.note_asked();
            }
        }
        Some(descriptor)
    }

    pub(crate) fn has_reader(self) -> bool {
        self.with_reader(|_| ()).is_some()
    }
}
