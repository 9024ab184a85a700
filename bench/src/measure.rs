//! A measure: runs that take turns, a column for each, and what many rounds of them come to.

use std::fmt;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::refusal::Refusal;

/// What is measured, once in each column: a library, a program, a setting.
pub(crate) trait Measure: fmt::Debug + Sync {
    /// For people. Measures of the same name are the same, and taken once.
    fn name(&self) -> String;

    /// What is compared: only runs of one round are.
    fn columns(&self) -> &[Column];

    /// Why a column can't be measured here, such as a program that is not installed.
    fn absent(&self, _bench: &Bench, _column: &Column) -> Result<Option<String>> {
        Ok(None)
    }

    /// One run of a column, or why it does not count.
    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>>;

    /// The figures that the table shows; all of them, if none is named.
    fn shown(&self) -> &[Figure] {
        &[]
    }

    /// Whether it comes out the same every time.
    fn constant(&self) -> bool {
        false
    }
}

/// One thing that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// For machines.
    pub(crate) key: &'static str,
    /// For people.
    pub(crate) name: &'static str,
}

impl Column {
    /// The two names in one.
    pub(crate) const fn new(key: &'static str, name: &'static str) -> Self {
        Self { key, name }
    }
}

/// A run of each column, one right after the other.
#[derive(Clone, Debug)]
pub(crate) struct Round(Vec<(&'static str, Sample)>);

impl Round {
    /// What the run of a column told.
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
    /// Columns that could not be measured, and why.
    pub(crate) absent: Vec<(Column, String)>,
}

/// A run that does not count is repeated so often.
const ATTEMPTS: u32 = 8;
/// Gives others who use the CPUs time to come to an end.
const PAUSE: Duration = Duration::from_secs(2);

/// Takes `count` rounds. Each column goes first in its turn, so that a drift favours none.
pub(crate) fn take(bench: &Bench, measure: &dyn Measure, count: u32) -> Result<Taken> {
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for column in measure.columns() {
        match measure.absent(bench, column)? {
            None => present.push(*column),
            Some(why) => absent.push((*column, why)),
        }
    }
    let count = if measure.constant() { 1 } else { count };
    let mut rounds = Vec::new();
    for _ in 0..count {
        let mut samples = Vec::new();
        for column in &present {
            samples.push((column.key, accepted(bench, measure, column)?));
        }
        samples.sort_by_key(|(key, _)| measure.columns().iter().position(|c| c.key == *key));
        rounds.push(Round(samples));
        if !present.is_empty() {
            present.rotate_left(1);
        }
    }
    Ok(Taken { rounds, absent })
}

fn accepted(bench: &Bench, measure: &dyn Measure, column: &Column) -> Result<Sample> {
    let name = column.name;
    for attempt in 1..=ATTEMPTS {
        match measure.run(bench, column)? {
            Ok(sample) => return Ok(sample),
            Err(refusal) => {
                println!("  run {attempt} of {ATTEMPTS} on {name} refused: {refusal}");
                if refusal.is_for_others() {
                    thread::sleep(PAUSE);
                }
            }
        }
    }
    bail!("{ATTEMPTS} runs on {name} were all refused")
}
