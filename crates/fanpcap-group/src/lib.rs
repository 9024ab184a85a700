//! Groups: joining, the roster of members, their pages, and the BPF programs that a group loads.
#![forbid(unsafe_code)]

pub mod root;
pub mod record;
pub mod page;
pub mod arrivals;
pub mod rejecting;
pub mod roster;
pub mod closing;
pub mod steered;
pub mod group_stats;
pub mod member;
pub mod turn;
pub mod join;
pub mod replace;
