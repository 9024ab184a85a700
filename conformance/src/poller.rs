//! The poller of a variant whose packets come from one: a process of the command `fanpcap`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Member, Program, Scratch};

/// A poller of the scene's devices, which ends when this value is dropped.
#[derive(Debug)]
pub struct Poller {
    process: Option<Member>,
}

impl Poller {
    /// Starts a poller of these devices in the calling thread's network namespace, such as
    /// `packet:va`, and waits until it serves all of them.
    ///
    /// # Errors
    /// The command isn't staged, or a device can't be served.
    pub fn start(scratch: &Scratch, places: &[&str]) -> Result<Self> {
        let program = Program::new(command()?, "")?.arg("poller").args(places);
        // One of the devices has an address, so the host uses it.
        let mut process = program.args(["--steal", "force"]).spawn(scratch)?;
        for place in places {
            process.wait_until_says(&format!("fanpcap: serving {place} "))?;
        }
        let process = Some(process);
        Ok(Self { process })
    }

    /// Ends the poller. The members have ended.
    ///
    /// # Errors
    /// The poller has failed.
    pub fn end(mut self) -> Result<()> {
        let process = self.process.take().context("the poller has ended")?;
        process.stop().map(drop).context("the poller")
    }
}

impl Drop for Poller {
    /// Lets the poller end by itself, so that it leaves no files and settings.
    fn drop(&mut self) {
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
