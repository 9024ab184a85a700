//! A directory for one test's files, removed at the test's end.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};

/// A new directory under the system's temporary directory. Dropping this value removes the
/// directory with its files.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    files: AtomicUsize,
}

impl Scratch {
    /// Makes the directory.
    ///
    /// # Errors
    /// The temporary directory can't be written.
    pub fn new() -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        loop {
            // Relaxed is enough, because the numbers must only be different.
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = env::temp_dir().join(format!("fanpcap-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let files = AtomicUsize::new(0);
                    return Ok(Self { path, files });
                }
                // An earlier test that was killed has left this directory behind.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).context(format!("making {}", path.display())),
            }
        }
    }

    /// A file's path in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A path that no other call returns.
    pub fn new_file(&self, name: &str) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        self.file(&format!("{name}.{number}"))
    }

    /// Writes a file into the directory and returns its path.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.file(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An error can't be reported here, and a leftover directory harms no later test.
        let _ = fs::remove_dir_all(&self.path);
    }
}
