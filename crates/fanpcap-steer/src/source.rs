//! Compiles source text to a tree.

use crate::check::{self, Definition, PcapCompiler};
use crate::ir::Tree;
use crate::{Error, lexer, parser};

/// The tree of a steering program.
///
/// # Errors
/// The first error, with its position.
pub fn tree(source: &str, pcap: PcapCompiler<'_>) -> Result<Tree, Error> {
    let tokens = lexer::tokens(source)?;
    let module = parser::module(source, tokens)?;
    check::check(source, &module, pcap)
}

/// The definitions of a steering program, in source order.
///
/// # Errors
/// The first error, with its position.
pub fn definitions(source: &str, pcap: PcapCompiler<'_>) -> Result<Vec<Definition>, Error> {
    let tokens = lexer::tokens(source)?;
    let module = parser::module(source, tokens)?;
    check::definitions(source, &module, pcap)
}

/// Whether a steering program is that of the mode with this name ([`crate::modes`]).
pub fn is_of_mode(program: &Tree, mode: &str) -> bool {
    let source = crate::modes::source(mode);
    let of_mode = source.map(|source| tree(source, &|_| Err(String::new())));
    of_mode.is_some_and(|of_mode| of_mode.is_ok_and(|it| it == *program))
}
