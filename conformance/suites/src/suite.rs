//! The description of a suite.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;

/// A test suite: how it is obtained and how it is run.
#[derive(Debug)]
pub(crate) struct Suite {
    /// Name of the suite on the command line.
    pub(crate) name: &'static str,
    /// Description of the suite, for the results.
    pub(crate) what: &'static str,
    /// The traffic on the wire during the run.
    pub(crate) traffic: Traffic,
    /// Fetches and builds the suite. An error is the reason why the suite isn't available here.
    pub(crate) prepare: fn(&Place) -> Result<Built>,
    /// Runs the suite once, in a network namespace with the device [`crate::wire::DEVICE`].
    pub(crate) run: fn(&Built, &Session) -> Result<Outcome>,
}

/// A suite that is ready to run.
#[derive(Debug)]
pub(crate) struct Built {
    /// Directory of the suite.
    pub(crate) dir: PathBuf,
    /// Version of the suite, and of the interpreter or compiler that it uses.
    pub(crate) version: String,
}

/// The traffic that arrives on the device while a suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// No frames.
    Silent,
    /// A constant stream of frames, some thousand a second.
    Constant,
}

/// The path of one of our programs, which tests a binding whose own tests aren't available.
pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(name)
}
