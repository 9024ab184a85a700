//! The table of docs/programs.md, which lists the applications that have just passed.

use std::env;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::subjects::{Sees, Subject, Tells};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/programs.md");
const BEGIN: &str = "<!-- written by tests/netns/tests/programs -->\n";

/// Checks that the page's table lists the programs that passed. If FANPCAP_BLESS is set, rewrites
/// the table instead.
pub(crate) fn check(subjects: &[Subject]) -> Result<()> {
    let page = fs::read_to_string(PAGE).context("docs/programs.md")?;
    let (before, now) = page
        .split_once(BEGIN)
        .context("docs/programs.md has no table")?;
    let table = table(subjects);
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

fn table(subjects: &[Subject]) -> String {
    let mut text = String::from("| program | Debian package | finds | compared |\n");
    text += "| --- | --- | --- | --- |\n";
    for Subject {
        name,
        package,
        sees,
        tells,
        ..
    } in subjects
    {
        let sees = match sees {
            Sees::All => "TCP and UDP conversations",
            Sees::Tcp => "TCP conversations",
        };
        let compared = match tells {
            Tells::Conversations => "conversations",
            Tells::Packets => "conversations and packets",
        };
        text += &format!("| {name} | {package} | {sees} | {compared} |\n");
    }
    text
}
