//! Numbers of groups on command lines.

/// Parses a group's number.
///
/// # Errors
/// The text is not a number from 0 to 65535.
pub fn group_number(text: &str) -> Result<u16, String> {
    let number = text.parse();
    number.map_err(|_| "a group is a number from 0 to 65535".to_owned())
}
