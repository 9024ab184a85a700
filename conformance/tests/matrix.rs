//! MATRIX.md must match the programs and the symbols that they use. Each exported symbol must be
//! used by a program.

use std::fs;

use anyhow::Result;
use fanpcap_conformance::{matrix, symbols};

#[test]
fn every_symbol_is_used_and_the_matrix_is_current() -> Result<()> {
    let rows = matrix::expected()?;
    let exported = symbols::exported()?;
    let unused: Vec<_> = exported
        .iter()
        .filter(|symbol| matrix::users(&rows, symbol).next().is_none())
        .collect();
    assert_eq!(
        unused,
        Vec::<&String>::new(),
        "no program uses these symbols"
    );

    // The page may have been written with another release of libpcap, so take the version from the
    // page.
    let written = fs::read_to_string(matrix::PAGE)?;
    let version = written
        .split_once("with libpcap ")
        .map_or("", |(_, rest)| rest);
    let version = version.split_once(".\n").map_or("", |(version, _)| version);
    assert_eq!(
        matrix::page(&rows, version)?,
        written,
        "write it again: cargo run -p fanpcap-conformance -- matrix"
    );
    Ok(())
}
