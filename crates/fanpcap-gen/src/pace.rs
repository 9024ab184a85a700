//! The times of frames: rates, gaps, and the resulting schedule.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use anyhow::{Error, Result, anyhow};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;

use crate::random;

/// A rate per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Frames per second.
    Frames(NonZeroU64),
    /// Bits per second, without check sequence, preamble and the gap between frames. On Ethernet,
    /// these three take 24 bytes per frame.
    Bits(NonZeroU64),
}

/// The times at which frames are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each frame immediately after the one before it.
    Top,
    /// Evenly at the rate. Frames that are due within 100 us may be sent together, when the last of
    /// them is due.
    Even(Rate),
    /// Evenly, but frames that are due within this many nanoseconds may be sent together, which
    /// leaves more CPU time to other processes.
    Bursts(Rate, u64),
    /// At the rate, with exponentially distributed gaps (a Poisson process), from a seed.
    Poisson(Rate, u64),
    /// As captured, faster by this factor.
    Recorded(f64),
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            anyhow!(
                "{text:?} is no rate: write packets a second like 10000, 100kpps or 1.5Mpps, or bits a \
                 second like 500Mbit or 10Gbit; at least 1 of them"
            )
        };
        let lower = text.trim().to_ascii_lowercase();
        let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, unit) = lower.split_at(digits.unwrap_or(lower.len()));
        let unit = unit.trim_start();
        let (scale, unit) = match unit.chars().next() {
            Some('k') => (1_000, &unit[1..]),
            Some('m') => (1_000_000, &unit[1..]),
            Some('g') => (1_000_000_000, &unit[1..]),
            _ => (1, unit),
        };
        let count = scaled(number, scale).and_then(NonZeroU64::new);
        let count = count.ok_or_else(wrong)?;
        match unit {
            "" | "pps" | "p/s" => Ok(Self::Frames(count)),
            "bit" | "bits" | "bps" | "bit/s" => Ok(Self::Bits(count)),
            _ => Err(wrong()),
        }
    }
}

/// A decimal number times a scale; `None` if the product is not an integer.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let places = u32::try_from(part.len()).ok()?;
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let part = part.parse::<u64>().ok()?.checked_mul(scale)?;
    let unit = 10_u64.checked_pow(places)?;
    (part % unit == 0)
        .then_some(part / unit)?
        .checked_add(whole)
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match self {
            Self::Frames(number) => (number.get(), "pps"),
            Self::Bits(number) => (number.get(), "bit/s"),
        };
        let scales = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
        match scales.iter().find(|(scale, _)| number % scale == 0) {
            Some((scale, letter)) => write!(f, "{}{letter}{unit}", number / scale),
            None => write!(f, "{number}{unit}"),
        }
    }
}

/// Times of a sequence of frames, in nanoseconds after the first. At an even rate, the times are
/// computed from the total of all earlier frames, so that rounding errors do not add up.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pace: Pace,
    frames: u64,
    /// Bits of all frames so far.
    bits: u64,
    /// The time so far, for `Pace::Poisson`. `recorded` is the captured time so far, for
    /// `Pace::Recorded`.
    elapsed: f64,
    recorded: u64,
    random: Pcg64Mcg,
    due: u64,
}

impl Schedule {
    /// A schedule whose first frame is due immediately.
    pub(crate) fn new(pace: Pace) -> Self {
        let seed = match pace {
            Pace::Poisson(_, seed) => seed,
            Pace::Top | Pace::Even(_) | Pace::Bursts(..) | Pace::Recorded(_) => 0,
        };
        Self {
            pace,
            frames: 0,
            bits: 0,
            elapsed: 0.0,
            recorded: 0,
            random: random::source(seed, 2),
            due: 0,
        }
    }

    /// The time of the next frame.
    pub(crate) fn due(&self) -> u64 {
        self.due
    }

    /// The shortest useful time between two wake-ups, in nanoseconds.
    pub(crate) fn rest(&self) -> u64 {
        match self.pace {
            Pace::Even(_) => 100_000,
            Pace::Bursts(_, rest) => rest,
            Pace::Top | Pace::Poisson(..) | Pace::Recorded(_) => 0,
        }
    }

    /// Advances by one frame of `len` bytes that was captured `gap` ns before its successor.
    pub(crate) fn advance(&mut self, len: usize, gap: u64) {
        self.frames += 1;
        self.bits += 8 * len as u64;
        self.due = match self.pace {
            Pace::Top => 0,
            Pace::Even(Rate::Frames(rate)) | Pace::Bursts(Rate::Frames(rate), _) => {
                duration(self.frames, rate)
            }
            Pace::Even(Rate::Bits(rate)) | Pace::Bursts(Rate::Bits(rate), _) => {
                duration(self.bits, rate)
            }
            Pace::Poisson(rate, _) => {
                let mean = match rate {
                    Rate::Frames(rate) => 1e9 / rate.get() as f64,
                    Rate::Bits(rate) => 8e9 * len as f64 / rate.get() as f64,
                };
                let gap: f64 = Exp1.sample(&mut self.random);
                self.elapsed += gap * mean;
                whole(self.elapsed)
            }
            Pace::Recorded(speed) => {
                self.recorded += gap;
                whole(self.recorded as f64 / speed)
            }
        };
    }
}

/// Nanoseconds that `count` events take at `rate` per second, rounded down.
fn duration(count: u64, rate: NonZeroU64) -> u64 {
    match count.checked_mul(SECOND) {
        Some(product) => product / rate,
        None => {
            let product = u128::from(count) * u128::from(SECOND) / u128::from(rate.get());
            u64::try_from(product).unwrap_or(u64::MAX)
        }
    }
}

const SECOND: u64 = 1_000_000_000;

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion to u64 saturates, and times are not negative"
)]
fn whole(nanoseconds: f64) -> u64 {
    nanoseconds as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames(rate: u64) -> Rate {
        Rate::Frames(NonZeroU64::new(rate).unwrap())
    }

    #[test]
    fn rates_are_read() {
        for (text, rate) in [
            ("10000", 10_000),
            ("100kpps", 100_000),
            ("1Mpps", 1_000_000),
            ("1.5 Mpps", 1_500_000),
            ("0.25k", 250),
        ] {
            assert_eq!(text.parse::<Rate>().unwrap(), frames(rate), "{text}");
        }
        for (text, rate) in [
            ("500Mbit", 500_000_000),
            ("10Gbit/s", 10_000_000_000),
            ("8bps", 8),
        ] {
            let rate = Rate::Bits(NonZeroU64::new(rate).unwrap());
            assert_eq!(text.parse::<Rate>().unwrap(), rate, "{text}");
        }
        for text in [
            "",
            "0",
            "pps",
            "-5",
            "1.5",
            "10 mph",
            "1.2.3k",
            "99999999999Gpps",
            "0.0001k",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
        assert_eq!(frames(1_500_000).to_string(), "1500kpps");
    }

    #[test]
    fn even_frames_keep_their_rate_for_ever() {
        let mut schedule = Schedule::new(Pace::Even(frames(3)));
        for second in 1..1000 {
            for _ in 0..3 {
                schedule.advance(60, 0);
            }
            assert_eq!(schedule.due(), second * SECOND);
        }
    }

    #[test]
    fn gaps_of_a_poisson_process_have_their_mean_and_its_spread() {
        let mut schedule = Schedule::new(Pace::Poisson(frames(1000), 1));
        let mut gaps = Vec::new();
        for _ in 0..100_000 {
            let before = schedule.due();
            schedule.advance(60, 0);
            gaps.push((schedule.due() - before) as f64);
        }
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn recorded_times_are_kept_or_scaled() {
        let mut schedule = Schedule::new(Pace::Recorded(2.0));
        let mut dues = Vec::new();
        for gap in [10, 0, 7, 1000] {
            dues.push(schedule.due());
            schedule.advance(60, gap);
        }
        assert_eq!(dues, [0, 5, 5, 8]);
        assert_eq!(schedule.due(), 508);
    }

    proptest! {
        #[test]
        fn bits_are_due_when_those_before_them_are_over(
            rate in 1_u64..100_000_000_000,
            lens in prop::collection::vec(14_usize..10_000, 1..200),
        ) {
            let pace = Pace::Even(Rate::Bits(NonZeroU64::new(rate).unwrap()));
            let mut schedule = Schedule::new(pace);
            let mut bits = 0_u128;
            for len in lens {
                schedule.advance(len, 0);
                bits += 8 * len as u128;
                let exact = bits * 1_000_000_000 / u128::from(rate);
                prop_assert_eq!(u128::from(schedule.due()), exact);
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9.kKmMgG bitps/µ]{0,24}") {
            if let Ok(rate) = text.parse::<Rate>() {
                prop_assert_eq!(rate.to_string().parse::<Rate>().unwrap(), rate);
            }
        }
    }
}
