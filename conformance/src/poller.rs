//! The poller of a variant whose packets come from one: a process of the command `fanpcap`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::netns;
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Member, Program, Scratch};

use crate::Variant;
use crate::outside::Variables;

/// A poller of the scene's devices, which ends when this value is dropped.
#[derive(Debug)]
pub struct Poller {
    process: Option<Member>,
    /// Files that were renamed: the old path, and the new one.
    renamed: Vec<(PathBuf, PathBuf)>,
}

impl Poller {
    /// Starts the poller of a variant in the calling thread's network namespace, if the variant has
    /// one, and waits until it serves all devices.
    ///
    /// # Errors
    /// The command isn't staged, or a device can't be served.
    pub fn start(
        scratch: &Scratch,
        variant: Variant,
        variables: &Variables,
    ) -> Result<Option<Self>> {
        let places = variant.polled();
        if places.is_empty() {
            return Ok(None);
        }
        let program = Program::new(command()?, "")?;
        let set = |program: Program, (name, value): &(&str, String)| program.set(name, value);
        let program = variables.iter().fold(program, set);
        let program = program.arg("poller").args(places);
        let program = match variant == Variant::Dpdk {
            true => program.arg("--no-huge"),
            // One of the devices has an address, so the host uses it.
            false => program.args(["--steal", "force"]),
        };
        let mut process = program.spawn(scratch)?;
        for place in places {
            let place = place.split(',').next().unwrap_or(place);
            process.wait_until_says(&format!("fanpcap: serving {place} "))?;
        }
        let mut poller = Self {
            process: Some(process),
            renamed: Vec::new(),
        };
        poller.rename(variant.renamed())?;
        Ok(Some(poller))
    }

    fn rename(&mut self, names: &[(&str, &str)]) -> Result<()> {
        let directory = format!("/run/fanpcap-pollers/netns-{}", netns::inode()?);
        for (from, to) in names {
            let [from, to] = [from, to].map(|it| Path::new(&directory).join(it));
            fs::rename(&from, &to)?;
            self.renamed.push((from, to));
        }
        Ok(())
    }

    /// Gives the sockets their own names, by which the poller removes them.
    fn rename_back(&mut self) -> Result<()> {
        for (from, to) in self.renamed.drain(..) {
            fs::rename(to, from)?;
        }
        Ok(())
    }

    /// Ends the poller. The members have ended.
    ///
    /// # Errors
    /// The poller has failed.
    pub fn end(mut self) -> Result<()> {
        self.rename_back()?;
        let process = self.process.take().context("the poller has ended")?;
        process.stop().map(drop).context("the poller")
    }
}

impl Drop for Poller {
    /// Lets the poller end by itself, so that it leaves no files and settings.
    fn drop(&mut self) {
        let _ = self.rename_back();
        if let Some(process) = self.process.take() {
            // The run has failed already, by another error.
            let _ = process.stop();
        }
    }
}

/// The command beside our library.
fn command() -> Result<PathBuf> {
    let library = library_dir()?;
    let command = library.parent().map(|it| it.join("bin/fanpcap"));
    let command = command.filter(|it| Path::exists(it));
    let command = command.with_context(|| format!("no ../bin/fanpcap at {}", library.display()))?;
    ensure!(command.is_file(), "{} is no file", command.display());
    Ok(command)
}
