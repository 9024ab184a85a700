//! Whole clusters of real processes, with packets of known truth: each is captured, or accounted.

mod wire;
mod readers;
mod files;
mod books;
mod stage;
mod changes;
mod deaths;
mod outages;
mod ports;
