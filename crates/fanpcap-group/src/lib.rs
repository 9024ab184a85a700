//! Groups: joining, the roster of members, their pages, and the BPF programs that a group loads.
#![forbid(unsafe_code)]

pub mod root;
pub mod selection;
pub mod record;
pub mod page;
pub mod arrivals;
pub mod rejecting;
pub mod epitaph;
pub mod roster;
mod namespace;
pub mod closing;
pub mod steered;
pub mod group_stats;
mod table;
mod lead;
mod slots;
#[cfg(any(test, feature = "fuzz"))]
pub use slots::hostile;
mod faults;
mod locker;
mod dock;
mod on_xdp;
mod door;
mod shared;
mod estate;
mod ground;
pub mod identity;
pub mod turn;
mod found;
mod docks;
mod exchange;
#[cfg(feature = "faults")]
pub mod audit;
mod heir;
pub mod view;
pub mod group_counters;
mod teller;
pub mod weight;
pub mod stake;
pub mod member;
pub mod join;
pub mod replace;
