//! Quantities: parsed from the command line, and printed short.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// The size of a ring in bytes: given as a number of KiB, as in tcpdump, or with a unit letter.
pub(super) fn ring_bytes(text: &str) -> Result<i32> {
    let (number, shift) = match text.to_ascii_uppercase().as_bytes() {
        [.., b'G'] => (&text[..text.len() - 1], 30),
        [.., b'M'] => (&text[..text.len() - 1], 20),
        [.., b'K'] => (&text[..text.len() - 1], 10),
        _ => (text, 10),
    };
    let number: u64 = number
        .parse()
        .context("write a number of KiB, or one with K, M or G behind it")?;
    ensure!(number > 0, "a ring needs at least 1 KiB");
    let bytes = number.checked_mul(1 << shift);
    let bytes = bytes.and_then(|bytes| i32::try_from(bytes).ok());
    bytes.context("libpcap's rings are below 2 GiB")
}

/// A time in seconds, such as 10 or 0.5.
pub(super) fn seconds(text: &str) -> Result<Duration> {
    match text.parse().map(Duration::try_from_secs_f64) {
        Ok(Ok(duration)) if !duration.is_zero() => Ok(duration),
        _ => bail!("write a number of seconds above 0"),
    }
}

/// A quantity with three or four digits and its unit's letter: 12.3k, 1.20M.
pub(super) fn short(quantity: f64) -> String {
    let mut scaled = quantity;
    let mut letters = ["", "k", "M", "G", "T", "P"].into_iter();
    let mut letter = letters.next().unwrap_or_default();
    // A quantity that would round to 1000 gets the next letter.
    while scaled >= 999.5 {
        let Some(next) = letters.next() else { break };
        scaled /= 1000.0;
        letter = next;
    }
    let decimals = match scaled {
        _ if letter.is_empty() => 0,
        scaled if scaled < 9.995 => 2,
        scaled if scaled < 99.95 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_in_kib_unless_a_letter_says_else() {
        assert_eq!(ring_bytes("4096").unwrap(), 4096 << 10);
        assert_eq!(ring_bytes("1k").unwrap(), 1 << 10);
        assert_eq!(ring_bytes("16M").unwrap(), 16 << 20);
        assert_eq!(ring_bytes("1G").unwrap(), 1 << 30);
        for wrong in [
            "",
            "M",
            "2G",
            "0",
            "-1",
            "1.5M",
            "99999999999999999999",
            "18014398509481984",
        ] {
            assert!(ring_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_are_above_zero() {
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        for wrong in ["", "0", "-1", "nan", "inf", "1s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn short_quantities_keep_three_digits() {
        let pairs = [
            (0.0, "0"),
            (7.4, "7"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (1234.0, "1.23k"),
            (99_960.0, "100k"),
            (412_345.0, "412k"),
            (999_600.0, "1.00M"),
            (12_340_000.0, "12.3M"),
            (1.5e9, "1.50G"),
            (2e18, "2000P"),
        ];
        for (quantity, text) in pairs {
            assert_eq!(short(quantity), text);
        }
    }
}
