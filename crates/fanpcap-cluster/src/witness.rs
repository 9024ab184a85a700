//! What nodes count, and what of the traffic the cluster lost by that.

mod report;

pub use report::{Assembly, Beacon, Chunk, Counts, Report, Summary};
