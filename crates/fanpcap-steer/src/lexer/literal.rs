//! Numbers, strings, and addresses without quotes.

use super::is_of_word;
use crate::Error;
use crate::error::quote;
use std::borrow::Cow;
use std::net::Ipv6Addr;

/// How many bytes of text the address at the start of `rest` takes, including "/" and the prefix
/// length if they follow it. `None` if no address is there. The address may be IPv4, IPv6 or
/// Ethernet.
pub(super) fn address(rest: &str) -> Option<usize> {
    let begins = |c: char| c.is_ascii_hexdigit() || c == ':';
    if !rest.starts_with(begins) {
        return None;
    }
    let bytes = colons(rest).or_else(|| dots(rest))?;
    let prefix = rest[bytes..].strip_prefix('/').map_or(0, prefix);
    let is_address = prefix > 0 || &rest[..bytes] != "::";
    is_address.then_some(if prefix > 0 {
        bytes + 1 + prefix
    } else {
        bytes
    })
}

/// The length of the IPv6 or Ethernet address at the start of `rest`, which is a word with at least
/// two colons.
fn colons(rest: &str) -> Option<usize> {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    let text = rest[..end].trim_end_matches('.');
    if text.matches(':').count() < 2 || rest[text.len()..].starts_with(is_of_word) {
        return None;
    }
    let is_address = text.parse::<Ipv6Addr>().is_ok();
    (is_address || text.starts_with(|c: char| c.is_ascii_digit()) || is_ethernet(text))
        .then_some(text.len())
}

fn is_ethernet(text: &str) -> bool {
    text.len() == 17 && text.split(':').all(|byte| byte.len() == 2)
}

/// The length of the IPv4 address at the start of `rest`, which is several numbers with single dots
/// between them.
fn dots(rest: &str) -> Option<usize> {
    let mut end = digits(rest);
    let first = end;
    while let Some(more) = rest[end..].strip_prefix('.').map(digits) {
        if more == 0 {
            break;
        }
        end += 1 + more;
    }
    (first > 0 && end > first).then_some(end)
}

/// How many bytes of text a prefix length or a mask takes. The checker refuses masks.
fn prefix(text: &str) -> usize {
    dots(text).unwrap_or_else(|| digits(text))
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// A number and its length: decimal, `0x` hexadecimal, `0o` octal, `0b` binary.
pub(super) fn number(rest: &str) -> Result<(u64, usize), Error> {
    let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
    let text = &rest[..end];
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.get(..2) {
        Some("0x") => (&lower[2..], 16),
        Some("0o") => (&lower[2..], 8),
        Some("0b") => (&lower[2..], 2),
        _ => (lower.as_str(), 10),
    };
    if let Ok(number) = u64::from_str_radix(digits, radix) {
        return Ok((number, end));
    }
    let is_long = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    let expected = if is_long {
        "a number of 64 bits"
    } else {
        "a number"
    };
    let message = format!("expected {expected}, found {}", quote(text));
    let error = Error::new(0..end, message);
    Err(if is_long {
        error.hint(format!("the largest is {}", u64::MAX))
    } else {
        error.hint("numbers are decimal, 0x hexadecimal, 0o octal or 0b binary")
    })
}

/// A string without its quotes and escapes, and its length in the source.
pub(super) fn text(rest: &str) -> Result<(Cow<'_, str>, usize), Error> {
    let body = &rest[1..];
    let plain = body.find(['"', '\\', '\n']).unwrap_or(body.len());
    if body[plain..].starts_with('"') {
        return Ok((Cow::Borrowed(&body[..plain]), plain + 2));
    }
    let mut text = String::new();
    let mut characters = body.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Ok((Cow::Owned(text), at + 2)),
            '\n' => break,
            '\\' => text.push(match characters.next() {
                Some((_, c @ ('"' | '\\'))) => c,
                other => return Err(escape(at + 1, other.map(|(_, c)| c))),
            }),
            c => text.push(c),
        }
    }
    let message = "expected '\"' at this string's end, found the end of the line";
    Err(Error::new(0..1, message))
}

fn escape(at: usize, found: Option<char>) -> Error {
    let found = found.map_or("the end".to_owned(), |c| quote(&c.to_string()));
    let message = format!("expected '\"' or '\\' after this backslash, found {found}");
    Error::new(at..at + 1, message)
}
