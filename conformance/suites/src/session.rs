//! Starts the processes of one suite on one variant.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::command;
use crate::place::Place;
use crate::variant::Variant;

/// The programs that a session starts load the library of one variant. They leave a record of the
/// libraries that they loaded.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) variant: Variant,
    pub(crate) staged: PathBuf,
    /// The loader's messages, a file for each process.
    pub(crate) loads: PathBuf,
    /// Directory for files of the suite's programs; empty at first.
    pub(crate) scratch: PathBuf,
    logs: PathBuf,
    name: String,
}

impl Session {
    pub(crate) fn new(place: &Place, suite: &str, variant: Variant, staged: &Path) -> Result<Self> {
        let name = format!("{suite}.{}", variant.name());
        Ok(Self {
            variant,
            staged: staged.to_owned(),
            loads: place.empty_dir(&format!("loads/{name}"))?,
            scratch: place.empty_dir(&format!("scratch/{name}"))?,
            logs: place.dir("logs")?,
            name,
        })
    }

    /// A program of the suite, which ends after `limit` at the latest. The program has /sys of its
    /// network namespace, because libpcap reads the types of devices there.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>, limit: Duration) -> Command {
        let mut command = command::bounded("unshare", limit);
        command
            .args(["--mount", "sh", "-c", WITH_SYS, "sh"])
            .arg(program);
        self.variant.apply(&mut command, &self.staged);
        command
            .env("LD_DEBUG", "libs")
            .env("LD_DEBUG_OUTPUT", self.loads.join("of"));
        command
    }

    /// The log of one part of the suite, or of the whole suite if `part` is empty.
    pub(crate) fn log(&self, part: &str) -> PathBuf {
        let dot = if part.is_empty() { "" } else { "." };
        self.logs.join(format!("{}{dot}{part}.log", self.name))
    }

    /// Runs a program to its end.
    pub(crate) fn run(&self, part: &str, program: &mut Command) -> Result<command::Ended> {
        command::run(program, &self.log(part))
    }
}

const WITH_SYS: &str = r#"mount -t sysfs sysfs /sys && exec "$@""#;
