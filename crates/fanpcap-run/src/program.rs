//! Checks that the application exists and may be executed, before anything is prepared for it.

use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::arguments;

/// The search path if PATH is not set, as in execvp(3).
const PATH: &str = "/bin:/usr/bin";

/// Why the application can't be run.
#[derive(Debug)]
pub(crate) struct Unusable {
    /// The exit status that shells use for this reason.
    pub(crate) code: u8,
    /// The reason for users.
    pub(crate) text: String,
}

impl Unusable {
    fn not_found(program: &Path) -> Self {
        let text = match program.as_os_str().is_empty() {
            true => "the program's name is empty".to_owned(),
            false => format!("{}: no such program", program.display()),
        };
        Self { code: 127, text }
    }

    fn not_executable(program: &Path) -> Self {
        let why = match program.is_dir() {
            true => "a directory, not a program",
            false => "not executable",
        };
        let text = format!("{}: {why}", program.display());
        Self { code: 126, text }
    }
}

/// Looks for the application of a command line, as it would be started for copy 0.
///
/// # Errors
/// [`Unusable`].
pub(crate) fn find(command: &[OsString]) -> Result<(), Unusable> {
    let program = command.first().map(|word| arguments::expand(word, 0));
    let program = PathBuf::from(program.unwrap_or_default());
    if program.as_os_str().as_encoded_bytes().contains(&b'/') {
        return match is_executable(&program) {
            Some(true) => Ok(()),
            Some(false) => Err(Unusable::not_executable(&program)),
            None => Err(Unusable::not_found(&program)),
        };
    }
    let path = env::var_os("PATH").unwrap_or_else(|| PATH.into());
    let found: Vec<(PathBuf, bool)> = env::split_paths(&path)
        .map(|directory| directory.join(&program))
        .filter_map(|file| is_executable(&file).map(|is| (file, is)))
        .collect();
    match found.first() {
        _ if found.iter().any(|(_, is)| *is) => Ok(()),
        Some((file, _)) if file.is_file() => Err(Unusable::not_executable(file)),
        Some(_) | None => Err(Unusable::not_found(&program)),
    }
}

/// Whether any user may execute a file; `None` if there is no file.
fn is_executable(file: &Path) -> Option<bool> {
    let metadata = file.metadata().ok()?;
    Some(metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The exit status for a program whose start failed despite these checks.
pub(crate) fn code(error: &anyhow::Error) -> u8 {
    let cause = error.root_cause().downcast_ref::<io::Error>();
    match cause.map(io::Error::kind) {
        Some(ErrorKind::NotFound) => 127,
        Some(ErrorKind::PermissionDenied) => 126,
        _ => 1,
    }
}
