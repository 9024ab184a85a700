//! The median, the quartiles and the range of several values. The bench prints every result in this
//! form.

use serde::{Deserialize, Serialize};

/// Values of several runs or rounds.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// The first and the third quartile; `None` for few values, and in files of earlier versions.
    #[serde(default)]
    pub(crate) quartiles: Option<[f64; 2]>,
}

/// The least number of values that have quartiles.
const FOR_QUARTILES: usize = 8;

impl Spread {
    /// The spread of these values; `None` if there are no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let quartiles = [1, 3].map(|quarters| at(&values, quarters));
        Some(Self {
            median: at(&values, 2),
            least,
            most,
            quartiles: (values.len() >= FOR_QUARTILES).then_some(quartiles),
        })
    }

    /// The median and the range in words, with this number of decimals.
    pub(crate) fn text(&self, digits: usize) -> String {
        let Self {
            median,
            least,
            most,
            ..
        } = self;
        format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
    }

    /// The quartiles in words, such as ` [1.1-1.3]`; empty if there are none.
    pub(crate) fn quartiles_text(&self, digits: usize) -> String {
        let text = |[first, third]: [f64; 2]| format!(" [{first:.digits$}-{third:.digits$}]");
        self.quartiles.map(text).unwrap_or_default()
    }

    /// Whether a value lies in the range, including its ends.
    pub(crate) fn holds(&self, value: f64) -> bool {
        (self.least..=self.most).contains(&value)
    }
}

/// The value at this many quarters of the way from the least to the greatest. A place between two
/// values gives a mean of both, which weights the nearer value more.
fn at(sorted: &[f64], quarters: usize) -> f64 {
    let place = quarters * (sorted.len() - 1);
    let (below, above) = (sorted[place / 4], sorted[place.div_ceil(4)]);
    below + (above - below) * (place % 4) as f64 / 4.0
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
        assert!(even.holds(4.0) && !even.holds(4.1));
    }

    #[test]
    fn quartiles_need_eight_values() {
        assert_eq!(Spread::of((1..8).map(f64::from)).unwrap().quartiles, None);
        // R's default: quantile(c(1:7, 100), c(0.25, 0.5, 0.75)) is 2.75, 4.5, 6.25.
        let eight = Spread::of([100.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 4.0]).unwrap();
        assert_eq!((eight.median, eight.quartiles), (4.5, Some([2.75, 6.25])));
        assert_eq!(eight.quartiles_text(2), " [2.75-6.25]");
    }
}
