//! The file with a program's metrics, for node_exporter's textfile collector.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fanpcap_terminal::exposition::{Family, Kind, Label, Number, text};
use fanpcap_terminal::streams;
use fanpcap_terminal::textfile;

/// Checks the value of an option such as --metrics when a program starts. Later failures do not end
/// the program.
///
/// # Errors
///
/// No file can be written there.
pub(crate) fn check(option: &str, file: Option<&Path>) -> Result<()> {
    let checked = file.map_or(Ok(()), textfile::check);
    let shown = file.unwrap_or(Path::new("")).display();
    checked.with_context(|| format!("{option} {shown}"))
}

/// A file that is replaced atomically, such as one with metrics. A full disk does not end its
/// program.
#[derive(Debug)]
pub(crate) struct Textfile {
    file: PathBuf,
    /// The subcommand that writes the file.
    verb: &'static str,
    /// Whether the last write has failed.
    fails: bool,
}

impl Textfile {
    /// The file of a subcommand.
    pub(crate) fn new(file: PathBuf, verb: &'static str) -> Self {
        Self {
            file,
            verb,
            fails: false,
        }
    }

    /// Replaces the file. Reports when that begins to fail.
    pub(crate) fn write(&mut self, families: &[Family]) {
        self.write_text(&text(families));
    }

    /// Replaces the file by this text. Reports when that begins to fail.
    pub(crate) fn write_text(&mut self, text: &str) {
        let written = textfile::write(&self.file, text);
        let fails = written.is_err();
        if let (Err(error), false) = (written, self.fails) {
            let (verb, file) = (self.verb, self.file.display());
            streams::note(&format!("fanpcap {verb}: {file} is not written: {error}\n"));
        }
        self.fails = fails;
    }
}

/// A metric's name, help and number.
pub(crate) type Metric = (&'static str, &'static str, u64);

/// A family of one sample with these labels for each metric.
pub(crate) fn families(
    kind: Kind,
    labels: &[Label],
    metrics: impl IntoIterator<Item = Metric>,
) -> impl Iterator<Item = Family> {
    let family =
        move |(name, help, number)| family(name, help, kind, labels, Number::Whole(number));
    metrics.into_iter().map(family)
}

/// A family of one sample.
pub(crate) fn family(
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: &[Label],
    number: Number,
) -> Family {
    Family {
        name,
        help,
        kind,
        samples: vec![(labels.to_vec(), number)],
    }
}

/// Asserts that the manual has these metrics with their types, and no others of this prefix.
#[cfg(test)]
pub(crate) fn assert_documented(prefix: &str, families: &[Family]) {
    const PAGE: &str = include_str!("../../../docs/operating.md");
    let begin = format!("| `{prefix}");
    let rows = PAGE.lines().filter(|line| line.starts_with(&begin));
    let mut rows: Vec<&str> = rows
        .map(|row| row.rsplit_once(" | ").unwrap_or_default().0)
        .collect();
    let mut own: Vec<String> = families
        .iter()
        .map(|family| {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            format!("| `{}` | {kind}", family.name)
        })
        .collect();
    rows.sort_unstable();
    own.sort_unstable();
    assert_eq!(rows, own);
}
