//! The directory that keeps suites, their builds and their logs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A directory outside the repository's files: `FANPCAP_SUITES_DIR`, or else target/suites.
#[derive(Debug)]
pub(crate) struct Place {
    root: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Result<Self> {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let root = env::var_os("FANPCAP_SUITES_DIR")
            .map_or_else(|| workspace.join("target/suites"), PathBuf::from);
        let place = Self { root };
        fs::create_dir_all(&place.root).with_context(|| place.root.display().to_string())?;
        let root = place.root.canonicalize()?;
        Ok(Self { root })
    }

    /// The path of a directory, which is created if it does not exist.
    pub(crate) fn dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    /// The path of an empty directory. Earlier contents are removed.
    pub(crate) fn empty_dir(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("emptying {}", path.display()))?;
        }
        self.dir(name)
    }

    /// The path of a directory that `make` has filled, now or earlier. An unfinished directory is
    /// filled again.
    pub(crate) fn made(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let stamp = self.root.join(format!("{name}.made"));
        let dir = self.root.join(name);
        if stamp.exists() && dir.exists() {
            return Ok(dir);
        }
        let dir = self.empty_dir(name)?;
        make(&dir)?;
        fs::write(&stamp, "").with_context(|| format!("writing {}", stamp.display()))?;
        Ok(dir)
    }

    /// The file for the full output of the commands that run for `name`.
    pub(crate) fn log(&self, name: &str) -> Result<PathBuf> {
        Ok(self.dir("logs")?.join(format!("{name}.log")))
    }
}
