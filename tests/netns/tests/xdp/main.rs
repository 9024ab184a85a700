//! Handles on the XDP engine: unmodified applications, calls of the library, and what is left of
//! them.
#![allow(clippy::print_stdout, reason = "tests print")]

mod scene;
mod calls;
mod captures;
mod changes;
mod devices;
mod groups;
mod host;
mod kernels;
mod refusals;
mod remains;
mod replaced;
mod ledger;
mod stalled;
mod stream;
mod tags;
