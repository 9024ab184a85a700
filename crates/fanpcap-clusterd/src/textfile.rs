//! The file with a program's metrics, which node_exporter's textfile collector reads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fanpcap_terminal::exposition::{Family, Kind, Label, Number, text};
use fanpcap_terminal::streams;
use fanpcap_terminal::textfile;

/// Checks the file of an option such as --metrics at the start. A later failure to write it is not
/// fatal.
pub(crate) fn check(option: &str, file: Option<&Path>) -> Result<()> {
    let checked = file.map_or(Ok(()), textfile::check);
    let shown = file.unwrap_or(Path::new("")).display();
    checked.with_context(|| format!("{option} {shown}"))
}

/// A file whose content is replaced atomically. If the disk is full, the process continues.
#[derive(Debug)]
pub(crate) struct Textfile {
    file: PathBuf,
    /// The subcommand that writes the file, for messages.
    verb: &'static str,
    /// Whether the last write has failed.
    fails: bool,
}

impl Textfile {
    /// The file that the subcommand `verb` writes.
    pub(crate) fn new(file: PathBuf, verb: &'static str) -> Self {
        Self {
            file,
            verb,
            fails: false,
        }
    }

    /// Replaces the file's content by these metrics. Of failures in a row, reports only the first.
    pub(crate) fn write(&mut self, families: &[Family]) {
        self.write_text(&text(families));
    }

    /// Replaces the file's content by this text. Of failures in a row, reports only the first.
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

/// Makes a family with one sample of each metric. All samples have the labels `labels`.
pub(crate) fn families(
    kind: Kind,
    labels: &[Label],
    metrics: impl IntoIterator<Item = Metric>,
) -> impl Iterator<Item = Family> {
    let family =
        move |(name, help, number)| family(name, help, kind, labels, Number::Whole(number));
    metrics.into_iter().map(family)
}

/// A family with one sample.
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

/// Asserts that the manual lists exactly these metrics with this prefix, and with these types.
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
