//! The limits of a steering program.

/// Maximum number of bytes of the source text.
pub const SOURCE_MAX: usize = 64 << 10;
/// Maximum nesting depth of expressions in the source, and of predicates and functions in the tree.
pub const DEPTH_MAX: usize = 64;
/// Maximum nesting depth of expressions after the expansion of definitions.
pub const CALLS_MAX: usize = 128;
/// Maximum number of parameters of a definition, as in PFQ.
pub const PARAMETERS_MAX: usize = 8;
/// Maximum number of elements of a list, as in PFQ.
pub const LIST_MAX: usize = 65_536;
/// Maximum nesting depth of `inner`.
pub const INNER_MAX: usize = 2;
/// Maximum number of functions and predicates of a steering program's tree.
pub const NODES_MAX: usize = 4096;
/// Maximum number of steps of the expansion of definitions. The limit is needed because a
/// definition can use another one twice: with each such line, the expanded steering program is
/// twice as large.
pub const WORK_MAX: usize = 1 << 18;
/// Maximum number of uses of `sample` in a steering program.
pub const SAMPLERS_MAX: usize = 16;
/// Maximum number of different pcap expressions in a steering program.
pub const FILTERS_MAX: usize = 16;
/// Maximum number of bytes of a pcap expression. Without a limit libpcap's optimizer could take too
/// long: its time grows faster than the square of the length.
pub const FILTER_LENGTH_MAX: usize = 2048;
