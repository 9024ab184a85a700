//! The compiled application and its device. Modules that start processes use them.

use std::path::{Path, PathBuf};

use anyhow::Result;
use fanpcap_testkit::{Program, Scratch, library};

/// A group's number and its mode, as arguments.
pub(crate) type Group = (&'static str, &'static str);

/// The group that residents, visitors and the churn share.
pub(crate) const SHARED: Group = ("7", "lb");

/// The compiled c/soak.c, and the device at which it captures.
pub(crate) struct Stage {
    pub(crate) scratch: Scratch,
    program: PathBuf,
    device: &'static str,
}

impl Stage {
    pub(crate) fn new(device: &'static str) -> Result<Self> {
        let scratch = Scratch::new()?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/soak.c");
        let program = scratch.file("soak");
        library::compile_c(&source, &program)?;
        Ok(Self {
            scratch,
            program,
            device,
        })
    }

    /// The command of a process in a role. Its handles are in the group `group`, or are plain
    /// handles if `group` is `None`.
    pub(crate) fn program(&self, role: &str, group: Option<Group>) -> Result<Program> {
        let program = Program::new(&self.program, "ready")?.args([role, self.device]);
        Ok(match group {
            Some((number, mode)) => program.args([number, mode]),
            None => program,
        })
    }
}
