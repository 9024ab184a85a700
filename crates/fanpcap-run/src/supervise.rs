//! The input of `fanpcap run`, and its results. `watch` supervises the copies.

mod watch;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use fanpcap_config::driver::Driver;
use fanpcap_group::founder::Founder;

use super::Arguments;
use super::copy::Copy;
use super::group::GroupMode;
use super::ledger::{Absent, Account, AtPoller};
use super::output::Output;
use watch::Watch;

/// The copies to run, their group, and where their output goes.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    pub(crate) arguments: &'a Arguments,
    /// The directory of our library.
    pub(crate) library: &'a Path,
    /// The copies' group.
    pub(crate) group: u16,
    /// The group's mode, as far as the mode is known before a copy joins.
    pub(crate) fanout: &'a GroupMode,
    /// The device, as far as the arguments name it.
    pub(crate) device: Option<&'a str>,
    /// The engine other than packet sockets that the arguments name.
    pub(crate) named_engine: Option<Driver>,
    /// The engine of the copies if their packets come from a poller.
    pub(crate) poller: Option<Driver>,
    /// The indices of the devices that the arguments name.
    pub(crate) devices: &'a [u32],
    /// Accepts the copies' output and the command's messages.
    pub(crate) output: &'a Arc<Output>,
}

/// The results, after all copies have ended.
#[derive(Debug)]
pub(crate) struct Supervised {
    /// The copies, by their numbers.
    pub(crate) copies: Vec<Copy>,
    /// The account of each copy's packets, by the copy's number.
    pub(crate) accounts: Vec<Account>,
    /// The group's mode.
    pub(crate) mode: String,
    /// Times in which no copy was in the group.
    pub(crate) absent: Absent,
    /// Packets that the steering program dropped; `None` if unknown, or without such a program.
    pub(crate) nowhere: Option<u64>,
    /// Packets that only the copies' poller counts.
    pub(crate) at_poller: Option<AtPoller>,
    /// At most this many packets are in no copy's account; `None` if no limit is known.
    pub(crate) ceiling: Option<u64>,
    /// Copies that were in the group and never had a share of its packets.
    pub(crate) without_share: Vec<usize>,
    /// Copies ran for some time, but no copy ever joined the group.
    pub(crate) none_joined: bool,
    /// No copy ever joined the group, however short the copies ran.
    pub(crate) had_no_members: bool,
    /// What went wrong.
    pub(crate) failures: Failures,
}

/// What went wrong while the copies ran.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    /// Why the command ended all copies.
    pub(crate) error: Option<String>,
    /// Exit status of the first copy that failed by itself and was not started again.
    own: Option<u8>,
    /// Exit status of the first copy that failed after the command had sent it a signal to end.
    when_told: Option<u8>,
}

impl Supervised {
    /// The command's exit status: 0 if copies captured in the group and none failed.
    pub(crate) fn code(&self) -> u8 {
        let failure = self.failures.own.or(self.failures.when_told);
        failure.unwrap_or(u8::from(self.none_joined))
    }

    /// The captures that the copies wrote, each with its copy's number. If several copies wrote the
    /// same file, the file is listed once.
    pub(crate) fn sources(&self) -> Vec<(usize, PathBuf)> {
        let of_copy = |copy: &Copy| {
            let mut paths = copy.files.captures();
            paths.extend(copy.spools.iter().cloned());
            paths
                .into_iter()
                .map(|path| (copy.number, path))
                .collect::<Vec<_>>()
        };
        let mut sources: Vec<(usize, PathBuf)> = self.copies.iter().flat_map(of_copy).collect();
        let mut seen = BTreeSet::new();
        sources.retain(|(_, path)| {
            fs::metadata(path).map_or(true, |found| seen.insert((found.dev(), found.ino())))
        });
        sources
    }

    /// Removes the files with captures that copies wrote to standard output.
    pub(crate) fn remove_spools(&self) {
        for path in self.copies.iter().flat_map(|copy| &copy.spools) {
            // A file that can't be removed does no harm.
            let _ = fs::remove_file(path);
        }
    }
}

impl Run<'_> {
    /// Runs the copies, one on each of `cpus`, until all have ended and none will be restarted.
    /// `founder` is the group, if this command has founded it.
    ///
    /// # Errors
    /// The copies can't be started or supervised.
    pub(crate) fn supervise(
        &self,
        cpus: &[Option<usize>],
        founder: Option<Arc<Founder>>,
    ) -> Result<Supervised> {
        let arguments = self.arguments.command.get(1..).unwrap_or_default();
        let copies = cpus.iter().enumerate();
        let copies: Vec<Copy> = copies
            .map(|(number, cpu)| Copy::new(number, *cpu, arguments))
            .collect();
        if let Some(to) = &self.arguments.merge {
            if let Some(copy) = copies.iter().find(|copy| copy.files.contain(to)) {
                bail!(
                    "--merge {}: copy {} writes that file",
                    to.display(),
                    copy.number
                );
            }
        }
        Watch::new(self, copies, founder)?.run()
    }
}
