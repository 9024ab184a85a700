//! Computes, from the nodes' counters, how many packets the cluster lost.
//!
//! All nodes see the whole mirrored link, so each node is an observer: its counters say what there
//! was to capture. A **run** begins when a node's counters are 0, and ends when they are reset or
//! lost. The loss of a bucket is the highest number of packets that a node saw in it, minus the
//! packets that nodes captured, plus the packets that a second node captured. A packet that reached
//! no node's port is in no count.
//!
//! Nodes read their counters at different times, so a number is a [`Span`] while packets come. The
//! span is as wide as the number of packets between two reports. Without traffic, it is exact.

mod report;
mod span;
mod verdict;
mod port;
mod ownership;
mod interval;
mod counter_run;
mod history;
mod judge;
mod account;
mod ledger;
mod unheard;
mod balance;
mod settle;
mod doubles;
mod idle;
mod turns;

pub use account::{Account, BucketAccount, NodeAccount};
pub use counter_run::Spans;
pub use history::PortHistory;
pub use ledger::{Ledger, LedgerSettings, ReportError};
pub use report::{Beacon, Counts, Report, Summary};
pub use span::Span;
pub use verdict::Verdict;

#[cfg(test)]
mod tests;
