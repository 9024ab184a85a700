//! Times on command lines.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Parses a number of seconds.
///
/// # Errors
/// The text is not a number in this range.
pub fn seconds(text: &str, range: &RangeInclusive<f64>) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| range.contains(seconds));
    let seconds = seconds.map(Duration::from_secs_f64);
    seconds.ok_or_else(|| match (range.start(), range.end()) {
        (0.0, most) => format!("write a number of seconds up to {most}"),
        (least, most) => format!("write a number of seconds from {least} to {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_bounds() {
        let day = 0.1..=86_400.0;
        assert_eq!(seconds("0.5", &day), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "nan", "1e9", "inf", "1s", "86401"] {
            let told = "write a number of seconds from 0.1 to 86400".to_owned();
            assert_eq!(seconds(wrong, &day), Err(told), "{wrong}");
        }
        let told = "write a number of seconds up to 3600".to_owned();
        assert_eq!(seconds("3601", &(0.0..=3600.0)), Err(told));
        assert_eq!(seconds("0", &(0.0..=3600.0)), Ok(Duration::ZERO));
    }
}
