//! The command line: which suites, on which variants, and the date of the results.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::suite::Suite;
use crate::suites;
use crate::variant::Variant;

const USAGE: &str = "usage: cargo run -p fanpcap-suites -- [--date DAY] [--only VARIANT] NAME...\n\
    VARIANT is system, staged, tpacket or xdp; results are kept only of runs on all of them";

#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) suites: Vec<&'static Suite>,
    pub(crate) variants: Vec<Variant>,
    pub(crate) date: String,
}

impl Arguments {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let (mut found, mut variants, mut date) = (Vec::new(), Vec::new(), None);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--date" => date = Some(words.next().context(USAGE)?),
                "--only" => {
                    let name = words.next().context(USAGE)?;
                    variants.push(Variant::named(&name).context(USAGE)?);
                }
                name => found.push(named(name)?),
            }
        }
        ensure!(!found.is_empty(), "{USAGE}\nNAME is one of {}", names());
        if variants.is_empty() {
            variants = Variant::ALL.to_vec();
        }
        let date = date.map_or_else(today, Ok)?;
        Ok(Self {
            suites: found,
            variants,
            date,
        })
    }

    /// Whether the results are kept. They are not kept if only some variants are compared, because
    /// this is done only to investigate a difference.
    pub(crate) fn keeps_results(&self) -> bool {
        self.variants == Variant::ALL
    }
}

fn named(name: &str) -> Result<&'static Suite> {
    match suites::ALL.iter().find(|suite| suite.name == name) {
        Some(suite) => Ok(suite),
        None => bail!("no suite {name}; there are {}", names()),
    }
}

fn names() -> String {
    let names: Vec<&str> = suites::ALL.iter().map(|suite| suite.name).collect();
    names.join(" ")
}

fn today() -> Result<String> {
    let said = Command::new("date").arg("+%F").output().context("date")?;
    Ok(String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn suites_are_named_and_results_of_all_variants_kept() {
        let all = parse("--date 2026-01-02 tcpdump net-pcap").unwrap();
        assert_eq!(all.suites.len(), 2);
        assert_eq!(all.date, "2026-01-02");
        assert!(all.keeps_results());
        assert!(!parse("--only system tcpdump").unwrap().keeps_results());
    }

    #[test]
    fn what_is_unknown_is_said() {
        for line in ["", "nosuch", "--only ours tcpdump", "tcpdump --date"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
