//! Where the plugin is.

use crate::plugin::{LoadError, Plugin};
use fanpcap_linux::process::is_secure;
use std::path::{Path, PathBuf};
use std::{env, fs};

impl Plugin {
    /// Loads the plugin that is installed with the running command, or the one that the variable
    /// `FANPCAP_DPDK_PLUGIN` names.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn find() -> Result<Self, LoadError> {
        // DPDK's words and a device's arguments name files to load and to write.
        match is_secure() {
            true => Err(LoadError::Raised),
            false => Self::load(&installed()?),
        }
    }
}

/// The plugin's file: beside the command in the build tree, or in PREFIX/libexec. A variable may
/// name another one.
fn installed() -> Result<PathBuf, LoadError> {
    if let Some(path) = env::var_os(VARIABLE) {
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

const FILE: &str = "fanpcap-dpdk.so";
const VARIABLE: &str = "FANPCAP_DPDK_PLUGIN";
