//! Writes to standard output. A closed pipe is no error; any other error is reported at the end.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::OnceLock;

use anyhow::{Result, bail};

/// The first error of standard output.
static FAILED: OnceLock<String> = OnceLock::new();

/// Prints a line on standard output.
macro_rules! tell {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}

pub(crate) use tell;

/// Writes a line to standard output. If the pipe is closed, the bench continues, because the
/// results are in files. [`finish`] returns any other error.
pub(crate) fn line(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    if let Err(error) = written {
        if error.kind() != io::ErrorKind::BrokenPipe {
            FAILED.get_or_init(|| error.to_string());
        }
    }
}

/// # Errors
/// A line could not be written, for another reason than a closed pipe.
pub(crate) fn finish() -> Result<()> {
    match FAILED.get() {
        Some(error) => bail!("writing to standard output: {error}"),
        None => Ok(()),
    }
}
