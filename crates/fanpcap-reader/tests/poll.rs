//! A read whose poll(2) fails. The test has its own process, because the limit that makes poll(2)
//! fail applies to the whole process.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "lengths are below 4096, and a test may panic"
)]

#[allow(dead_code, reason = "the other tests use the rest")]
#[path = "returns/fake.rs"]
mod fake;
#[path = "../../fanpcap-ring/tests/kernel/mod.rs"]
mod kernel;

use fake::{FakeDevice, OPTIONS, Return, times};
use fanpcap_reader::Reader;

#[test]
fn a_poll_that_fails_ends_the_read_with_the_ports_words() {
    let (_device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    // poll(2) accepts no more entries than a process may have descriptors.
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is a live struct rlimit.
    let status = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
    assert_eq!(status, 0);
    let text = "Invalid argument (os error 22)".to_owned();
    assert_eq!(times(&reader, -1), (Return::Error(text), vec![]));
}
