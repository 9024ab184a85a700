//! What is run, and what has come of it; how the copies are looked after meanwhile is in `watch`.

mod watch;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};

use super::copy::Copy;
use super::group::Wanted;
use super::ledger::{Absent, Account};
use super::output::Output;
use watch::Watch;

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// Program and arguments, `%i` not expanded.
    pub(crate) command: &'a [OsString],
    /// The directory of our library.
    pub(crate) library: &'a Path,
    /// The copies' group.
    pub(crate) group: u16,
    /// Its mode, as far as it is known before a copy has joined.
    pub(crate) fanout: &'a Wanted,
    /// The indices of the devices that the arguments name.
    pub(crate) devices: &'a [u32],
    /// Only what is wrong is said.
    pub(crate) is_quiet: bool,
    /// It goes on with copies that see all packets.
    pub(crate) allow_outsiders: bool,
    /// Copies that end are started again.
    pub(crate) restart: bool,
    /// The file into which captures will be merged.
    pub(crate) merge: Option<&'a Path>,
    /// Lines begin with the copy's number.
    pub(crate) prefix: bool,
    /// Where everything is said.
    pub(crate) output: &'a Arc<Output>,
}

/// What has been run.
#[derive(Debug)]
pub(crate) struct Supervised {
    /// The copies, by their numbers.
    pub(crate) copies: Vec<Copy>,
    /// Their packets.
    pub(crate) accounts: Vec<Account>,
    /// The group's mode.
    pub(crate) mode: String,
    /// Times without a copy.
    pub(crate) absent: Absent,
    /// The most packets that can be in no figure, if there is such a limit.
    pub(crate) ceiling: Option<u64>,
    /// Copies that were in the group and never had a share of its packets.
    pub(crate) without_share: Vec<usize>,
    /// Copies ran for some time, and none of any start was in the group.
    pub(crate) none_joined: bool,
    /// Why it was all ended.
    pub(crate) error: Option<String>,
    /// The first end of a copy by itself, and the first other one, that was a failure and final.
    failure: Option<u8>,
    failure_when_told: Option<u8>,
}

impl Supervised {
    /// The exit status of all: 0 if copies captured in the group and none failed.
    pub(crate) fn code(&self) -> u8 {
        let failure = self.failure.or(self.failure_when_told);
        failure.unwrap_or(u8::from(self.none_joined))
    }

    /// The captures that the copies wrote, each with its copy.
    pub(crate) fn sources(&self) -> Vec<(usize, PathBuf)> {
        let of_copy = |copy: &Copy| {
            let mut paths = copy.files.captures();
            paths.extend(copy.spools.iter().cloned());
            paths
                .into_iter()
                .map(|path| (copy.number, path))
                .collect::<Vec<_>>()
        };
        self.copies.iter().flat_map(of_copy).collect()
    }

    /// Removes the copies of what came on standard output.
    pub(crate) fn remove_spools(&self) {
        for path in self.copies.iter().flat_map(|copy| &copy.spools) {
            // It does no harm but to be there.
            let _ = fs::remove_file(path);
        }
    }
}

impl Run<'_> {
    /// Runs the copies, one on each of `cpus`, until the last one has ended for good.
    ///
    /// # Errors
    /// When they can't be started or looked after.
    pub(crate) fn supervise(&self, cpus: &[Option<usize>]) -> Result<Supervised> {
        let arguments = self.command.get(1..).unwrap_or_default();
        let copies = cpus.iter().enumerate();
        let copies: Vec<Copy> = copies
            .map(|(number, cpu)| Copy::new(number, *cpu, arguments))
            .collect();
        if let Some(to) = self.merge {
            if let Some(copy) = copies.iter().find(|copy| copy.files.contain(to)) {
                bail!(
                    "--merge {}: copy {} writes that file",
                    to.display(),
                    copy.number
                );
            }
        }
        Watch::new(self, copies)?.run()
    }
}
