//! Takes a measure: rounds of runs, one run for each column in turn.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::bench::Bench;
use crate::column::Column;
use crate::figure::{Figure, Sample};
use crate::measure::Measure;
use crate::out::tell;
use crate::pause::{go_on, pause};
use crate::refusal::Refusal;

/// One round: a run of each column, one right after the other.
#[derive(Clone, Debug)]
pub(crate) struct Round(Vec<(&'static str, Sample)>);

impl Round {
    /// The figures of a column's run.
    pub(crate) fn sample(&self, key: &str) -> Option<&Sample> {
        let (_, sample) = self.0.iter().find(|(of, _)| *of == key)?;
        Some(sample)
    }

    /// One figure of one column.
    pub(crate) fn value(&self, key: &str, figure: Figure) -> Option<f64> {
        self.sample(key)?.get(&figure).copied()
    }
}

impl Serialize for Round {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, sample) in &self.0 {
            map.serialize_entry(key, sample)?;
        }
        map.end()
    }
}

/// All rounds of a measure.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) rounds: Vec<Round>,
    /// Columns that could not be measured, with the reason.
    pub(crate) absent: Vec<(&'static Column, String)>,
}

/// Number of attempts at a round. An attempt fails if one of its runs is refused.
const ATTEMPTS: u32 = 8;
/// Number of attempts at a dispensable column whose counters disagree. There is no pause before the
/// next attempt, because the cause is not other processes.
const OWN_FAULTS: u32 = 3;
/// Pause in which other processes may finish their work on the CPUs.
const PAUSE: Duration = Duration::from_secs(if cfg!(test) { 0 } else { 2 });

/// A measure in progress. Rounds of several measures alternate, so that a slow change of the
/// machine's speed affects the range of every measure.
#[derive(Debug)]
pub(crate) struct Taking {
    measure: Measure,
    /// The columns in the order of the next round. The order rotates, so that a slow change of the
    /// machine's speed favours no column.
    present: Vec<&'static Column>,
    taken: Taken,
}

/// Other processes used the CPUs in all attempts at a round. A later attempt may succeed.
#[derive(Debug)]
pub(crate) struct Disturbed(String);

impl fmt::Display for Disturbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ATTEMPTS} rounds discarded, {}", self.0)
    }
}

impl Error for Disturbed {}

/// Runs one column.
type Run<'a> = dyn FnMut(&'static Column) -> Result<Result<Sample, Refusal>> + 'a;

impl Taking {
    /// A measure before its first round.
    pub(crate) fn new(bench: &Bench, measure: Measure) -> Result<Self> {
        let (mut present, mut absent) = (Vec::new(), Vec::new());
        for column in measure.columns() {
            match measure.absent(bench, column)? {
                None => present.push(column),
                Some(why) => absent.push((column, why)),
            }
        }
        let rounds = Vec::new();
        Ok(Self {
            measure,
            present,
            taken: Taken { rounds, absent },
        })
    }

    /// The rounds taken.
    pub(crate) fn taken(self) -> Taken {
        self.taken
    }

    /// Whether the measure has fewer rounds than this.
    pub(crate) fn lacks(&self, rounds: u32) -> bool {
        let wanted = if self.measure.constant() { 1 } else { rounds };
        self.taken.rounds.len() < wanted as usize
    }

    /// Takes one more round, unless the measure is constant.
    pub(crate) fn round(&mut self, bench: &Bench) -> Result<()> {
        if self.measure.constant() && !self.taken.rounds.is_empty() {
            return Ok(());
        }
        let measure = self.measure;
        self.round_of(&mut |column| {
            go_on()?;
            measure.run(bench, column)
        })
    }

    /// A round of the present columns. If a dispensable column can't be measured, it becomes
    /// absent, and its runs are removed from earlier rounds.
    fn round_of(&mut self, run: &mut Run<'_>) -> Result<()> {
        loop {
            match accepted(&self.present, run)? {
                Ok(samples) => {
                    self.add(samples);
                    return Ok(());
                }
                Err((column, why)) => self.leave_out(column, why),
            }
        }
    }

    fn add(&mut self, mut samples: Samples) {
        let columns = self.measure.columns();
        samples.sort_by_key(|(key, _)| columns.iter().position(|column| column.key == *key));
        self.taken.rounds.push(Round(samples));
        if !self.present.is_empty() {
            self.present.rotate_left(1);
        }
    }

    fn leave_out(&mut self, column: &'static Column, why: String) {
        tell!("  {} is left out: {why}", column.name);
        self.present.retain(|other| other.key != column.key);
        for round in &mut self.taken.rounds {
            round.0.retain(|(key, _)| *key != column.key);
        }
        self.taken.absent.push((column, why));
    }
}

/// A run of each column.
type Samples = Vec<(&'static str, Sample)>;

/// Returns a round in which all runs count, or a dispensable column that prevents such a round. One
/// refused run discards its whole round, because only consecutive runs are compared.
fn accepted(
    columns: &[&'static Column],
    run: &mut Run<'_>,
) -> Result<Result<Samples, (&'static Column, String)>> {
    let mut own_faults: BTreeMap<&str, u32> = BTreeMap::new();
    let mut last = None;
    for attempt in 1..=ATTEMPTS {
        let (column, refusal) = match round(columns, run)? {
            Whole::Samples(samples) => return Ok(Ok(samples)),
            Whole::Failed(column, why) => return Ok(Err((column, why))),
            Whole::Refused(column, refusal) => (column, refusal),
        };
        let name = column.name;
        tell!("  round discarded, attempt {attempt} of {ATTEMPTS}: {name} refused: {refusal}");
        let disturbed = refusal.is_for_others();
        let why = format!("its runs are refused: {refusal}");
        last = Some((column, disturbed, why));
        if disturbed {
            pause(PAUSE)?;
            continue;
        }
        let faults = own_faults.entry(column.key).or_default();
        *faults += 1;
        if *faults >= OWN_FAULTS && column.dispensable {
            break;
        }
    }
    match last {
        Some((column, _, why)) if column.dispensable => Ok(Err((column, why))),
        Some((column, true, why)) => Err(Disturbed(format!("{}: {why}", column.name)).into()),
        Some((column, false, why)) => bail!("{ATTEMPTS} rounds discarded, {}: {why}", column.name),
        None => bail!("no attempt"),
    }
}

/// Result of a round.
enum Whole {
    /// The round counts.
    Samples(Samples),
    /// A run of this column does not count.
    Refused(&'static Column, Refusal),
    /// A dispensable application failed.
    Failed(&'static Column, String),
}

fn round(columns: &[&'static Column], run: &mut Run<'_>) -> Result<Whole> {
    let mut samples = Samples::new();
    for column in columns {
        match run(column).map(|ran| ran.and_then(finite)) {
            Ok(Ok(sample)) => samples.push((column.key, sample)),
            Ok(Err(refusal)) => return Ok(Whole::Refused(column, refusal)),
            Err(error) if column.dispensable && go_on().is_ok() => {
                return Ok(Whole::Failed(column, format!("{error:#}")));
            }
            Err(error) => return Err(error.context(column.name)),
        }
    }
    Ok(Whole::Samples(samples))
}

/// Refuses figures that are not finite, for example after a division by zero in an application.
fn finite(sample: Sample) -> Result<Sample, Refusal> {
    let wrong = sample.iter().find(|(_, value)| !value.is_finite());
    match wrong {
        Some((figure, _)) => Err(Refusal::NotFinite(figure.name())),
        None => Ok(sample),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISAGREES: Refusal = Refusal::NotFinite("figure");

    fn take_with(
        mut run: impl FnMut(&'static Column) -> Result<Result<Sample, Refusal>>,
    ) -> Result<Taken> {
        let measure = Measure::named("60 bytes, peers");
        let columns = measure.columns().iter();
        let both = columns.filter(|column| ["ours", "tcpdump"].contains(&column.key));
        let mut taking = Taking {
            measure,
            present: both.collect(),
            taken: Taken {
                rounds: Vec::new(),
                absent: Vec::new(),
            },
        };
        taking.round_of(&mut run)?;
        taking.round_of(&mut run)?;
        Ok(taking.taken)
    }

    fn sample(value: f64) -> Sample {
        Sample::from([(Figure::Sent, value)])
    }

    #[test]
    fn with_one_run_its_whole_round_is_repeated() {
        let mut number = 0_u32;
        let taken = take_with(|_| {
            number += 1;
            Ok(match number {
                2 => Err(DISAGREES),
                _ => Ok(sample(f64::from(number))),
            })
        })
        .unwrap();
        let value = |round: usize, key| taken.rounds[round].value(key, Figure::Sent);
        assert_eq!(
            (value(0, "ours"), value(0, "tcpdump")),
            (Some(3.0), Some(4.0))
        );
        assert_eq!(
            (value(1, "ours"), value(1, "tcpdump")),
            (Some(6.0), Some(5.0))
        );
    }

    #[test]
    fn a_peer_that_is_refused_loses_its_column_only() {
        let mut peers = 0;
        let taken = take_with(|column| {
            if column.key == "ours" {
                return Ok(Ok(sample(1.0)));
            }
            peers += 1;
            Ok(if peers == 1 {
                Ok(sample(2.0))
            } else {
                Err(DISAGREES)
            })
        })
        .unwrap();
        assert_eq!(peers, 1 + OWN_FAULTS);
        assert_eq!(taken.rounds.len(), 2);
        assert!(
            taken
                .rounds
                .iter()
                .all(|round| round.sample("tcpdump").is_none())
        );
        assert!(taken.absent[0].1.contains("refused"), "{:?}", taken.absent);
    }

    #[test]
    fn a_peer_that_breaks_loses_its_column_and_ours_breaks_the_row() {
        let breaks = |key| {
            move |column: &'static Column| {
                if column.key == key {
                    bail!("gone");
                }
                Ok(Ok(sample(1.0)))
            }
        };
        let taken = take_with(breaks("tcpdump")).unwrap();
        assert_eq!(taken.absent[0].1, "gone");
        assert!(take_with(breaks("ours")).is_err());
    }

    #[test]
    fn a_disturbed_round_is_no_fault_of_the_measure() {
        let error = |refusal: Refusal| take_with(move |_| Ok(Err(refusal))).unwrap_err();
        assert!(error(Refusal::Generator(0.5)).is::<Disturbed>());
        assert!(!error(DISAGREES).is::<Disturbed>());
    }

    #[test]
    fn what_is_no_number_is_no_figure() {
        let error = take_with(|_| Ok(Ok(sample(f64::INFINITY)))).unwrap_err();
        assert!(format!("{error:#}").contains("not a number"), "{error:#}");
    }
}
