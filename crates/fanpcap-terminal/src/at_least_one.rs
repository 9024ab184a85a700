//! Numbers on command lines that must not be 0.

/// Parses a number of at least 1.
///
/// # Errors
/// The text is not such a number.
pub fn at_least_one(text: &str) -> Result<u64, String> {
    let number = text.parse().ok().filter(|&number| number > 0);
    number.ok_or_else(|| "write a number of at least 1".to_owned())
}
