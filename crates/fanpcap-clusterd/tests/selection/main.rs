//! Compares the selection in the kernel with the selection in user space, by `BPF_PROG_TEST_RUN`:
//! verdicts, counters and records. Also finds seeded bugs, and measures the cost.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "the tests print what they tried")]

mod both;
mod agreement;
mod cost;
mod shipped;
mod mutations;
