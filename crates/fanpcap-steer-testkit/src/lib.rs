//! Packets and programs as tests want them: all kinds, mostly valid, each question answered both
//! ways.
//!
//! They are drawn from a tape of bytes. A property test makes the tape and shrinks it: zeros draw
//! what is simplest, and so does the end of the tape. [`tape`] makes one from a seed, for loops;
//! libFuzzer's bytes are one too.

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

/// Any program that a checker may let through.
pub fn program() -> impl Strategy<Value = Tree> {
    vec(any::<u8>(), 100..300).prop_map(|tape| programs::program(&mut Draw::new(&tape)))
}

/// A program that a group of the kernel's can run, mostly.
pub fn group_program() -> impl Strategy<Value = Tree> {
    vec(any::<u8>(), 100..300).prop_map(|tape| programs::group_program(&mut Draw::new(&tape)))
}
