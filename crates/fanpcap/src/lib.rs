//! What is asked of a handle, by settings and by the application's calls.
#![forbid(unsafe_code)]

pub mod request;
