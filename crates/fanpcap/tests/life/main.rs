//! A handle's life on a library in memory: the order of calls, and the application's results. No
//! kernel takes part.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod fake;
mod calls;
mod filters;
mod one;
mod placement;
mod on_engine;
mod several;
mod default;
