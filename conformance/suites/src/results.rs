//! The results of the comparison, for the terminal and for RESULTS.md.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::outcome::Outcome;
use crate::suite::Suite;
use crate::suites;
use crate::variant::Variant;

/// A suite's runs.
#[derive(Debug)]
pub(crate) struct Row {
    suite: &'static Suite,
    version: String,
    runs: Vec<(Variant, Result<Outcome, String>)>,
    /// The reason why the suite has no runs.
    skipped: Option<String>,
}

impl Row {
    pub(crate) fn ran(
        suite: &'static Suite,
        version: String,
        runs: Vec<(Variant, Result<Outcome, String>)>,
    ) -> Self {
        Self {
            suite,
            version,
            runs,
            skipped: None,
        }
    }

    pub(crate) fn skipped(suite: &'static Suite, reason: &str) -> Self {
        Self {
            suite,
            version: String::new(),
            runs: Vec::new(),
            skipped: Some(one_line(reason)),
        }
    }

    /// Whether the suite came to its end on every variant, and the same tests passed on each
    /// variant.
    fn equal(&self) -> bool {
        let mut outcomes = self.runs.iter().map(|(_, outcome)| outcome.as_ref());
        match outcomes.next() {
            Some(Ok(first)) => {
                outcomes.all(|outcome| outcome.is_ok_and(|outcome| outcome.equals(first)))
            }
            Some(Err(_)) => false,
            None => true,
        }
    }

    fn verdict(&self) -> &'static str {
        match (&self.skipped, self.equal()) {
            (Some(_), _) => "skipped",
            (None, true) => "equal",
            (None, false) => "DIFFERS",
        }
    }

    /// The results as text for the terminal.
    pub(crate) fn lines(&self) -> String {
        let mut lines = Vec::new();
        for (variant, outcome) in &self.runs {
            let text = outcome
                .as_ref()
                .map_or_else(String::clone, ToString::to_string);
            lines.push(format!("  {:8} {text}", variant.name()));
        }
        lines.extend(self.notes().iter().map(|note| format!("  {note}")));
        lines.push(format!("  {}", self.verdict()));
        lines.join("\n")
    }

    /// The suite's row of the table. [`merged`] identifies the row by its first cell.
    fn cells(&self, day: &str) -> String {
        let cell = |wanted| match self.runs.iter().find(|(variant, _)| *variant == wanted) {
            Some((_, Ok(outcome))) => outcome.passed.to_string(),
            Some((_, Err(_))) => "broken".to_owned(),
            None => "-".to_owned(),
        };
        let cells = Variant::ALL.map(cell).join(" | ");
        let Suite { name, what, .. } = self.suite;
        let version = &self.version;
        let verdict = self.verdict();
        format!("| {name} | {what} | {version} | {cells} | {verdict} | {day} |")
    }

    /// Remarks about the numbers: a line for each variant, or one line if all variants have the
    /// same remark.
    fn notes(&self) -> Vec<String> {
        let name = self.suite.name;
        if let Some(reason) = &self.skipped {
            return vec![format!("* {name}: skipped: {reason}")];
        }
        let of_runs: Vec<(&str, String)> = self
            .runs
            .iter()
            .map(|(variant, outcome)| (variant.name(), note(outcome)))
            .collect();
        let same = of_runs.iter().all(|(_, text)| *text == of_runs[0].1);
        let shown = if same && self.runs.len() > 1 {
            vec![("everywhere", of_runs[0].1.clone())]
        } else {
            of_runs
        };
        let shown = shown.into_iter().filter(|(_, text)| !text.is_empty());
        shown
            .map(|(variant, text)| format!("* {name}: {variant}: {text}"))
            .collect()
    }
}

fn note(outcome: &Result<Outcome, String>) -> String {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => return one_line(error),
    };
    let mut parts = Vec::new();
    if outcome.skipped > 0 {
        parts.push(format!("{} skipped by the suite", outcome.skipped));
    }
    let count = outcome.failing.len();
    if count > 0 {
        let names: Vec<&str> = outcome
            .failing
            .iter()
            .take(SHOWN)
            .map(String::as_str)
            .collect();
        let more = if count > SHOWN { ", ..." } else { "" };
        parts.push(format!("{count} failed: {}{more}", names.join(", ")));
    }
    parts.join("; ")
}

/// The results of all suites.
#[derive(Debug)]
pub(crate) struct Report {
    day: String,
    library: String,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(day: String) -> Result<Self> {
        Ok(Self {
            day,
            library: format!("{}, Linux {}, {}", system_version()?, kernel()?, commit()),
            rows: Vec::new(),
        })
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Whether the runs of each suite are equal ([`Row::equal`]). False if no suite was available,
    /// because nothing was compared.
    pub(crate) fn all_equal(&self) -> bool {
        let ran = self.rows.iter().any(|row| row.skipped.is_none());
        ran && self.rows.iter().all(Row::equal)
    }

    /// A line with the number of suites, like the closing line of a test runner.
    pub(crate) fn closing_line(&self) -> String {
        let skipped = self.rows.iter().filter(|row| row.skipped.is_some()).count();
        let failed = self.rows.iter().filter(|row| !row.equal()).count();
        let passed = self.rows.len() - skipped - failed;
        format!("{passed} passed, {failed} failed, {skipped} skipped")
    }

    /// Rewrites the lines of the suites that ran. The lines of other suites stay.
    pub(crate) fn write(&self) -> Result<()> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md");
        let before = fs::read_to_string(&path).unwrap_or_default();
        let day = format!("{}, {}", self.day, self.library);
        let now: Vec<Lines> = self
            .rows
            .iter()
            .map(|row| Lines {
                name: row.suite.name,
                cells: row.cells(&day),
                notes: row.notes(),
            })
            .collect();
        fs::write(&path, merged(&before, &now)).with_context(|| path.display().to_string())
    }
}

/// A suite's part of the page.
struct Lines {
    name: &'static str,
    cells: String,
    notes: Vec<String>,
}

/// The new page, from the old page and the results of this run.
fn merged(before: &str, now: &[Lines]) -> String {
    let (mut table, mut notes) = (Vec::new(), Vec::new());
    for suite in suites::ALL {
        if let Some(lines) = now.iter().find(|lines| lines.name == suite.name) {
            table.push(lines.cells.clone());
            notes.extend(lines.notes.iter().cloned());
        } else {
            table.extend(starting(before, &format!("| {} |", suite.name)));
            notes.extend(starting(before, &format!("* {}: ", suite.name)));
        }
    }
    let (table, notes) = (table.join("\n"), notes.join("\n"));
    format!("{HEAD}{table}\n{NOTES}{notes}\n")
}

fn starting(text: &str, prefix: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    lines.map(str::to_owned).collect()
}

/// The version of the system's library, from its Debian package.
fn system_version() -> Result<String> {
    for package in ["libpcap0.8", "libpcap0.8t64"] {
        let said = Command::new("dpkg-query")
            .args(["--show", "--showformat=${Version}", package])
            .output()
            .context("running dpkg-query")?;
        if said.status.success() {
            let version = String::from_utf8(said.stdout)?;
            return Ok(format!("libpcap {}", version.trim()));
        }
    }
    Ok("libpcap of unknown version".to_owned())
}

fn kernel() -> Result<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let numbers: Vec<&str> = release.trim().split(['.', '-']).take(2).collect();
    Ok(numbers.join("."))
}

/// The commit of fanpcap that was tested.
fn commit() -> String {
    let said = Command::new("git")
        .args(["rev-parse", "--short=10", "HEAD"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output();
    match said {
        Ok(said) if said.status.success() => {
            String::from_utf8_lossy(&said.stdout).trim().to_owned()
        }
        _ => "no commit".to_owned(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

const SHOWN: usize = 20;

const HEAD: &str = "\
# Results of other projects' tests

Written by `make conformance-full` and `make bindings`. Each number says how many tests passed: on the system's
libpcap, on ours without settings, and on ours with `PCAP_DRIVER=tpacket` and `PCAP_DRIVER=xdp`. Equal means that the
same tests passed on all four. On XDP, two of libpcap's tests are expected to print a warning: they open `lo` and
`any`, which have no driver that could run an XDP program, so fanpcap reads packet sockets instead.

| suite | what it is | version | system | ours | tpacket | xdp | | date, system's library, kernel, our commit |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
";

const NOTES: &str = "\n## What did not pass or was skipped\n\n";

#[cfg(test)]
mod tests {
    use super::*;

    fn row(passes: [usize; 4]) -> Row {
        let outcome = |passed| Outcome {
            passed,
            ..Outcome::default()
        };
        let runs = Variant::ALL.into_iter().zip(passes);
        let runs = runs.map(|(variant, passed)| (variant, Ok(outcome(passed))));
        Row::ran(suites::ALL[0], "1.0".to_owned(), runs.collect())
    }

    #[test]
    fn equal_passes_are_required() {
        assert!(row([3, 3, 3, 3]).equal());
        assert!(!row([3, 3, 3, 2]).equal());
        let mut broken = row([3, 3, 3, 3]);
        broken.runs[1].1 = Err("no test ran".to_owned());
        assert!(!broken.equal());
        assert_eq!(broken.verdict(), "DIFFERS");
        assert_eq!(Row::skipped(suites::ALL[0], "no java").verdict(), "skipped");
    }

    #[test]
    fn a_suite_that_did_not_run_keeps_its_lines() {
        let [first, second] = [suites::ALL[0].name, suites::ALL[1].name];
        let before =
            format!("{HEAD}| {first} | old |\n| {second} | old |\n* {first}: x\n* {second}: y\n");
        let now = [Lines {
            name: suites::ALL[0].name,
            cells: format!("| {first} | new |"),
            notes: Vec::new(),
        }];
        let page = merged(&before, &now);
        assert!(page.contains(&format!("| {first} | new |")));
        for gone in [format!("| {first} | old |"), format!("* {first}: ")] {
            assert!(!page.contains(&gone), "{gone}");
        }
        assert!(page.contains(&format!("| {second} | old |")));
        assert!(page.contains(&format!("* {second}: y")));
    }
}
