//! A handle of the system's library as a value, and the functions of the library that need only an
//! open handle.

use crate::errbuf::{self, ERRBUF_SIZE};
use crate::system::{self, ERROR, Pcap, Setter, Stats, system};
use std::ffi::c_int;
use std::os::fd::BorrowedFd;

/// An open handle, as C callers pass it. A copy is the same handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct PcapHandle(*mut Pcap);

// SAFETY: a handle belongs to the process, not to a thread. The application is responsible for
// calling only functions that threads may call at the same time (pcap(3PCAP)).
unsafe impl Send for PcapHandle {}

// SAFETY: without a call of the library a handle is only a number; see Send.
unsafe impl Sync for PcapHandle {}

/// Declares safe methods for functions that take an open handle and numbers.
macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident = $function:ident;)*) => {
        $(
            $(#[$doc])*
            pub(crate) fn $name(self) -> c_int {
                let function = system().$function;
                // SAFETY: the handle is open, and the function takes nothing else.
                function.map_or(ERROR, |function| unsafe { function(self.0) })
            }
        )*
    };
}

impl PcapHandle {
    /// # Safety
    /// `p` is a handle of the system's library, and open as long as the value or a copy is used.
    pub(crate) unsafe fn new(p: *mut Pcap) -> Self {
        Self(p)
    }

    /// The handle that an opening function has returned; `None` for null.
    ///
    /// # Safety
    /// As [`PcapHandle::new`], or null.
    pub(crate) unsafe fn opened(p: *mut Pcap) -> Option<Self> {
        (!p.is_null()).then_some(Self(p))
    }

    /// A handle for Ethernet that reads nothing (pcap_open_dead(3PCAP)).
    pub(crate) fn dead(snaplen: c_int) -> Option<Self> {
        const ETHERNET: c_int = 1;
        // SAFETY: the function takes any numbers.
        let p = unsafe { system::pcap_open_dead(ETHERNET, snaplen) };
        (!p.is_null()).then_some(Self(p))
    }

    pub(crate) fn pointer(self) -> *mut Pcap {
        self.0
    }

    /// The key of the handle in tables.
    pub(crate) fn address(self) -> usize {
        self.0 as usize
    }

    calls! {
        /// The system library's pcap_activate(3PCAP).
        fn activate = pcap_activate;
        /// See pcap_datalink(3PCAP).
        fn datalink = pcap_datalink;
        /// See pcap_snapshot(3PCAP).
        fn snapshot = pcap_snapshot;
        /// See pcap_get_tstamp_precision(3PCAP).
        fn tstamp_precision = pcap_get_tstamp_precision;
        /// The system library's pcap_fileno(3PCAP).
        fn fileno = pcap_fileno;
        /// The system library's pcap_get_selectable_fd(3PCAP).
        fn selectable_fd = pcap_get_selectable_fd;
    }

    pub(crate) fn set(self, setter: Setter, value: c_int) -> c_int {
        // SAFETY: the handle is open, and each setter in the library's table takes any number.
        setter(system()).map_or(ERROR, |function| unsafe { function(self.0, value) })
    }

    /// Whether reads of the handle do not wait (pcap_getnonblock(3PCAP)).
    pub(crate) fn is_nonblocking(self) -> bool {
        let mut errbuf = [0; ERRBUF_SIZE];
        // SAFETY: the handle is open, and the buffer has the length that libpcap asks for.
        unsafe { system::pcap_getnonblock(self.0, errbuf.as_mut_ptr()) == 1 }
    }

    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fileno();
        // SAFETY: the handle's descriptor is open as long as the handle.
        (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// The handle's counters, as the system's library reports them.
    ///
    /// # Errors
    /// The status of pcap_stats(3PCAP) in the system's library.
    pub(crate) fn statistics(self) -> Result<Stats, c_int> {
        let mut counted = Stats::default();
        let function = system().pcap_stats;
        // SAFETY: the handle is open, and the struct is live for the call.
        let status = function.map_or(ERROR, |function| unsafe {
            function(self.0, &raw mut counted)
        });
        if status == 0 {
            Ok(counted)
        } else {
            Err(status)
        }
    }

    pub(crate) fn error(self) -> String {
        // SAFETY: the handle is open.
        let text = unsafe { system::pcap_geterr(self.0) };
        // SAFETY: libpcap's answer is a C string or null.
        unsafe { errbuf::string(text) }.unwrap_or_default()
    }

    /// Sets the handle's error text for pcap_geterr(3PCAP), and returns `PCAP_ERROR`.
    pub(crate) fn fail(self, text: &str) -> c_int {
        // SAFETY: the handle is open.
        let buffer = unsafe { system::pcap_geterr(self.0) };
        // SAFETY: pcap_geterr returns the handle's own buffer, of PCAP_ERRBUF_SIZE + 1 bytes
        // (pcap-int.h).
        unsafe { errbuf::write(buffer, text) };
        ERROR
    }

    /// Closes the handle in the system's library.
    ///
    /// # Safety
    /// Neither the value nor a copy is used again.
    pub(crate) unsafe fn close(self) {
        if let Some(function) = system().pcap_close {
            // SAFETY: the handle is open, and the caller guarantees that it is not used again.
            unsafe { function(self.0) };
        }
    }
}
