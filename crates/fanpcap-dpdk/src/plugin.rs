//! Loads the plugin, and checks that it has this crate's interface.

use crate::abi::{Table, VERSION};
use fanpcap_linux::object::{SharedObject, text};
use std::error::Error;
use std::ffi::{CStr, CString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A loaded plugin. It stays loaded until the process ends.
#[derive(Clone, Copy)]
pub struct Plugin {
    table: &'static Table,
}

/// Why the plugin can't be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The file does not exist.
    Missing(PathBuf),
    /// The loader refuses the file: its reason, which names a missing library.
    Libraries(PathBuf, String),
    /// The file is no plugin.
    NoPlugin(PathBuf),
    /// The plugin has another version of the interface.
    Version(PathBuf, u32),
    /// The process has more rights than its user.
    Raised,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(path) => write!(
                f,
                "the plugin for DPDK is not installed, there is no {}: install the package \
                 fanpcap-dpdk ('make dpdk' in the source tree)",
                path.display()
            ),
            Self::Libraries(path, why) => write!(
                f,
                "the plugin {} can't be loaded: {why}: install DPDK's libraries, or the package \
                 fanpcap-dpdk of this release of the system",
                path.display()
            ),
            Self::NoPlugin(path) => write!(f, "{} is no plugin for DPDK", path.display()),
            Self::Version(path, its) => write!(
                f,
                "the plugin {} has version {its} of the interface, this poller has version \
                 {VERSION}: install fanpcap and fanpcap-dpdk of the same version",
                path.display()
            ),
            Self::Raised => f.write_str(
                "DPDK does not run in a command that has more rights than its user (file \
                 capabilities, or set-user-ID): start the command as root",
            ),
        }
    }
}

impl Error for LoadError {}

/// The name of the plugin's table of functions.
const SYMBOL: &CStr = c"fanpcap_dpdk";

impl Plugin {
    /// Loads a plugin. The caller trusts the file: its code runs with the rights of this process.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        if !path.exists() {
            return Err(LoadError::Missing(path.to_owned()));
        }
        let no_plugin = || LoadError::NoPlugin(path.to_owned());
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| no_plugin())?;
        // SAFETY: the caller trusts the file.
        let object = unsafe { SharedObject::load(&name, libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let object = object.map_err(|why| LoadError::Libraries(path.to_owned(), why))?;
        let symbol = object.symbol(SYMBOL).ok_or_else(no_plugin)?;
        let symbol = symbol.cast::<[u32; 2]>();
        // SAFETY: each version of the interface begins with its version and the table's size. The
        // object is never unloaded.
        let [version, size] = unsafe { symbol.read() };
        if version != VERSION {
            return Err(LoadError::Version(path.to_owned(), version));
        }
        if usize::try_from(size) != Ok(size_of::<Table>()) {
            return Err(no_plugin());
        }
        // SAFETY: a table of this version and size is a `Table` that nobody changes, and the object
        // is never unloaded.
        let table = unsafe { symbol.cast::<Table>().as_ref() };
        Ok(Self { table })
    }

    /// The version of DPDK, such as `DPDK 22.11.11`.
    pub fn runs(self) -> String {
        // SAFETY: the function has no preconditions.
        let version = unsafe { (self.table.runs)() };
        // SAFETY: the plugin returns null, or a C string that stays.
        unsafe { text(version) }
    }

    pub(crate) fn table(self) -> &'static Table {
        self.table
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugin({})", self.table.version)
    }
}
