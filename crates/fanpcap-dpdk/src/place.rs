//! Where the plugin is, and who can replace it.

use crate::plugin::{LoadError, Plugin};
use fanpcap_linux::file::directory::others_may_write;
use fanpcap_linux::process::is_secure;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

impl Plugin {
    /// Loads the plugin that is installed with the running command, or the one that the variable
    /// `FANPCAP_DPDK_PLUGIN` names.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn find() -> Result<Self, LoadError> {
        let path = installed()?;
        // Any user can link a command with file capabilities to a directory of his own.
        if is_secure() && path.exists() {
            ensure_roots(&path)?;
        }
        Self::load(&path)
    }
}

/// The plugin's file: beside the command in the build tree, or in PREFIX/libexec. A variable may
/// name another one.
fn installed() -> Result<PathBuf, LoadError> {
    if let Some(path) = env::var_os(VARIABLE).filter(|_| !is_secure()) {
        return Ok(path.into());
    }
    let command = env::current_exe().map_err(|_| LoadError::Missing(FILE.into()))?;
    // A link to the command may be elsewhere.
    let command = fs::canonicalize(&command).unwrap_or(command);
    let directory = command.parent().unwrap_or(Path::new("/"));
    let places = [
        directory.join(FILE),
        directory.join("../libexec/fanpcap").join(FILE),
    ];
    let [_, installed] = &places;
    let found = places.iter().find(|it| it.exists());
    let found = found.unwrap_or(installed);
    Ok(fs::canonicalize(found).unwrap_or_else(|_| found.clone()))
}

/// Checks that only root can change a file or put another one in its place. The path has no links.
fn ensure_roots(path: &Path) -> Result<(), LoadError> {
    let is_roots = |part: &Path| {
        let about = fs::metadata(part);
        about.is_ok_and(|it| it.uid() == 0 && !others_may_write(&it))
    };
    let mut parts = path.ancestors();
    match parts.find(|part| !is_roots(part)) {
        None => Ok(()),
        Some(part) => Err(LoadError::Untrusted(path.to_owned(), part.to_owned())),
    }
}

const FILE: &str = "fanpcap-dpdk.so";
const VARIABLE: &str = "FANPCAP_DPDK_PLUGIN";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_others_can_replace_is_not_trusted() {
        ensure_roots(Path::new("/etc/passwd")).unwrap();
        // Anybody can make a file in /tmp.
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        let file = scratch.file("plugin.so");
        fs::write(&file, "").unwrap();
        let error = ensure_roots(&file).unwrap_err().to_string();
        assert!(error.contains("is not trusted"), "{error}");
    }
}
