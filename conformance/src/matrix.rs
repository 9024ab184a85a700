//! MATRIX.md: each behaviour and each exported symbol, with the results of the comparisons.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::{Context, Result};
use fanpcap_testkit::Scratch;

use crate::run::Differences;
use crate::variant::COMPARED;
use crate::{Behaviour, Variant, parallel, reasons, run, symbols};

/// Path of MATRIX.md.
pub const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/MATRIX.md");

/// Number of programs that run at the same time. There are several, because the programs spend most
/// of the time waiting.
const WORKERS: usize = 4;

/// Maximum number of programs that the page names for a symbol.
const NAMED: usize = 3;

/// A behaviour, the symbols that its program uses, and the variants in which it differs.
#[derive(Debug)]
pub struct Row {
    /// The behaviour.
    pub behaviour: Behaviour,
    /// The exported symbols that its program uses.
    pub uses: BTreeSet<String>,
    /// The variants in which the behaviour differs from the system's library.
    pub differs: Differences,
}

/// Makes the rows without running the programs. The differences in the rows are those for which
/// [`reasons`] has a reason.
///
/// # Errors
/// A program can't be compiled.
pub fn expected() -> Result<Vec<Row>> {
    rows(|behaviour| {
        let listed = |variant: Variant| {
            let reason = reasons::reason(&behaviour.name, variant)?;
            Some((variant, reason.to_owned()))
        };
        Ok(COMPARED.into_iter().filter_map(listed).collect())
    })
}

/// Makes the rows by running every program in every variant.
///
/// # Errors
/// A program can't be run, or fails on the system's library.
pub fn observed() -> Result<Vec<Row>> {
    rows(|behaviour| run::differences(behaviour, &COMPARED))
}

fn rows(differs: impl Fn(&Behaviour) -> Result<Differences> + Sync) -> Result<Vec<Row>> {
    let exported = symbols::exported()?;
    let scratch = Scratch::new()?;
    let row = |behaviour: Behaviour| {
        let uses = symbols::used(&behaviour.compile(&scratch, &[])?, &exported)?;
        let differs = differs(&behaviour).with_context(|| behaviour.name.clone())?;
        Ok(Row {
            behaviour,
            uses,
            differs,
        })
    };
    let rows = parallel::map(Behaviour::all()?, WORKERS, &row);
    let mut rows: Vec<Row> = rows.into_iter().collect::<Result<_>>()?;
    rows.sort_by(|one, other| one.behaviour.cmp(&other.behaviour));
    Ok(rows)
}

/// The page for these rows.
///
/// # Errors
/// A program's first line has no title.
pub fn page(rows: &[Row], version: &str) -> Result<String> {
    let exported = symbols::exported()?;
    let covered = exported
        .iter()
        .filter(|name| users(rows, name).next().is_some())
        .count();
    let runs = rows.len() * COMPARED.len();
    let differing: usize = rows.iter().map(|row| row.differs.len()).sum();
    let names = COMPARED.map(Variant::name).join(", ");
    let mut text = format!(
        "# What is compared with the system's library\n\n\
         Written by `cargo run -p fanpcap-conformance -- matrix`, as root, with libpcap {version}.\n\n\
         {} programs in `c/` show one behaviour each. A program runs on the system's library, and on ours\n\
         in {} ways ({names}). Output and exit status must be the same.\n\n\
         The packets of the column dpdk come from a poller of DPDK's driver net_af_packet. Those of the\n\
         columns zc and pfring come from a stand-in for PF_RING's library, and those of the column netmap\n\
         from a stand-in for netmap's kernel module. The stand-ins do not keep packets from the host.\n\n\
         {runs} comparisons were made: {} found no difference, {differing} found an intended difference.\n\
         The system's library exports {} symbols; the programs use {covered} of them.\n",
        rows.len(),
        COMPARED.len(),
        runs - differing,
        exported.len(),
    );
    differences(&mut text, rows);
    behaviours(&mut text, rows)?;
    by_symbol(&mut text, rows, &exported);
    Ok(text)
}

fn differences(text: &mut String, rows: &[Row]) {
    text.push_str("\n## Differences\n\n");
    for row in rows {
        let name = &row.behaviour.name;
        let mut by_reason = BTreeMap::<&str, Vec<&str>>::new();
        for &variant in row.differs.keys() {
            let why = reasons::reason(name, variant).unwrap_or("not meant");
            by_reason.entry(why).or_default().push(variant.name());
        }
        for (why, on) in by_reason {
            let _ = writeln!(text, "* `{name}` ({}): {why}.", on.join(", "));
        }
    }
}

fn behaviours(text: &mut String, rows: &[Row]) -> Result<()> {
    let _ = writeln!(
        text,
        "\n## Behaviours\n\n| program | {} | |",
        COMPARED.map(Variant::name).join(" | ")
    );
    let _ = writeln!(text, "| --- |{} --- |", " --- |".repeat(COMPARED.len()));
    for row in rows {
        let result = |variant: Variant| match row.differs.contains_key(&variant) {
            true => "differs",
            false => "same",
        };
        let results = COMPARED.map(result).join(" | ");
        let _ = writeln!(
            text,
            "| {} | {results} | {} |",
            row.behaviour.name,
            row.behaviour.title()?
        );
    }
    Ok(())
}

fn by_symbol(text: &mut String, rows: &[Row], exported: &BTreeSet<String>) {
    text.push_str(
        "\n## Symbols\n\nHow many programs use each symbol, and how many of these programs behave the same.\n\n",
    );
    let _ = writeln!(
        text,
        "| symbol | {} | programs |",
        COMPARED.map(Variant::name).join(" | ")
    );
    let _ = writeln!(text, "| --- |{} --- |", " --- |".repeat(COMPARED.len()));
    for symbol in exported {
        let using: Vec<&Row> = users(rows, symbol).collect();
        let result = |variant: Variant| {
            let same = using
                .iter()
                .filter(|row| !row.differs.contains_key(&variant))
                .count();
            format!("{same} of {}", using.len())
        };
        let results = COMPARED.map(result).join(" | ");
        let named: Vec<&str> = using
            .iter()
            .take(NAMED)
            .map(|row| row.behaviour.name.as_str())
            .collect();
        let more = match using.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let _ = writeln!(
            text,
            "| {symbol} | {results} | {}{more} |",
            named.join(", ")
        );
    }
}

/// The rows whose programs use a symbol.
pub fn users<'rows>(rows: &'rows [Row], symbol: &str) -> impl Iterator<Item = &'rows Row> {
    rows.iter().filter(move |row| row.uses.contains(symbol))
}
