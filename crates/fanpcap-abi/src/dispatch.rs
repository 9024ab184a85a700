//! The function through which the system's library calls our reader, and access to a handle's
//! reader.

use crate::handles;
use crate::head;
use crate::pcap_handle::PcapHandle;
use crate::system::{Callback, ERROR, Header, Pcap};
use fanpcap::several;
use fanpcap_reader::{Call, End, Packet, Reader};
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
    loop {
        // SAFETY: pcap_dispatch() asks that one thread at a time reads a handle.
        if let Err(end) = unsafe { reader.next(&mut call, &mut packet) } {
            return ended(p, end);
        }
        let header: *const Header = (&raw const packet).cast();
        // SAFETY: a packet begins with a header. Its `caplen` bytes stay until the next packet is
        // asked for.
        unsafe { callback(user, header, packet.data) };
    }
}

#[cold]
fn ended(p: PcapHandle, end: End) -> c_int {
    match end {
        End::Delivered(count) => count,
        End::Broken => BREAK,
        End::Failed(error) => p.fail(&error.to_string()),
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
        let descriptor = self.with_reader(Reader::selectable)??;
        for part in several::all(self) {
            if let Some(membership) = handles::membership(part) {
                membership.note_asked();
            }
        }
        Some(descriptor)
    }

    pub(crate) fn has_reader(self) -> bool {
        self.with_reader(|_| ()).is_some()
    }
}
