//! Commands with a time limit, whose output goes to a log.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// The exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
}

/// A command that ends after `limit` at the latest, with all its children. For this purpose,
/// timeout(1) gives the command its own process group.
pub(crate) fn bounded(program: impl AsRef<OsStr>, limit: Duration) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "5", &limit.as_secs().to_string()])
        .arg(program)
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end. Its standard output and standard error go to the new file `log`.
pub(crate) fn run(command: &mut Command, log: &Path) -> Result<Ended> {
    let file = File::create(log).with_context(|| format!("writing {}", log.display()))?;
    let status = command
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("running {command:?}"))?;
    let bytes = fs::read(log)?;
    ensure!(
        status.code() != Some(TIMED_OUT),
        "it did not end; see {}",
        log.display()
    );
    Ok(Ended {
        status,
        said: String::from_utf8_lossy(&bytes).into_owned(),
    })
}

/// Runs a step of a build. If the step fails, returns an error with the last lines of its output.
pub(crate) fn step(command: &mut Command, log: &Path) -> Result<String> {
    let ended = run(command, log)?;
    if !ended.status.success() {
        let what = command.get_args().nth(3).unwrap_or_default();
        bail!(
            "{}: {} (in {})",
            what.to_string_lossy(),
            last_lines(&ended.said),
            log.display()
        );
    }
    Ok(ended.said)
}

fn last_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().rev().filter(|line| !line.is_empty()).collect();
    lines.truncate(3);
    lines.reverse();
    lines.join(" / ")
}

/// The exit code of timeout(1) when the time is over.
const TIMED_OUT: i32 = 124;
/// Time limit of a build's step.
pub(crate) const BUILD: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_is_what_counts() {
        assert_eq!(last_lines("a\nb\n\nc\nd\n"), "b / c / d");
        assert_eq!(last_lines(""), "");
    }
}
