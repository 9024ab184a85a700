//! Tests code that opens a file, with a named pipe instead of the file. Without O_NONBLOCK, opening
//! the pipe would wait for a writer, which never comes.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::await_for::LIMIT;

/// Creates the pipe `path`, calls `open` with the path and returns the result of `open`. Removes
/// the pipe at the end.
///
/// # Errors
/// `open` has not returned after [`LIMIT`], or the pipe can't be created.
pub fn opened<T: Send + 'static>(
    path: &Path,
    open: impl FnOnce(&Path) -> T + Send + 'static,
) -> Result<T> {
    let made = Command::new("mkfifo").arg(path).status()?;
    ensure!(made.success(), "mkfifo {}", path.display());
    let (done, result) = mpsc::channel();
    let own = path.to_owned();
    // Do not join the thread, because it may wait for ever.
    thread::spawn(move || done.send(open(&own)));
    let result = result.recv_timeout(LIMIT);
    std::fs::remove_file(path)?;
    result.with_context(|| format!("opening {}, a pipe without a writer", path.display()))
}
