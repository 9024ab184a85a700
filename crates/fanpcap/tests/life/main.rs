//! The life of a simulated handle: in which order our code calls the system's library, the reader
//! and the group, and what the application gets. No kernel takes part.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod fake;
mod calls;
mod filters;
mod one;
mod placement;
mod on_engine;
mod polled;
mod returns;
mod several;
mod default;
