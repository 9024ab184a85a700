//! Interleaved runs of both sides, and what the pairs come to.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::Serialize;

use crate::bench::{Bench, Measure};
use crate::figure::{Figure, Sample};
use crate::reader::Side;

/// A run of each side, one right after the other: only such are compared.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pair {
    /// Our library's.
    pub(crate) ours: Sample,
    /// The system's.
    pub(crate) system: Sample,
}

/// A run that does not count is repeated so often.
const ATTEMPTS: u32 = 8;
/// Gives others who use the CPUs time to come to an end.
const PAUSE: Duration = Duration::from_secs(2);

/// Takes `count` pairs. Each side goes first every other time, so that a drift favours none.
pub(crate) fn take(bench: &Bench, measure: Measure, count: u32) -> Result<Vec<Pair>> {
    let pair = |number| {
        let mut sides = [Side::Ours, Side::System];
        if number % 2 == 1 {
            sides.reverse();
        }
        let [first, second] = sides;
        let first = accepted(bench, measure, first)?;
        let second = accepted(bench, measure, second)?;
        let (ours, system) = if number % 2 == 1 {
            (second, first)
        } else {
            (first, second)
        };
        Ok(Pair { ours, system })
    };
    (0..count).map(pair).collect()
}

fn accepted(bench: &Bench, measure: Measure, side: Side) -> Result<Sample> {
    for attempt in 1..=ATTEMPTS {
        match bench.run(measure, side)? {
            Ok(sample) => return Ok(sample),
            Err(refusal) => {
                let name = side.name();
                println!("  run {attempt} of {ATTEMPTS} on {name} refused: {refusal}");
                if refusal.is_for_others() {
                    thread::sleep(PAUSE);
                }
            }
        }
    }
    bail!("{ATTEMPTS} runs on {} were all refused", side.name())
}

/// Values of several runs or pairs: the middle one and the outermost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of nothing there is none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self {
            median: f64::midpoint(low, high),
            least,
            most,
        })
    }

    /// Of one side's figure.
    pub(crate) fn of_side(pairs: &[Pair], side: Side, figure: Figure) -> Option<Self> {
        let sample = |pair: &Pair| match side {
            Side::Ours => pair.ours.get(&figure).copied(),
            Side::System => pair.system.get(&figure).copied(),
        };
        Self::of(pairs.iter().filter_map(sample))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_middle_and_the_ends() {
        assert_eq!(Spread::of([]), None);
        let odd = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.least, odd.median, odd.most), (1.0, 2.0, 3.0));
        let even = Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(even.median, 2.5);
    }
}
