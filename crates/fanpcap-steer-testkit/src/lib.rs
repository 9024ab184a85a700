//! Draws packets and steering programs of all kinds for tests. Most packets and programs are valid.
//! Each predicate of a program is true for some packets and false for others.
//!
//! Packets and programs are drawn from a tape, which is a sequence of bytes. A property test makes
//! the tape and shrinks it: a zero draws the simplest choice, as does the end of the tape. For
//! tests with loops, [`tape`] makes a tape from a seed. For fuzz tests, the bytes of libFuzzer are
//! the tape.

#![forbid(unsafe_code)]

mod draw;
pub mod pools;
pub mod packets;
pub mod flows;
pub mod programs;

pub use draw::{Draw, tape};
pub use packets::Made;

use fanpcap_steer::ir::Tree;
use proptest::collection::vec;
use proptest::prelude::*;

/// Any packet.
pub fn packet() -> impl Strategy<Value = Made> {
    vec(any::<u8>(), 200..400).prop_map(|tape| packets::packet(&mut Draw::new(&tape)))
}

/// Any program that the checker may accept.
pub fn program() -> impl Strategy<Value = Tree> {
    vec(any::<u8>(), 100..300).prop_map(|tape| programs::program(&mut Draw::new(&tape)))
}

/// A program that, in most cases, a kernel group can run.
pub fn group_program() -> impl Strategy<Value = Tree> {
    vec(any::<u8>(), 100..300).prop_map(|tape| programs::group_program(&mut Draw::new(&tape)))
}
