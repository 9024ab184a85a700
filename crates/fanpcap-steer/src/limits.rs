//! The limits of a steering program.

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
/// Steps that putting definitions in may take: a program that doubles with each line comes to an
/// end.
pub const WORK_MAX: usize = 1 << 18;
/// Uses of `sample` in a program.
pub const SAMPLERS_MAX: usize = 16;
/// Different pcap expressions in a program.
pub const FILTERS_MAX: usize = 16;
/// Bytes of a pcap expression: libpcap's optimizer takes more than the square of its length.
pub const FILTER_LENGTH_MAX: usize = 2048;
