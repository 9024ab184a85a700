//! Handles whose packets come from a poller: unmodified applications, calls of the library, and the
//! poller's end.
#![allow(clippy::print_stdout, reason = "tests print")]

mod scene;
mod captures;
mod calls;
mod ends;
mod listing;
mod missed;
mod refusals;
mod returns;
mod sending;
mod unprivileged;
mod programs;
mod pfring;
