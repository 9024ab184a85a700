//! From source text to [`Program`], and the limits that hold on the way.

use crate::ir::Program;
use crate::{Definition, Error, check, lexer, parser};
use fanpcap_bpf::Classic;

/// Bytes of a source text.
pub const SOURCE_MAX: usize = 64 << 10;
/// How deep expressions of the source, and predicates and functions of the tree, lie in each other.
pub const DEPTH_MAX: usize = 64;
/// How deep expressions lie in each other once definitions are put in where they are named.
pub const CALLS_MAX: usize = 128;
/// Parameters of a definition, as in PFQ.
pub const PARAMETERS_MAX: usize = 8;
/// Elements of a list, as in PFQ.
pub const LIST_MAX: usize = 65_536;
/// How deep `inner` lies in `inner`.
pub const INNER_MAX: usize = 2;
/// Functions and predicates of a program's tree.
pub const NODES_MAX: usize = 4096;
/// Steps that putting definitions in may take: a program that doubles with each line comes to an end.
pub const WORK_MAX: usize = 1 << 18;
/// Uses of `sample` in a program.
pub const SAMPLERS_MAX: usize = 16;
/// Different pcap expressions in a program.
pub const FILTERS_MAX: usize = 16;
/// Bytes of a pcap expression: libpcap's optimizer takes more than the square of its length.
pub const FILTER_LENGTH_MAX: usize = 2048;

/// Compiles a pcap expression for Ethernet, or says why it can't.
pub type PcapFilter<'a> = &'a dyn Fn(&str) -> Result<Vec<Classic>, String>;

/// Compiles a program.
///
/// # Errors
/// What is wrong first, and where.
pub fn compile(source: &str, pcap: PcapFilter<'_>) -> Result<Program, Error> {
    let tokens = lexer::tokens(source)?;
    let program = parser::program(source, tokens)?;
    check::check(source, &program, pcap)
}

/// What the definitions of a program are, in its order.
///
/// # Errors
/// What is wrong first, and where.
pub fn definitions(source: &str, pcap: PcapFilter<'_>) -> Result<Vec<Definition>, Error> {
    let tokens = lexer::tokens(source)?;
    let program = parser::program(source, tokens)?;
    check::definitions(source, &program, pcap)
}
