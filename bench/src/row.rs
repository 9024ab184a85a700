//! What a row of the table is: its measures, its goals, and how the values of a round are combined
//! into one value.

use serde::Serialize;

use crate::figure::Figure;
use crate::measure::{Measure, Round};
use crate::spread::Spread;

/// A row: `fanpcap bench NAME` takes it alone.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) what: &'static str,
    pub(crate) goals: &'static [Goal],
    /// What others have published, line by line.
    pub(crate) published: &'static [&'static str],
}

/// One figure, what becomes of a round's two values, and the bound for that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// For people.
    pub(crate) what: &'static str,
    pub(crate) measure: &'static dyn Measure,
    pub(crate) figure: Figure,
    pub(crate) compared: Compared,
    /// The column that is judged.
    pub(crate) of: &'static str,
    /// The one that it is compared with.
    pub(crate) to: &'static str,
    /// The one that is taken off both first.
    pub(crate) over: Option<&'static str>,
    pub(crate) must: Must,
    /// Beyond the bound: what the median is meant to reach.
    pub(crate) aim: Option<f64>,
}

/// What a round comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compared {
    /// One column by the other.
    Ratio,
    /// One less the other.
    Difference,
    /// One alone.
    Alone,
}

/// The bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Must {
    /// The median is this or more.
    AtLeast(f64),
    /// The median is this or less.
    AtMost(f64),
    /// The median is this or more, and some round reaches 1.
    Parity(f64),
    /// There is none: measured to be known.
    Free,
}

impl Goal {
    /// Ours by the system's, which most rows are about.
    pub(crate) const fn ratio(
        what: &'static str,
        measure: &'static dyn Measure,
        figure: Figure,
        must: Must,
    ) -> Self {
        Self {
            what,
            measure,
            figure,
            compared: Compared::Ratio,
            of: "ours",
            to: "system",
            over: None,
            must,
            aim: None,
        }
    }

    /// One column by another, or less another.
    pub(crate) const fn between(self, of: &'static str, to: &'static str) -> Self {
        Self { of, to, ..self }
    }

    /// One column less another, in the figure's unit.
    pub(crate) const fn difference(self) -> Self {
        Self {
            compared: Compared::Difference,
            ..self
        }
    }

    /// What both columns have beyond a third one, and the ratio of that.
    pub(crate) const fn over(self, base: &'static str) -> Self {
        Self {
            over: Some(base),
            ..self
        }
    }

    /// One column alone, in the figure's unit.
    pub(crate) const fn alone(self, of: &'static str) -> Self {
        Self {
            compared: Compared::Alone,
            of,
            ..self
        }
    }

    /// With a value that the median is meant to reach.
    pub(crate) const fn aim(self, aim: f64) -> Self {
        Self {
            aim: Some(aim),
            ..self
        }
    }

    /// For people: the bound and the aim.
    pub(crate) fn bound(&self) -> String {
        let aim = self.aim.map(|aim| format!(", aim {aim}"));
        self.must.text() + &aim.unwrap_or_default()
    }

    /// The rounds' values for this goal; none when one of them is missing or no number.
    pub(crate) fn spread(&self, rounds: &[Round]) -> Option<Spread> {
        let value = |round: &Round| {
            let base = match self.over {
                Some(key) => round.value(key, self.figure)?,
                None => 0.0,
            };
            let of = round.value(self.of, self.figure)? - base;
            let to = || Some(round.value(self.to, self.figure)? - base);
            Some(match self.compared {
                Compared::Ratio => of / to()?,
                Compared::Difference => of - to()?,
                Compared::Alone => of,
            })
        };
        let finite = |value: &f64| value.is_finite();
        let values: Option<Vec<f64>> = rounds.iter().map(|r| value(r).filter(finite)).collect();
        Spread::of(values?)
    }
}

impl Must {
    pub(crate) fn holds(self, spread: Spread) -> bool {
        match self {
            Self::AtLeast(bound) => spread.median >= bound,
            Self::AtMost(bound) => spread.median <= bound,
            Self::Parity(bound) => spread.median >= bound && spread.most >= 1.0,
            Self::Free => true,
        }
    }

    /// For people.
    pub(crate) fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!("must be >= {bound}"),
            Self::AtMost(bound) => format!("must be <= {bound}"),
            Self::Parity(bound) => format!("must be >= {bound}, reaching 1"),
            Self::Free => "no goal".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(least: f64, median: f64, most: f64) -> Spread {
        Spread {
            median,
            least,
            most,
        }
    }

    #[test]
    fn a_bound_is_for_the_median_and_may_have_to_be_reached() {
        assert!(Must::AtLeast(1.4).holds(spread(1.3, 1.4, 1.5)));
        assert!(!Must::AtMost(0.5).holds(spread(0.4, 0.51, 0.6)));
        let parity = Must::Parity(0.97);
        assert!(parity.holds(spread(0.94, 0.98, 1.01)));
        assert!(parity.holds(spread(1.1, 1.2, 1.3)));
        assert!(!parity.holds(spread(0.94, 0.98, 0.99)));
        assert!(!parity.holds(spread(0.94, 0.96, 1.01)));
    }
}
