//! docs/programs.md, held to what the test found.

use std::env;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{COPIES, Sees};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/programs.md");
const BEGIN: &str = "<!-- written by tests/netns/tests/programs -->\n";

/// What is told of a program.
pub(crate) struct Row {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
    pub(crate) sees: Sees,
    /// Conversations that the copies had to find together.
    pub(crate) expected: usize,
}

/// Compares the page's table with what was found; `FANPCAP_BLESS=1` rewrites it.
pub(crate) fn check(rows: &[Row]) -> Result<()> {
    let page = fs::read_to_string(PAGE).context("docs/programs.md")?;
    let (before, now) = page
        .split_once(BEGIN)
        .context("docs/programs.md has no table")?;
    let table = table(rows);
    if env::var_os("FANPCAP_BLESS").is_some() {
        fs::write(PAGE, format!("{before}{BEGIN}{table}"))?;
        return Ok(());
    }
    ensure!(
        now == table,
        "docs/programs.md differs (FANPCAP_BLESS=1 rewrites it):\n{table}"
    );
    Ok(())
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| program | Debian package | copies | looks at | conversations | at two copies | missed |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let sees = match row.sees {
            Sees::All => "TCP, UDP",
            Sees::Tcp => "TCP",
        };
        let Row {
            program,
            package,
            expected,
            ..
        } = row;
        text += &format!("| {program} | {package} | {COPIES} | {sees} | {expected} | 0 | 0 |\n");
    }
    text
}
