//! Compares all back ends: each steering program runs in the kernel (`BPF_PROG_TEST_RUN`) and in
//! the evaluator, on the same packets in the same order. Both must give the same results, counters
//! and state.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(
    clippy::print_stdout,
    reason = "the test prints the number of its trials"
)]

mod captures;
mod case;
mod cost;
mod filters;
mod generated;
mod group;
mod lies;
mod limits;
mod memory;
mod recording;
mod seed;
mod seeded;
mod sent;
mod sent_filters;
mod shrink;
mod side;
mod slots;
mod sticky;
mod balanced;
mod traffic;
mod tree;
mod workers;
mod written;
