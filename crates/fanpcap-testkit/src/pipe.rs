//! A named pipe where a program expects a file: opening it waits for a writer that never comes.

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::await_for::LIMIT;

/// Creates the pipe `path` and returns the result of `open` for it. The name is free again
/// afterwards.
///
/// # Errors
/// `open` has not returned after [`LIMIT`], or there can be no pipe.
pub fn opened<T: Send + 'static>(
    path: &Path,
    open: impl FnOnce(&Path) -> T + Send + 'static,
) -> Result<T> {
    let made = Command::new("mkfifo").arg(path).status()?;
    ensure!(made.success(), "mkfifo {}", path.display());
    let (done, result) = mpsc::channel();
    let own = path.to_owned();
    // The thread is never joined, because it may wait for ever.
    thread::spawn(move || done.send(open(&own)));
    let result = result.recv_timeout(LIMIT);
    std::fs::remove_file(path)?;
    result.with_context(|| format!("{} is waited for", path.display()))
}
