//! Runs every comparison and writes MATRIX.md.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    reason = "a command's output is for the terminal"
)]

use std::env;
use std::fs;

use anyhow::{Result, bail, ensure};
use fanpcap_conformance::matrix::{self, PAGE, Row};
use fanpcap_conformance::{Variant, reasons, symbols, variant::COMPARED};

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["matrix"] => write_matrix(),
        _ => bail!("usage: cargo run -p fanpcap-conformance -- matrix"),
    }
}

fn write_matrix() -> Result<()> {
    for variant in COMPARED {
        let name = variant.name();
        ensure!(
            variant.is_possible(),
            "the column {name} needs DPDK (libdpdk-dev)"
        );
    }
    let rows = matrix::observed()?;
    fs::write(PAGE, matrix::page(&rows, &symbols::version()?)?)?;
    println!("wrote {PAGE}");
    let objections: String = rows.iter().flat_map(objections).collect();
    ensure!(objections.is_empty(), "- system's, + ours\n{objections}");
    Ok(())
}

fn objections(row: &Row) -> Vec<String> {
    let objection = |variant: Variant| {
        let difference = row.differs.get(&variant).map(String::as_str);
        reasons::objection(&row.behaviour.name, variant, difference)
    };
    COMPARED.into_iter().filter_map(objection).collect()
}
