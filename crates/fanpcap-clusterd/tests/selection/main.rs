//! The selection in the kernel against the one in user space, by `BPF_PROG_TEST_RUN`: verdicts,
//! counters, records; seeded bugs; and what it costs.

#![allow(clippy::tests_outside_test_module, reason = "an integration test")]

mod both;
mod agreement;
