//! A member's part in a steering program, without privileges. Filters that were loaded before the
//! application set another filter are not used.

use super::*;
use crate::record::tests::steering;
use std::fs::File;
use std::os::fd::AsFd;

/// A member of a group whose steering program neither drops nor counts. Nothing is loaded or
/// attached for this member, so any descriptor serves as its socket and as its table.
pub(super) fn member() -> (Steered, File) {
    let steering = Arc::new(steering("main = steer_rrobin"));
    let file = File::open("/dev/null").unwrap();
    (Steered::load(&steering, None, file.as_fd()).unwrap(), file)
}

pub(super) fn own(steered: &Steered) -> bool {
    steered.hold().unwrap().own.is_some()
}

#[test]
fn what_was_loaded_before_a_filter_is_set_is_loaded_again() {
    let (steered, file) = member();
    let dropping = Arc::new(steering("main = tcp >-> steer_rnd"));
    let stale = Prepared {
        filters: Some(Filters::default()),
        generation: steered.hold().unwrap().generation,
    };
    let mut unchanging = steered.unchanging().unwrap();
    unchanging.refilter(file.as_fd(), Ok(None)).unwrap();
    drop(unchanging);
    // Loading fails without privileges, and attaching fails because /dev/null is not a socket.
    let gone = steered.switch_to(&dropping, stale, [file.as_fd(); 2]);
    assert!(gone.is_err(), "the stale filters were used");
}
