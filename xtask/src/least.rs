//! Builds the library with the least supported version of Rust, and checks that it keeps its size
//! limit.

use anyhow::Result;

use crate::tally::Tally;
use crate::toolchain::{Rust, VERSION};
use crate::{stage, symbols, tree};

const CHECKS: [&str; 2] = ["least: the library", "least: size of the library"];

/// Builds the library, and measures it.
pub(crate) fn run() -> Result<Tally> {
    let mut tally = Tally::default();
    let rust = match Rust::find() {
        Ok(rust) => rust,
        Err(error) => {
            for name in CHECKS {
                tally.skip(name, &format!("can't get Rust {VERSION}: {error:#}"));
            }
            return Ok(tally);
        }
    };
    let said = tree::output(&mut rust.command("rustc", "--version"))?;
    println!("  {}", said.trim());
    let built = stage::built_library(&rust);
    if let Ok(library) = &built {
        tally.check(CHECKS[1], &symbols::small(library));
    }
    tally.check(CHECKS[0], &built.map(|it| it.display().to_string()));
    Ok(tally)
}
