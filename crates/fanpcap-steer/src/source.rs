//! From source text to its tree.

use crate::check::{self, Definition, PcapCompiler};
use crate::ir::Tree;
use crate::{Error, lexer, parser};

/// The tree of a steering program.
///
/// # Errors
/// What is wrong first, and where.
pub fn tree(source: &str, pcap: PcapCompiler<'_>) -> Result<Tree, Error> {
    let tokens = lexer::tokens(source)?;
    let module = parser::module(source, tokens)?;
    check::check(source, &module, pcap)
}

/// What the definitions of a steering program are, in its order.
///
/// # Errors
/// What is wrong first, and where.
pub fn definitions(source: &str, pcap: PcapCompiler<'_>) -> Result<Vec<Definition>, Error> {
    let tokens = lexer::tokens(source)?;
    let module = parser::module(source, tokens)?;
    check::definitions(source, &module, pcap)
}
