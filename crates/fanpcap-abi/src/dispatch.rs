//! The function by which the system's library calls our reader, and the access to a handle's
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

/// Reads a handle for the system's pcap_dispatch() and its like. Callbacks may throw or longjmp, so
/// nothing with a destructor lives here while one runs.
///
/// # Safety
/// As pcap_dispatch(3PCAP) asks. `p` has a reader.
pub(crate) unsafe extern "C-unwind" fn read(
    p: *mut Pcap,
    max: c_int,
    callback: Callback,
    user: *mut u8,
) -> c_int {
    // SAFETY: pcap_dispatch() was called with an open handle.
    let p = unsafe { PcapHandle::new(p) };
    // SAFETY: a handle that is read is not closed, and its reader goes with it.
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
        // SAFETY: a packet begins as a header, and has `caplen` bytes until the next one is asked
        // for.
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
        // SAFETY: the handle is open while `look` runs, and its reader goes with it.
        unsafe { head::reader(self, read) }.map(look)
    }

    /// The descriptor on which an application waits by itself, if it is not that of the handle's
    /// socket alone. In a group the handle takes its share by that. An application that waits
    /// before it reads would get none else.
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
