//! Checks whether a test can have its own mounts on this machine.

use std::process::Command;

use anyhow::{Context, Result};

/// The reason why `unshare --mount` fails on this machine; `None` if it works. In a chroot whose
/// directory is not a mount, the kernel can't make the root private (`EINVAL` from mount(2)).
///
/// # Errors
/// unshare(1) is missing.
pub fn hindrance() -> Result<Option<String>> {
    complaint(Command::new("unshare").args(["--mount", "true"]))
}

/// Runs a test that needs its own mounts. If the test can't run on this machine, prints the reason.
///
/// # Errors
/// The error of the test.
#[expect(clippy::print_stdout, reason = "what a test prints is how it says so")]
pub fn where_possible(test: impl FnOnce() -> Result<()>) -> Result<()> {
    match hindrance()? {
        None => test(),
        Some(reason) => {
            println!("SKIP: {reason}");
            Ok(())
        }
    }
}

fn complaint(command: &mut Command) -> Result<Option<String>> {
    let done = command.output().context("starting unshare")?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Ok((!done.status.success()).then(|| format!("no mounts of its own: {said}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scratch;

    /// A root that is a plain directory, not a mount, with the machine's executables.
    const CHROOT: &str = "for dir in usr bin lib lib64; do \
                              test ! -e /$dir || { mkdir \"$0/$dir\" && mount --rbind /$dir \"$0/$dir\"; } \
                          done && exec chroot \"$0\" unshare --mount true";

    #[test]
    #[ignore = "needs root: mounts"]
    fn a_chroot_without_a_mount_is_a_reason_to_skip() -> Result<()> {
        let scratch = Scratch::new()?;
        let root = scratch.file("root");
        std::fs::create_dir(&root)?;
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", CHROOT]).arg(&root);
        let reason = complaint(&mut unshare)?.context("it worked")?;
        assert!(reason.contains("propagation"), "{reason}");
        assert_eq!(complaint(&mut Command::new("true"))?, None);
        Ok(())
    }
}
