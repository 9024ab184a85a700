//! The selection in the kernel against the one in user space, by `BPF_PROG_TEST_RUN`: verdicts,
//! counters, records; seeded bugs; and what it costs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "a proof prints how much it has tried")]

mod both;
mod agreement;
mod cost;
mod shipped;
mod mutations;
