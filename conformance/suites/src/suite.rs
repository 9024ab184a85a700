//! The description of a suite.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;

/// A suite of tests: how it is had and how it is run.
#[derive(Debug)]
pub(crate) struct Suite {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Its description, for the results.
    pub(crate) what: &'static str,
    /// The traffic on the wire during the run.
    pub(crate) traffic: Traffic,
    /// Fetches and builds it; an error is the reason why it can't be had here.
    pub(crate) prepare: fn(&Place) -> Result<Built>,
    /// Runs it once, in a network namespace with the device [`crate::wire::DEVICE`].
    pub(crate) run: fn(&Built, &Session) -> Result<Outcome>,
}

/// A suite that is ready to run.
#[derive(Debug)]
pub(crate) struct Built {
    /// Where it is.
    pub(crate) dir: PathBuf,
    /// Its version, and those of what it runs with.
    pub(crate) version: String,
}

/// The traffic that arrives on the device while a suite runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Nothing.
    Silent,
    /// Frames without end, some thousand a second.
    Constant,
}

/// A program of ours that tries a binding whose own tests can't be had.
pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("programs")
        .join(name)
}
