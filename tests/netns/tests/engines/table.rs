//! docs/engines.md: the configuration that the test runs, and the table of what it has found.

use std::env;
use std::fs;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::shares;

use crate::copies::Outcome;
use crate::engine::Engine;
use crate::truth::{self, COUNT};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/engines.md");
const HEADING: &str = "## One configuration for all engines\n";
const CODE: &str = "```ini\n";
const CODE_END: &str = "```\n";

/// Keeps a test from writing the page while another one does.
static WRITING: Mutex<()> = Mutex::new(());

fn page() -> Result<String> {
    fs::read_to_string(PAGE).context("docs/engines.md")
}

/// The pcap.conf in the page.
pub(crate) fn configuration() -> Result<String> {
    let page = page()?;
    let section = page.split_once(HEADING).context("no such section")?.1;
    let block = section.split_once(CODE).context("no configuration")?.1;
    let (text, _) = block.split_once(CODE_END).context("no end")?;
    Ok(text.to_owned())
}

/// The table's row of an engine. `first` is the outcome on packet sockets.
pub(crate) fn row(engine: Engine, outcome: &Outcome, first: &Outcome) -> Result<String> {
    let listed = |counts: Vec<usize>| {
        let texts: Vec<String> = counts.iter().map(usize::to_string).collect();
        texts.join(", ")
    };
    // The kernel's hash has a secret, so the shares of the stand-in for PF_RING's clusters vary.
    let (flow, moved) = match engine.is_steered() {
        true => (listed(outcome.shares()), outcome.moved(first).to_string()),
        false => (format!("{COUNT} together"), "not compared".to_owned()),
    };
    let (steered, dropped) = match &outcome.steered {
        Ok(captures) => (
            listed(shares(captures)),
            truth::dropped(&truth::frames()?).to_string(),
        ),
        Err(reason) => (format!("refused: {reason}"), "–".to_owned()),
    };
    let title = engine.title();
    Ok(format!(
        "| {title} | {flow} | {moved} | {steered} | {dropped} |"
    ))
}

/// Checks that the page's table has these rows. If FANPCAP_BLESS is set, replaces the rows of the
/// same engines instead.
pub(crate) fn check(rows: &[String]) -> Result<()> {
    let _writing = WRITING.lock();
    let mut page = page()?;
    for row in rows {
        println!("{row}");
        let (engine, _) = row[2..].split_once(" | ").context("a cell")?;
        let beginning = format!("| {engine} |");
        let mut lines = page.lines();
        let old = lines
            .find(|it| it.starts_with(&beginning))
            .context(beginning)?;
        if env::var_os("FANPCAP_BLESS").is_some() {
            page = page.replace(old, row);
            continue;
        }
        ensure!(
            old == row,
            "docs/engines.md differs (FANPCAP_BLESS=1 rewrites it):\n{row}"
        );
    }
    match env::var_os("FANPCAP_BLESS") {
        Some(_) => Ok(fs::write(PAGE, page)?),
        None => Ok(()),
    }
}
