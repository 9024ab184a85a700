//! A reader that is installed in a handle's head.

use crate::head;
use crate::pcap_handle::PcapHandle;
use fanpcap_reader::Reader;
use std::ffi::c_void;
use std::ptr::NonNull;

/// A reader that lives until this value is dropped.
#[derive(Debug)]
pub(crate) struct Installed {
    reader: NonNull<Reader>,
    /// The function with which the system's library read the handle before.
    own: *const c_void,
}

// SAFETY: a reader may be used from any thread, and only this value owns it.
unsafe impl Send for Installed {}

impl Installed {
    /// Installs a reader in a handle. Returns `None`, and drops the reader, if the handle's head is
    /// not as expected.
    ///
    /// # Safety
    /// No thread reads `p` meanwhile. [`Installed::remove`] is called before `p` is closed.
    pub(crate) unsafe fn new(p: PcapHandle, reader: Reader, read: head::Read) -> Option<Self> {
        let reader = NonNull::from(Box::leak(Box::new(reader)));
        // SAFETY: the caller guarantees `p`, and remove() detaches the reader.
        let own = unsafe { head::attach(p, read, reader) };
        let installed = |own| Self { reader, own };
        if own.is_none() {
            drop(installed(std::ptr::null()));
        }
        own.map(installed)
    }

    pub(crate) fn as_ref(&self) -> &Reader {
        // SAFETY: the reader lives until this value is dropped.
        unsafe { self.reader.as_ref() }
    }

    /// Removes the reader from the handle, and drops it.
    ///
    /// # Safety
    /// `p` is the handle of the reader, and no thread reads it any more.
    pub(crate) unsafe fn remove(self, p: PcapHandle) {
        // SAFETY: attach() has returned `own` for this handle.
        unsafe { head::detach(p, self.own) };
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // SAFETY: new() has leaked the box, and nobody reads the handle any more.
        drop(unsafe { Box::from_raw(self.reader.as_ptr()) });
    }
}
