//! The rows of `rows.json`: their goals, and how the values of a round are combined into one value.

use std::sync::LazyLock;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::figure::Figure;
use crate::measure::Measure;
use crate::spread::Spread;
use crate::taking::Round;

/// A row. `fanpcap bench NAME` measures only the row with this name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// A description for users.
    pub(crate) what: &'static str,
    /// A comment in rows.json, which the bench does not use.
    #[serde(rename = "why")]
    _why: Option<IgnoredAny>,
    pub(crate) goals: Vec<Goal>,
    /// Results that other authors have published, one in a line.
    #[serde(default, borrow)]
    pub(crate) published: Vec<&'static str>,
}

/// A figure, how its two values in a round are combined, and the bound for the result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Goal {
    /// A description for users.
    pub(crate) what: &'static str,
    /// The measure's name.
    measure: String,
    pub(crate) figure: Figure,
    #[serde(default)]
    pub(crate) compared: Compared,
    /// The column that is judged.
    #[serde(default = "ours")]
    pub(crate) of: &'static str,
    /// The column that it is compared with.
    #[serde(default = "system")]
    pub(crate) to: &'static str,
    /// The column whose value is first subtracted from the values of `of` and `to`.
    #[serde(borrow)]
    pub(crate) over: Option<&'static str>,
    #[serde(default)]
    pub(crate) must: Must,
    /// A value beyond the bound that the median should reach.
    pub(crate) aim: Option<f64>,
}

fn ours() -> &'static str {
    "ours"
}

fn system() -> &'static str {
    "system"
}

/// All rows.
pub(crate) static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../rows.json")).expect("rows.json is well formed")
});

/// How the values of a round are combined.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compared {
    /// One column's value divided by the other's.
    #[default]
    Ratio,
    /// One column's value minus the other's.
    Difference,
    /// One column's value alone.
    Alone,
}

/// The bound.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Must {
    /// The median is this or more.
    AtLeast(f64),
    /// The median is this or less.
    AtMost(f64),
    /// The median is this or more, and the value of at least one round is 1 or more.
    Parity(f64),
    /// There is no bound. The figure is only for information.
    #[default]
    Free,
}

impl Row {
    /// Whether the row compares with another build of our library.
    pub(crate) fn needs_other(&self) -> bool {
        self.goals.iter().any(Goal::needs_other)
    }
}

impl Goal {
    fn needs_other(&self) -> bool {
        let measure = self.measure();
        let mut others = measure.columns().iter().filter(|it| it.is_of_other());
        others.any(|other| [self.of, self.to].contains(&other.key))
    }

    /// The measure.
    pub(crate) fn measure(&self) -> Measure {
        Measure::named(&self.measure)
    }

    /// The bound and the aim, in words.
    pub(crate) fn bound(&self) -> String {
        let aim = self.aim.map(|aim| format!(", aim {aim}"));
        self.must.text() + &aim.unwrap_or_default()
    }

    /// The median and range of the rounds' values for this goal; `None` if a value is missing or
    /// not a number.
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

    /// The bound in words, for the table.
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
            quartiles: None,
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

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn every_goal_is_about_columns_of_its_measure() {
        for goal in ROWS.iter().flat_map(|row| &row.goals) {
            let columns = goal.measure().columns().iter();
            let keys: Vec<_> = columns.map(|column| column.key).collect();
            assert!(keys.contains(&goal.of), "{}: {keys:?}", goal.what);
            let alone = goal.compared == Compared::Alone;
            assert!(alone || keys.contains(&goal.to), "{}: {keys:?}", goal.what);
            let over = goal.over.is_none_or(|over| keys.contains(&over));
            assert!(over, "{}: {keys:?}", goal.what);
        }
    }

    #[test]
    fn every_measure_has_a_goal() {
        let used = |measure: Measure| {
            let mut goals = ROWS.iter().flat_map(|row| &row.goals);
            goals.any(|goal| goal.measure().name() == measure.name())
        };
        let unused: Vec<_> = Measure::all().filter(|it| !used(*it)).collect();
        assert!(unused.is_empty(), "{unused:?}");
    }
}
