//! Standard output and standard error: a reader that has gone is no error, all else is one at the
//! end.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::OnceLock;

use anyhow::{Result, bail};

/// What went wrong first with standard output.
static FAILED: OnceLock<String> = OnceLock::new();

/// A line on standard output.
macro_rules! tell {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}

/// A line on standard error.
macro_rules! note {
    ($($text:tt)*) => { $crate::out::aside(format_args!($($text)*)) };
}

pub(crate) use {note, tell};

/// Writes a line to standard output. Measuring goes on without a reader, as results are files;
/// [`finish`] says what else went wrong.
pub(crate) fn line(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    if let Err(error) = written {
        if error.kind() != io::ErrorKind::BrokenPipe {
            FAILED.get_or_init(|| error.to_string());
        }
    }
}

/// Writes a line to standard error. There is nowhere to tell that it could not be written.
pub(crate) fn aside(text: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// # Errors
/// A line could not be written, for another reason than that nobody reads.
pub(crate) fn finish() -> Result<()> {
    match FAILED.get() {
        Some(error) => bail!("writing to standard output: {error}"),
        None => Ok(()),
    }
}
