//! Numbers in few characters: `812`, `12.3k`, `4.56M`.

/// The text for an unknown number.
pub(crate) const UNKNOWN: &str = "-";

/// A rate or a number, in at most six characters.
pub(crate) fn short(figure: f64) -> String {
    if figure > 0.0 && figure < 9.95 && figure.fract() != 0.0 {
        return format!("{figure:.1}");
    }
    if figure < 9999.5 {
        return format!("{figure:.0}");
    }
    scaled(figure, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// A number of packets, in at most six characters.
#[allow(
    clippy::cast_precision_loss,
    reason = "three digits are shown of large numbers"
)]
pub(crate) fn count(number: u64) -> String {
    short(number as f64)
}

/// A rate in bit/s, with its unit.
pub(crate) fn bits(per_second: f64) -> String {
    let units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s"];
    scaled_with(per_second, 1000.0, &units, " ")
}

/// A number of bytes, in powers of 1024.
#[allow(
    clippy::cast_precision_loss,
    reason = "three digits are shown of large numbers"
)]
pub(crate) fn bytes(number: u64) -> String {
    scaled(number as f64, 1024.0, &["", "Ki", "Mi", "Gi", "Ti", "Pi"])
}

/// An age in seconds, minutes, hours or days.
pub(crate) fn age(seconds: f64) -> String {
    let units = [(86_400.0, "d"), (3600.0, "h"), (60.0, "m")];
    let large = units.iter().find(|(unit, _)| seconds >= *unit * 1.5);
    match large {
        Some((unit, name)) => format!("{:.0}{name}", seconds / unit),
        None if seconds < 9.95 => format!("{seconds:.1}s"),
        None => format!("{seconds:.0}s"),
    }
}

fn scaled(figure: f64, base: f64, units: &[&str]) -> String {
    scaled_with(figure, base, units, "")
}

/// Three digits and a unit.
fn scaled_with(mut figure: f64, base: f64, units: &[&str], between: &str) -> String {
    let mut units = units.iter().copied().peekable();
    let mut unit = units.next().unwrap_or_default();
    // From 999.5 on, rounding to a whole number gives four digits.
    while figure >= 999.5 {
        let Some(larger) = units.next() else { break };
        (figure, unit) = (figure / base, larger);
    }
    let digits = match figure {
        _ if figure.fract() == 0.0 && figure < 999.5 => 0,
        figure if figure < 9.995 => 2,
        figure if figure < 99.95 => 1,
        _ => 0,
    };
    format!("{figure:.digits$}{between}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_sizes() {
        for (figure, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (3.0, "3"),
            (12.4, "12"),
            (9999.4, "9999"),
            (9999.5, "10.0k"),
            (12_345.0, "12.3k"),
            (999_499.0, "999k"),
            (999_500.0, "1.00M"),
            (1_234_567.0, "1.23M"),
            (14.88e6, "14.9M"),
            (1.8e19, "18E"),
        ] {
            assert_eq!(short(figure), text, "{figure}");
            assert!(short(figure).len() <= 6);
        }
    }

    #[test]
    fn rates_sizes_and_ages() {
        assert_eq!(
            (bits(0.0), bits(8e9)),
            ("0 bit/s".into(), "8 Gbit/s".into())
        );
        assert_eq!(bits(6_523_000_000.0), "6.52 Gbit/s");
        assert_eq!(
            (bytes(16 << 20), bytes(1536)),
            ("16Mi".into(), "1.50Ki".into())
        );
        assert_eq!((age(0.1), age(37.4)), ("0.1s".into(), "37s".into()));
        assert_eq!((age(600.0), age(200_000.0)), ("10m".into(), "2d".into()));
        assert_eq!(count(u64::MAX), "18.4E");
    }
}
