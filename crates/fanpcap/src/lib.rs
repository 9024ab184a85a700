//! Placeholder line replaced by the crate's first code.
