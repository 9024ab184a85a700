//! Messages to C buffers, and the wall that no panic passes.

use std::ffi::{CStr, c_char, c_int};
use std::panic::{self, AssertUnwindSafe};

use crate::system::{self, ERROR, Pcap};
use fanpcap_linux::process::signal::Uncancelled;

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

/// Runs the body of an entry point of ours, wholly: a thread that is cancelled is so before or after,
/// and a panic, which only a defect of ours can cause, becomes `failed` of its message.
pub(crate) fn guard<T>(body: impl FnOnce() -> T, failed: impl FnOnce(&str) -> T) -> T {
    let _cancelled_later = Uncancelled::new();
    panic::catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        failed(&format!(
            "fanpcap: internal error: {}",
            text.unwrap_or("panic")
        ))
    })
}

/// The text of a C string; none for null.
///
/// # Safety
/// `text` is null or a C string.
unsafe fn string(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for it.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// What pcap_geterr() says of a handle.
///
/// # Safety
/// `p` is a handle of the system's library.
pub(crate) unsafe fn system_error(p: *mut Pcap) -> String {
    // SAFETY: the caller vouches for `p`.
    let said = unsafe { system::pcap_geterr(p) };
    // SAFETY: libpcap's answer is a C string or null.
    unsafe { string(said) }.unwrap_or_default()
}

/// Gives the caller of pcap_open_live() the warning that came with the handle.
///
/// # Safety
/// `p` is a handle, `errbuf` as libpcap asks.
pub(crate) unsafe fn pass_on(p: *mut Pcap, errbuf: *mut c_char) {
    // SAFETY: the caller vouches for `p`.
    let warning = unsafe { system::pcap_geterr(p) };
    // SAFETY: libpcap's answer is a C string or null.
    if let Some(text) = unsafe { string(warning) } {
        // SAFETY: the caller vouches for the buffer.
        unsafe { write(errbuf, &text) };
    }
}

const NO_SUCH_DEVICE: c_int = -5;
const PERM_DENIED: c_int = -8;
const PROMISC_PERM_DENIED: c_int = -11;

/// Says in `errbuf` why a handle could not be activated, in the words of pcap_open_live() (pcap.c).
///
/// # Safety
/// `p` is a handle, `device` null or a C string, `errbuf` as libpcap asks.
pub(crate) unsafe fn explain(
    p: *mut Pcap,
    device: *const c_char,
    status: c_int,
    errbuf: *mut c_char,
) {
    // SAFETY: takes any number.
    let reason = unsafe { system::pcap_statustostr(status) };
    // SAFETY: the caller vouches for `p`.
    let error = unsafe { system::pcap_geterr(p) };
    // SAFETY: libpcap's answers are C strings or null, and the caller vouches for `device`.
    let string = |text: *const c_char| unsafe { string(text) };
    let device = string(device).unwrap_or_else(|| "any".to_owned());
    let reason = string(reason).unwrap_or_default();
    let error = string(error).unwrap_or_default();
    let text = match status {
        // A report on settings starts with its own place, and needs the room.
        ERROR if error.len() + device.len() + 3 > ERRBUF_SIZE => error,
        ERROR => format!("{device}: {error}"),
        NO_SUCH_DEVICE | PERM_DENIED | PROMISC_PERM_DENIED if !error.is_empty() => {
            format!("{device}: {reason} ({error})")
        }
        _ => format!("{device}: {reason}"),
    };
    // SAFETY: the caller vouches for the buffer.
    unsafe { write(errbuf, &text) };
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
