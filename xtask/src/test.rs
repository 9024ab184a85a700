//! Runs all tiers of tests and sums up their results.

use std::collections::BTreeMap;
use std::fs;
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::tally::Tally;
use crate::{deb, fuzz, guest, least, stage, symbols, tier, tree};

/// How a tier runs.
#[derive(Clone, Copy)]
enum Tier {
    Own(fn() -> Result<Tally>),
    /// Runs beside the tiers that follow, up to the next of its own.
    Beside(fn() -> Result<Tally>),
    /// `cargo test` with these arguments, and this many threads: with more, timing would depend on
    /// luck.
    Cargo(&'static str, Option<&'static str>),
}

/// Tiers by their names in .ci/tiers.
const TIERS: [(&str, Tier); 15] = [
    ("unit", Tier::Own(unit)),
    ("steering", Tier::Cargo(STEERING, Some("--test-threads=2"))),
    ("symbols", Tier::Own(symbols::run)),
    (
        "loading",
        Tier::Cargo("-p fanpcap-loading --test loading", None),
    ),
    ("manual", Tier::Cargo(MANUAL, None)),
    ("package", Tier::Own(package)),
    // Real packets in network namespaces.
    (
        "packets",
        Tier::Cargo("-p fanpcap-netns", Some("--test-threads=2")),
    ),
    ("tools", Tier::Cargo(TOOLS, Some("--test-threads=2"))),
    // It compiles, while those that follow mostly wait.
    ("least", Tier::Beside(least::run)),
    (
        "conformance",
        Tier::Cargo("-p fanpcap-conformance", Some("--test-threads=4")),
    ),
    // Alone: its proofs need a mirror that drops nothing.
    ("cluster", Tier::Own(cluster)),
    // The loops mostly wait for the kernel.
    (
        "faults",
        Tier::Cargo("-p fanpcap-faults", Some("--test-threads=6")),
    ),
    // A short soak; `make soak` is a long one.
    ("soak", Tier::Cargo("-p fanpcap-soak", None)),
    ("fuzz", Tier::Own(fuzz::run)),
    (GUEST, Tier::Own(guest::cards)),
];

/// Not every machine can have guests. Without one this tier has not shrunk, but is skipped.
const GUEST: &str = "guest";

/// The language, and the comparison of kernel and evaluator, which starts a thread for each CPU.
const STEERING: &str = "-p fanpcap-steer -p fanpcap-steer-testkit";
/// The manual pages' applications, and the examples.
const MANUAL: &str = "-p fanpcap-loading --test manual --test examples";
/// The command, its traffic generator and the bench; exports, with the collectors of others.
const TOOLS: &str = "-p fanpcap-cli -p fanpcap-gen -p fanpcap-bench -p fanpcap-ipfix";
/// What a cluster's nodes agree by, and its programs, with all that they can write.
const CLUSTER: &str = "-p fanpcap-etcd -p fanpcap-clusterd --features fanpcap-clusterd/parquet";

impl Tier {
    fn run(self) -> Result<Tally> {
        match self {
            Self::Own(work) | Self::Beside(work) => work(),
            Self::Cargo(line, threads) => {
                let words: Vec<&str> = line.split(' ').collect();
                tier::cargo_test(&words, threads.as_slice(), &[])
            }
        }
    }
}

/// Runs the tiers with these names, or all.
pub(crate) fn run(names: &[&str]) -> Result<Tally> {
    let known = TIERS.map(|(name, _)| name);
    if let Some(name) = names.iter().find(|name| !known.contains(name)) {
        bail!("no tier {name:?}: there are {}", known.join(", "));
    }
    stage::build()?;
    let chosen = TIERS
        .iter()
        .filter(|(name, _)| names.is_empty() || names.contains(name));
    let ended = |run: ScopedJoinHandle<'_, Run>| run.join().expect("a tier does not panic");
    let mut runs = Vec::new();
    thread::scope(|scope| {
        let mut beside = Vec::new();
        for &(name, tier) in chosen {
            println!("{name} ...");
            match tier {
                Tier::Beside(_) => beside.push(scope.spawn(move || timed(name, tier))),
                Tier::Own(_) => {
                    runs.extend(beside.drain(..).map(ended));
                    runs.push(timed(name, tier));
                }
                Tier::Cargo(..) => runs.push(timed(name, tier)),
            }
        }
        runs.extend(beside.drain(..).map(ended));
    });
    summed_up(runs)
}

/// Prints what each tier did, and who failed or was unsteady; all of them added up.
fn summed_up(runs: Vec<Run>) -> Result<Tally> {
    let least = least_numbers()?;
    let mut sum = Tally::default();
    let mut lines = Vec::new();
    for (name, mut tally, seconds) in runs {
        tally += shrunk(&tally, least.get(name).copied());
        lines.push(format!("{name:10} {tally} ({seconds} s)"));
        let failed = tally.failures.iter().map(|test| format!("  FAIL  {test}"));
        lines.extend(failed);
        let unsteady = tally.unsteady.iter();
        lines.extend(unsteady.map(|test| format!("  unsteady, passed the second time: {test}")));
        sum += tally;
    }
    println!("\n{}", lines.join("\n"));
    Ok(sum)
}

/// A tier's name, its results, and how many seconds it took.
type Run = (&'static str, Tally, u64);

fn timed(name: &'static str, tier: Tier) -> Run {
    let begin = Instant::now();
    let tally = tier.run().unwrap_or_else(|error| {
        println!("  FAIL  {name}: {error:#}");
        Tally::one_failed(&format!("{error:#}"))
    });
    (name, tally, begin.elapsed().as_secs())
}

/// Packages that are tiers of their own.
const ALONE: [&str; 15] = [
    "fanpcap-steer",
    "fanpcap-steer-testkit",
    "fanpcap-netns",
    "fanpcap-faults",
    "fanpcap-soak",
    "fanpcap-loading",
    "fanpcap-conformance",
    "fanpcap-cli",
    "fanpcap-bench",
    "fanpcap-clusterd",
    "fanpcap-gen",
    "fanpcap-ipfix",
    "fanpcap-etcd",
    "fanpcap-package-tests",
    "fanpcap-guest-tests",
];

fn unit() -> Result<Tally> {
    let others = ALONE.iter().flat_map(|name| ["--exclude", name]);
    let chosen: Vec<&str> = ["--workspace"].into_iter().chain(others).collect();
    tier::cargo_test(&chosen, &[], &[])
}

/// Three members of etcd for each test, which mostly wait for each other.
fn cluster() -> Result<Tally> {
    let words: Vec<&str> = CLUSTER.split(' ').collect();
    tier::cargo_test(&words, &["--test-threads=4"], &[])
}

/// The Debian package; its tests report when it can't be built here.
fn package() -> Result<Tally> {
    if deb::can_build() {
        deb::run()?;
    }
    tier::cargo_test(&["-p", "fanpcap-package-tests"], &[], &[])
}

/// The checked-in minimum number of tests of each tier.
fn least_numbers() -> Result<BTreeMap<String, usize>> {
    let path = tree::root()?.join(".ci/tiers");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| {
            let (name, number) = line.trim().split_once(' ').context("NAME NUMBER")?;
            Ok((name.to_owned(), number.trim().parse()?))
        })
        .collect::<Result<_>>()
        .with_context(|| format!("in {}", path.display()))
}

/// Fails when a tier has lost tests. A skipped test prints its reason and counts as seen, except in
/// CI. A tier that is skipped as a whole is one skip, which is counted.
fn shrunk(tally: &Tally, least: Option<usize>) -> Tally {
    let Some(least) = least else {
        return Tally::one_failed(".ci/tiers has no line for it");
    };
    let seen = tally.executed() + if tree::is_ci() { 0 } else { tally.skipped };
    if seen >= least || *tally == Tally::one_skipped() {
        return Tally::default();
    }
    Tally::one_failed(&format!("only {seen} tests, where .ci/tiers wants {least}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_that_lost_tests_fails() {
        let tally = Tally {
            passed: 3,
            failed: 1,
            ..Tally::default()
        };
        assert_eq!(shrunk(&tally, Some(4)), Tally::default());
        assert_eq!(shrunk(&tally, Some(5)).failed, 1);
        assert_eq!(shrunk(&tally, None).failed, 1);
        assert_eq!(shrunk(&Tally::one_skipped(), Some(14)), Tally::default());
    }

    #[test]
    fn every_tier_has_its_least_number() {
        let least = least_numbers().unwrap();
        let names: Vec<&str> = least.keys().map(String::as_str).collect();
        for (tier, _) in TIERS {
            assert!(names.contains(&tier), "{tier} is not in .ci/tiers");
        }
        assert_eq!(names.len(), TIERS.len());
    }
}
