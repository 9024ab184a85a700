//! Memory that another process writes to while it is read.
#![allow(
    clippy::cast_possible_truncation,
    reason = "lengths in here are below 4096"
)]

mod program;

use program::hostile;
use proptest::prelude::*;

proptest! {
    #[test]
    fn whatever_others_write_what_is_read_lies_within_and_ends(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        hostile::run(&bytes);
    }
}
