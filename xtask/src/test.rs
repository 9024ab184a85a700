//! Runs tiers of tests and sums up their results: `make test`, `make test-long`.

mod tiers;
mod lanes;

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};

use crate::programs::{self, Program};
use crate::tally::Tally;
use crate::{stage, tree};
use lanes::{Done, Job, What};
use tiers::{LONG_TIERS, TIERS, Tier, Work};

/// Part of the names of tests that only `make test-long` runs: the tests in modules named `long`.
/// No other module may have a name with this end.
const LONG: &str = "long::";

/// Runs the tiers with these names, or all tiers, without the long tests.
pub(crate) fn run(names: &[&str]) -> Result<Tally> {
    let known: Vec<&str> = TIERS.iter().chain(LONG_TIERS).map(|it| it.name).collect();
    tree::ensure_known("tier", names, &known)?;
    let is_wanted = |tier: &Tier| names.is_empty() || names.contains(&tier.name);
    let long = LONG_TIERS.iter().filter(|it| names.contains(&it.name));
    let chosen: Vec<&'static Tier> = TIERS
        .iter()
        .filter(|it| is_wanted(it))
        .chain(long)
        .collect();
    let done = lanes::run(jobs(&chosen)?, &["--skip", LONG]);
    summed_up(&chosen, &done, Which::Short)
}

/// Runs the tests that take too long for `make test`: the long tests, and the long tiers.
pub(crate) fn long() -> Result<Tally> {
    let chosen: Vec<&'static Tier> = TIERS.iter().chain(LONG_TIERS).collect();
    let is_long = |job: &Job| matches!(job.what, What::Program(_)) || is_in(LONG_TIERS, job.tier);
    let jobs = jobs(&chosen)?.into_iter().filter(is_long).collect();
    let done = lanes::run(jobs, &[LONG]);
    summed_up(&chosen, &done, Which::Long)
}

/// Runs the tests whose names contain `name`, and prints the result of each.
pub(crate) fn named(name: &str) -> Result<Tally> {
    let all: Vec<&'static Tier> = TIERS.iter().collect();
    let jobs = jobs(&all)?.into_iter();
    let programs = jobs.filter(|job| matches!(job.what, What::Program(_)));
    let done = lanes::run(programs.collect(), &[name]);
    let sum = added(done.iter());
    ensure!(
        sum.executed() + sum.skipped > 0,
        "no test's name contains {name:?}"
    );
    print_names(&sum);
    Ok(sum)
}

fn is_in(tiers: &[Tier], tier: &Tier) -> bool {
    tiers.iter().any(|it| it.name == tier.name)
}

/// Builds the tiers' test programs, stages the files that these programs test, and calls each
/// tier's `prepare`. Returns the jobs of the tiers.
fn jobs(tiers: &[&'static Tier]) -> Result<Vec<Job>> {
    let (mut programs, ()) = tree::at_once(|| built(tiers), stage::by_least)?;
    let mut jobs = Vec::new();
    for tier in tiers {
        (tier.prepare)()?;
    }
    for tier in tiers {
        let own = tier.work.iter().filter_map(|work| match work {
            Work::Own(work) => Some(What::Own(*work)),
            Work::Package(_) | Work::Programs(_) | Work::Others => None,
        });
        let (its, others) = programs
            .into_iter()
            .partition(|it| owner(it).name == tier.name);
        programs = others;
        let its = Vec::into_iter(its).map(What::Program);
        jobs.extend(own.chain(its).map(|what| Job { tier, what }));
    }
    Ok(jobs)
}

/// Builds the tiers' test programs. Builds all programs of the workspace in one run of cargo, so
/// that nothing is built twice. Tier `faults` uses another build of the library, so its programs
/// are built separately.
fn built(tiers: &[&'static Tier]) -> Result<Vec<Program>> {
    const FAULTS: &str = "fanpcap-faults";
    let apart = ["--exclude", FAULTS, "--exclude", "fanpcap-fuzz"];
    let mut all = programs::build(&[["--workspace"].as_slice(), &apart].concat())?;
    let is_its = |work: &Work| matches!(work, Work::Package(FAULTS));
    if tiers.iter().any(|tier| tier.work.iter().any(is_its)) {
        all.extend(programs::build(&["-p", FAULTS])?);
    }
    // The tests of this package run only in guests.
    all.retain(|program| program.package != "fanpcap-guest-tests");
    Ok(all)
}

/// The tier that a program belongs to.
fn owner(program: &Program) -> &'static Tier {
    let closeness = |tier: &Tier| {
        let works = tier.work.iter();
        works.filter_map(|work| work.closeness(program)).max()
    };
    let tier = TIERS.iter().max_by_key(|tier| closeness(tier));
    tier.expect("there are tiers")
}

fn added<'a>(done: impl Iterator<Item = &'a Done>) -> Tally {
    done.fold(Tally::default(), |mut sum, end| {
        sum += end.tally.clone();
        sum
    })
}

/// Prints the counts of each tier, and its failed and unsteady tests. Returns the sum.
fn summed_up(tiers: &[&'static Tier], done: &[Done], which: Which) -> Result<Tally> {
    let least = least_numbers()?;
    let mut sum = Tally::default();
    println!();
    for tier in tiers {
        let its = done.iter().filter(|it| it.job.tier.name == tier.name);
        let mut tally = added(its.clone());
        let seconds: f64 = its.map(|end| end.seconds).sum();
        let least = least.get(tier.name).map(|numbers| numbers[which as usize]);
        tally += shrunk(&tally, least, tree::is_ci());
        println!("{:11} {tally} ({seconds:.0} s)", tier.name);
        print_names(&tally);
        sum += tally;
    }
    Ok(sum)
}

/// Prints the names of failed and unsteady tests. Their output is printed already: an unsteady
/// test's is that of the run that failed.
fn print_names(tally: &Tally) {
    for test in &tally.failures {
        println!("  FAIL  {test}");
    }
    for test in &tally.unsteady {
        println!("  unsteady, passed the second time: {test} (see '---- {test} stdout ----')");
    }
}

/// Which of the two numbers in .ci/tiers applies.
#[derive(Clone, Copy, Debug)]
enum Which {
    Short,
    Long,
}

/// The checked-in minimum numbers of tests of each tier, in `make test` and in `make test-long`.
fn least_numbers() -> Result<BTreeMap<String, [usize; 2]>> {
    let path = tree::root()?.join(".ci/tiers");
    let text = tree::read(&path)?;
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let numbers = |line: &str| -> Result<_> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, short, long] = words[..] else {
            bail!("not NAME NUMBER NUMBER: {line}");
        };
        Ok((name.to_owned(), [short.parse()?, long.parse()?]))
    };
    let all: Result<_> = lines.map(numbers).collect();
    all.with_context(|| format!("in {}", path.display()))
}

/// Returns a failure if a tier has fewer tests than `least`. A skipped test counts as a test,
/// because it has printed its reason; in CI it counts only if what it needs is optional. If the
/// whole tier is skipped, there is no failure.
fn shrunk(tally: &Tally, least: Option<usize>, is_ci: bool) -> Tally {
    let Some(least) = least else {
        return Tally::one_failed(".ci/tiers has no line for this tier");
    };
    let excused = if is_ci { tally.optional } else { tally.skipped };
    let seen = tally.executed() + excused;
    if seen >= least || *tally == Tally::one_skipped() {
        return Tally::default();
    }
    Tally::one_failed(&format!(
        "only {seen} tests, but .ci/tiers requires {least}"
    ))
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
        assert_eq!(shrunk(&tally, Some(4), true), Tally::default());
        assert_eq!(shrunk(&tally, Some(5), false).failed, 1);
        assert_eq!(shrunk(&tally, None, false).failed, 1);
        let skipped = Tally::one_skipped();
        assert_eq!(shrunk(&skipped, Some(14), true), Tally::default());
    }

    #[test]
    fn in_ci_a_skipped_test_counts_if_it_is_optional() {
        let tally = Tally {
            passed: 3,
            skipped: 3,
            optional: 1,
            ..Tally::default()
        };
        let failed = |least, is_ci| shrunk(&tally, Some(least), is_ci).failed;
        assert_eq!([failed(6, false), failed(7, false)], [0, 1]);
        assert_eq!([failed(4, true), failed(5, true)], [0, 1]);
    }

    #[test]
    fn every_tier_has_its_least_numbers() {
        let least = least_numbers().unwrap();
        let names: Vec<&str> = least.keys().map(String::as_str).collect();
        for tier in TIERS.iter().chain(LONG_TIERS) {
            assert!(
                names.contains(&tier.name),
                "{} is not in .ci/tiers",
                tier.name
            );
        }
        assert_eq!(names.len(), TIERS.len() + LONG_TIERS.len());
    }

    #[test]
    fn a_program_belongs_to_the_tier_that_names_it_most_closely() {
        let of = |package: &str, name: &str| {
            let package = package.to_owned();
            let name = name.to_owned();
            let mut program = Program::default();
            (program.package, program.name) = (package, name);
            owner(&program).name
        };
        assert_eq!(of("fanpcap-ring", "fanpcap_ring"), "unit");
        assert_eq!(of("fanpcap-steer", "fanpcap_steer"), "steering");
        assert_eq!(of("fanpcap-steer", "language"), "properties");
        assert_eq!(of("fanpcap-loading", "loading"), "loading");
    }
}
