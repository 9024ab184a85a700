//! Tests on real packets with unmodified programs, each in a network namespace of its own.

mod groups;
mod membership;
mod modes;
