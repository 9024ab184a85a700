//! A handle's life on a library in memory: what is called in which order, and what the application
//! is told. No kernel is asked.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod fake;
mod calls;
mod filters;
mod one;
mod placement;
mod on_engine;
mod several;
mod default;
