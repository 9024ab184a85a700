//! Handles on the XDP engine: unmodified applications, calls of the library, and objects that
//! remain after the end.
#![allow(clippy::print_stdout, reason = "tests print")]

mod scene;
mod calls;
mod captures;
mod changes;
mod clock;
mod devices;
mod groups;
mod host;
mod kernels;
mod ledger;
mod memory;
mod newcomers;
mod numbered;
mod order;
mod paused;
mod refusals;
mod remains;
mod replaced;
mod sent;
mod sent_filters;
mod stalled;
mod stream;
mod tags;
