//! Groups: joining, the roster of members, their pages, and the BPF programs that a group loads.
#![forbid(unsafe_code)]

pub mod record;
pub mod page;
pub mod arrivals;
pub mod rejecting;
pub mod waiting;
pub mod takeover_status;
pub mod roster;
pub mod last_counts;
mod namespace;
pub mod closing;
pub mod steered;
pub mod group_stats;
mod table;
mod lead;
mod slots;
#[cfg(any(test, feature = "fuzz"))]
pub use slots::hostile;
mod rendezvous;
mod shared;
mod member_descriptors;
mod kernel;
pub mod identity;
pub mod guard;
mod found;
mod taken_devices;
mod exchange;
mod engine_error;
pub mod spares;
#[cfg(feature = "faults")]
pub mod audit;
mod takeover;
pub mod view;
pub mod group_counters;
mod counter_publisher;
pub mod weight;
pub mod served;
pub mod membership;
pub mod member;
pub mod join;
pub mod founder;
pub mod replace;
