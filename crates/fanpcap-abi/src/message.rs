//! Messages to C buffers, and the wall that no panic passes.

use std::ffi::{c_char, c_int};
use std::panic::{self, AssertUnwindSafe};

use crate::system::{self, ERROR, Pcap};

/// `PCAP_ERRBUF_SIZE`, the terminating zero included.
pub(crate) const ERRBUF_SIZE: usize = 256;

/// Writes `text`, cut to what fits, as a C string.
///
/// # Safety
/// `buffer` is null or has ERRBUF_SIZE writable bytes.
pub(crate) unsafe fn write(buffer: *mut c_char, text: &str) {
    if buffer.is_null() {
        return;
    }
    // SAFETY: the caller vouches for the buffer.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), ERRBUF_SIZE) };
    let text = &text[..fitting(text)];
    buffer[..text.len()].copy_from_slice(text.as_bytes());
    buffer[text.len()] = 0;
}

/// The length of the longest prefix that fits a buffer and cuts no character.
fn fitting(text: &str) -> usize {
    let end = text.len().min(ERRBUF_SIZE - 1);
    (0..=end)
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0)
}

/// Makes `text` what pcap_geterr() says of a handle, and returns PCAP_ERROR.
///
/// # Safety
/// `p` is a handle of the system's library.
pub(crate) unsafe fn fail(p: *mut Pcap, text: &str) -> c_int {
    // SAFETY: pcap_geterr returns the handle's own buffer, of PCAP_ERRBUF_SIZE + 1 bytes (pcap-int.h).
    let buffer = unsafe { system::pcap_geterr(p) };
    // SAFETY: as above.
    unsafe { write(buffer, text) };
    ERROR
}

/// Runs the body of an entry point. A panic, which only a defect of ours can cause, becomes `failed` of
/// its message.
pub(crate) fn guard<T>(body: impl FnOnce() -> T, failed: impl FnOnce(&str) -> T) -> T {
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        failed(&format!(
            "fanpcap: internal error: {}",
            text.unwrap_or("panic")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        let mut buffer = [1; ERRBUF_SIZE];
        let text = "ä".repeat(200);
        // SAFETY: the buffer has ERRBUF_SIZE bytes.
        unsafe { write(buffer.as_mut_ptr(), &text) };
        assert_eq!(buffer[254], 0, "254 bytes of two-byte characters fit");
    }

    #[test]
    fn a_panic_becomes_a_message() {
        let text = guard(|| panic!("boom"), str::to_owned);
        assert_eq!(text, "fanpcap: internal error: boom");
        assert_eq!(guard(|| 1, |_| 0), 1);
    }
}
