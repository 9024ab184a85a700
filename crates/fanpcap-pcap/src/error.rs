//! The error type for functions of libpcap.

use fanpcap_linux::object::text;
use std::ffi::{CString, c_char};
use std::fmt;

/// The failure of a function of libpcap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The function that failed.
    pub call: &'static str,
    /// The error message, usually libpcap's.
    pub reason: String,
}

impl Error {
    pub(crate) fn new(call: &'static str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { call, reason }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.reason)
    }
}

impl std::error::Error for Error {}

pub(crate) fn c_text(call: &'static str, bytes: &[u8]) -> Result<CString, Error> {
    CString::new(bytes).map_err(|_| Error::new(call, "the text has a zero byte"))
}

/// `PCAP_ERRBUF_SIZE`.
const ERRBUF_SIZE: usize = 256;

/// The buffer to which functions without a handle write their error message.
pub(crate) struct Errbuf([c_char; ERRBUF_SIZE]);

impl Errbuf {
    pub(crate) fn new() -> Self {
        Self([0; ERRBUF_SIZE])
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut c_char {
        self.0.as_mut_ptr()
    }

    pub(crate) fn error(&mut self, call: &'static str) -> Error {
        self.0[ERRBUF_SIZE - 1] = 0;
        // SAFETY: the last byte is zero.
        Error::new(call, unsafe { text(self.0.as_ptr()) })
    }
}
