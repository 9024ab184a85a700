//! The limits of a steering program.

/// Bytes of the source text.
pub const SOURCE_MAX: usize = 64 << 10;
/// Nesting depth of expressions in the source, and of predicates and functions in the tree.
pub const DEPTH_MAX: usize = 64;
/// Nesting depth of expressions after the expansion of definitions.
pub const CALLS_MAX: usize = 128;
/// Parameters of a definition, as in PFQ.
pub const PARAMETERS_MAX: usize = 8;
/// Elements of a list, as in PFQ.
pub const LIST_MAX: usize = 65_536;
/// Nesting depth of `inner`.
pub const INNER_MAX: usize = 2;
/// Functions and predicates of a steering program's tree.
pub const NODES_MAX: usize = 4096;
/// Steps of the expansion of definitions. The expansion must end even if each line doubles the
/// steering program.
pub const WORK_MAX: usize = 1 << 18;
/// Uses of `sample` in a steering program.
pub const SAMPLERS_MAX: usize = 16;
/// Different pcap expressions in a steering program.
pub const FILTERS_MAX: usize = 16;
/// Bytes of a pcap expression: the time of libpcap's optimizer grows faster than the square of the
/// length.
pub const FILTER_LENGTH_MAX: usize = 2048;
