//! Why a ring can't be opened, and what to install.

use crate::functions;
use std::error::Error;
use std::path::Path;
use std::{fmt, io};

/// Why PF_RING opens no ring.
#[derive(Debug)]
pub enum OpenError {
    /// The library can't be loaded, for the loader's reason.
    Library(&'static str),
    /// The kernel has no PF_RING.
    Module,
    /// The process lacks a privilege.
    Privilege,
    /// The process has raised privileges, and its environment has this variable, which the library
    /// would obey.
    Environment(String),
    /// Another error, with the function that failed.
    Failed(&'static str, io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(reason) => write!(
                f,
                "PF_RING's library can't be loaded ({reason}): install the package pfring of \
                 packages.ntop.org, or build it from https://github.com/ntop/PF_RING"
            ),
            Self::Module => f.write_str(
                "this kernel has no PF_RING: install the package pfring-dkms of \
                 packages.ntop.org, and load the module: 'modprobe pf_ring'",
            ),
            Self::Privilege => f.write_str("PF_RING needs CAP_NET_RAW and CAP_NET_ADMIN"),
            Self::Environment(name) => write!(
                f,
                "this process has raised privileges, and PF_RING's library would obey its \
                 environment: unset {name}"
            ),
            Self::Failed(function, error) => write!(f, "{function}: {error}"),
        }
    }
}

impl Error for OpenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Failed(_, error) => Some(error),
            Self::Library(_) | Self::Module | Self::Privilege | Self::Environment(_) => None,
        }
    }
}

/// The directory that the module makes in each network namespace.
const LOADED: &str = "/proc/net/pf_ring";

/// Checks that the machine has PF_RING's library and module. Opens no ring.
///
/// # Errors
/// [`OpenError::Library`] or [`OpenError::Module`].
pub fn check() -> Result<(), OpenError> {
    functions::load().map_err(OpenError::Library)?;
    match Path::new(LOADED).exists() {
        true => Ok(()),
        false => Err(OpenError::Module),
    }
}

impl OpenError {
    /// The error of `pfring_open`. Only this function checks whether there is a module, and which
    /// privileges the process has.
    pub(crate) fn of_open(error: io::Error) -> Self {
        match error.raw_os_error() {
            // The module has an address family of its own.
            Some(libc::EAFNOSUPPORT) => Self::Module,
            // `pfring_open` has this error for all devices that no module of the library can open.
            Some(libc::ENODEV) if !Path::new(LOADED).exists() => Self::Module,
            Some(libc::EPERM | libc::EACCES) => Self::Privilege,
            _ => Self::failed("pfring_open", error),
        }
    }

    /// The error of a function that may have set errno.
    pub(crate) fn failed(function: &'static str, error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(0) => Self::Failed(function, io::Error::other("the library tells no reason")),
            _ => Self::Failed(function, error),
        }
    }
}
