//! Tests on real packets with unmodified programs, each in a network namespace of its own.

mod calls;
mod groups;
mod joining;
mod membership;
mod modes;
mod settings;
