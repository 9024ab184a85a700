//! Traffic for tests and measurements: frames, made from a description or a capture file, and their sending.
#![forbid(unsafe_code)]
