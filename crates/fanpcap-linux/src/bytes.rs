//! Reads numbers and texts from bytes that the kernel has written.

/// The number at this offset, in native byte order.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The number at this offset, in native byte order.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// The text up to the first zero byte, or up to the end if there is no zero byte.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}
