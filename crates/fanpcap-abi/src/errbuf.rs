//! libpcap's buffers for error texts.

use fanpcap_config::report::with_short_words;
use std::ffi::{CStr, c_char};

/// `PCAP_ERRBUF_SIZE`, the terminating zero included.
pub(crate) const ERRBUF_SIZE: usize = 256;

/// Writes `text` as a C string. A text that does not fit gets shorter paths, and is then cut: the
/// advice at its end comes before the whole path of a file.
///
/// # Safety
/// `buffer` is null or has ERRBUF_SIZE writable bytes.
pub(crate) unsafe fn write(buffer: *mut c_char, text: &str) {
    if buffer.is_null() {
        return;
    }
    // SAFETY: the caller guarantees the buffer, which is not null.
    let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), ERRBUF_SIZE) };
    let text = with_short_words(text, ERRBUF_SIZE - 1);
    let text = &text[..fitting(&text)];
    buffer[..text.len()].copy_from_slice(text.as_bytes());
    buffer[text.len()] = 0;
}

/// The length of the longest prefix that fits into a buffer and ends between two characters.
fn fitting(text: &str) -> usize {
    let end = text.len().min(ERRBUF_SIZE - 1);
    (0..=end)
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0)
}

/// The text of a C string; `None` for null. Bytes that are not UTF-8 are replaced.
///
/// # Safety
/// `text` is null or a C string.
pub(crate) unsafe fn string(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees the string, which is not null.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_between_characters() {
        let mut buffer = [1; ERRBUF_SIZE];
        let text = "ä".repeat(20) + &" ä".repeat(80);
        // SAFETY: the buffer has ERRBUF_SIZE bytes.
        unsafe { write(buffer.as_mut_ptr(), &text) };
        assert_eq!(
            buffer[254], 0,
            "254 bytes fit, and no other two-byte character"
        );
    }

    #[test]
    fn a_long_path_leaves_room_for_the_advice() {
        let mut buffer = [1; ERRBUF_SIZE];
        let path = "/a".repeat(140);
        // SAFETY: the buffer has ERRBUF_SIZE bytes.
        unsafe { write(buffer.as_mut_ptr(), &format!("{path}: remove this file")) };
        // SAFETY: the call above has written a C string.
        let text = unsafe { string(buffer.as_ptr()) }.unwrap();
        assert!(text.ends_with("/a: remove this file"), "{text}");
    }
}
