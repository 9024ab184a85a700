//! What make and .ci/run call.
fn main() {}
