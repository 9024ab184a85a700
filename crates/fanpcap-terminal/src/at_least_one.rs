//! Numbers on command lines that must not be 0.

use std::str::FromStr;

/// Parses a number of at least 1.
///
/// # Errors
/// The text is not such a number.
pub fn at_least_one<N: FromStr + PartialOrd + From<u8>>(text: &str) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| *number >= N::from(1));
    number.ok_or_else(|| "write a number of at least 1".to_owned())
}
