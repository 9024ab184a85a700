//! Error messages for C callers, and the boundary that stops panics and cancellation.

use crate::errbuf::{self, ERRBUF_SIZE};
use crate::pcap_handle::PcapHandle;
use crate::system::{self, ERROR};
use fanpcap_linux::process::signal::Uncancelled;
use std::ffi::{c_char, c_int};
use std::panic::{self, AssertUnwindSafe};

/// Runs the body of one of our entry points. Cancellation of the thread waits until the body has
/// returned. After a panic, returns the result of `failed`, which gets the panic's message. Only a
/// defect of ours can cause a panic.
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

/// Runs a body that returns a status. A panic becomes the handle's error.
pub(crate) fn guard_handle(p: PcapHandle, body: impl FnOnce() -> c_int) -> c_int {
    guard(body, |text| p.fail(text))
}

/// Runs a body that has an error buffer. A panic becomes the buffer's text.
///
/// # Safety
/// `errbuf` is null or has PCAP_ERRBUF_SIZE bytes.
pub(crate) unsafe fn guard_errbuf<T>(
    errbuf: *mut c_char,
    failed: T,
    body: impl FnOnce() -> T,
) -> T {
    guard(body, |text| {
        // SAFETY: the caller guarantees the buffer.
        unsafe { errbuf::write(errbuf, text) };
        failed
    })
}

const NO_SUCH_DEVICE: c_int = -5;
const PERM_DENIED: c_int = -8;
const PROMISC_PERM_DENIED: c_int = -11;

/// The reason why a handle on `device` could not be activated, in the words of pcap_open_live()
/// (pcap.c).
pub(crate) fn explain(p: PcapHandle, device: &str, status: c_int) -> String {
    // SAFETY: the function takes any number.
    let reason = unsafe { system::pcap_statustostr(status) };
    // SAFETY: libpcap's answer is a C string or null.
    let reason = unsafe { errbuf::string(reason) }.unwrap_or_default();
    let error = p.error();
    let text = match status {
        ERROR => format!("{device}: {error}"),
        NO_SUCH_DEVICE | PERM_DENIED | PROMISC_PERM_DENIED if !error.is_empty() => {
            format!("{device}: {reason} ({error})")
        }
        _ => format!("{device}: {reason}"),
    };
    match text.len() < ERRBUF_SIZE || error.is_empty() {
        true => text,
        // A long error ends with what to do, and a report on settings begins with the place of the
        // mistake.
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_message() {
        let text = guard(|| panic!("boom"), str::to_owned);
        assert_eq!(text, "fanpcap: internal error: boom");
        assert_eq!(guard(|| 1, |_| 0), 1);
    }
}
