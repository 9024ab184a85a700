//! Parses the option values of `fanpcap gen`.

use std::time::Duration;

use fanpcap_gen::Lengths;

/// Parses a factor.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if speed > 0.0 && speed.is_finite() => Ok(speed),
        Ok(_) | Err(_) => Err("write a factor above 0, like 1.0".to_owned()),
    }
}

/// Parses a number of seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|&it| Duration::try_from_secs_f64(it).is_ok());
    seconds.ok_or_else(|| "write a number of seconds, like 10 or 0.5".to_owned())
}

/// Parses a length, or a range of lengths.
pub(super) fn lengths(text: &str) -> Result<Lengths, String> {
    let number = |text: &str| text.trim().parse::<u16>();
    let wrong = |_| "write a length like 60, or a range like 60-1514".to_owned();
    match text.split_once('-') {
        None => number(text).map(Lengths::Fixed).map_err(wrong),
        Some((from, to)) => {
            let (from, to) = (number(from).map_err(wrong)?, number(to).map_err(wrong)?);
            Ok(Lengths::Uniform(from, to))
        }
    }
}

/// Parses a MAC address.
pub(super) fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Vec<u8> = text
        .split(':')
        .filter(|part| part.len() == 2)
        .filter_map(|part| u8::from_str_radix(part, 16).ok())
        .collect();
    let wrong = || "write a MAC address like 02:00:00:00:00:0a".to_owned();
    let whole = text.len() == 17;
    bytes.try_into().ok().filter(|_| whole).ok_or_else(wrong)
}
