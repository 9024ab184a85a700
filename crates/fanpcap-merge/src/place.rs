//! The destination of a merged capture. A regular file appears only when it is complete. Any other
//! destination is written directly.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The most symbolic links that are followed one after the other, as in the kernel
/// (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// Number of attempts to create a file under a random name.
const ATTEMPTS: usize = 4;

/// Destination of a merge.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Standard output.
    Stdout,
    /// A path with all symbolic links resolved. The path names a regular file, or does not exist
    /// yet.
    File(PathBuf),
    /// A device or a FIFO, which is opened and written.
    Stream(PathBuf),
}

impl Place {
    /// Classifies `to`; `-` is standard output.
    ///
    /// # Errors
    /// `to` is a directory, or a link that can't be resolved.
    pub(crate) fn of(to: &Path) -> Result<Self> {
        if to == Path::new("-") {
            return Ok(Self::Stdout);
        }
        match fs::metadata(to) {
            Ok(found) if found.is_dir() => bail!("it is a directory"),
            Ok(found) if found.is_file() => Ok(Self::File(to.canonicalize()?)),
            Ok(_) => Ok(Self::Stream(to.to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Self::File(resolve(to).context("its directory")?))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Resolves all symbolic links of `path`. Its last component need not exist.
///
/// # Errors
/// The directory does not exist, or the links form a cycle.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let parent = match path.parent() {
            Some(parent) if parent == Path::new("") => Path::new("."),
            Some(parent) => parent,
            None => return path.canonicalize(),
        };
        let Ok(target) = fs::read_link(&path) else {
            return match path.file_name() {
                Some(name) => Ok(parent.canonicalize()?.join(name)),
                None => path.canonicalize(),
            };
        };
        path = parent.join(target);
    }
    Err(io::Error::other("the symbolic links form a cycle"))
}

/// A random part of a file name that no other user can guess.
pub(crate) fn unguessable() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// A file under a temporary name. If this value is dropped before [`Part::finish`] has renamed the
/// file, the file is removed.
#[derive(Debug)]
pub struct Part {
    path: PathBuf,
    to: PathBuf,
    complete: bool,
}

impl Part {
    /// Creates a temporary file next to `to`. The temporary file gets the permissions of the file
    /// that it will replace. If there is no such file, the temporary file gets the permissions that
    /// the umask allows.
    ///
    /// # Errors
    /// No file can be created in the directory of `to`.
    pub fn begin(to: &Path) -> Result<(Self, File)> {
        let before = fs::metadata(to)
            .ok()
            .map(|found| found.permissions().mode());
        for attempt in 1.. {
            let mut name = to.as_os_str().to_owned();
            name.push(format!(".{}.part", unguessable()));
            let path = PathBuf::from(name);
            let mut options = OpenOptions::new();
            options
                .write(true)
                .create_new(true)
                .mode(before.unwrap_or(0o666) & 0o777);
            match options.open(&path) {
                Ok(file) => {
                    let part = Self {
                        path,
                        to: to.to_owned(),
                        complete: false,
                    };
                    if let Some(mode) = before {
                        file.set_permissions(fs::Permissions::from_mode(mode & 0o777))?;
                    }
                    return Ok((part, file));
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists && attempt < ATTEMPTS => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("making {}", path.display()));
                }
            }
        }
        bail!("no free temporary name beside {}", to.display())
    }

    /// Renames the file to its final name.
    ///
    /// # Errors
    /// rename(2) failed.
    pub fn finish(mut self) -> Result<()> {
        fs::rename(&self.path, &self.to)
            .with_context(|| format!("naming {}", self.to.display()))?;
        self.complete = true;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.complete {
            // An unfinished capture is useless.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Checks that no source is the file `to`.
///
/// # Errors
/// A source is the file `to`. The message names the source.
pub(crate) fn ensure_apart(sources: &[PathBuf], to: &Path) -> Result<()> {
    let id = |path: &Path| {
        fs::metadata(path)
            .ok()
            .map(|found| (found.dev(), found.ino()))
    };
    let Some(own) = id(to) else {
        return Ok(());
    };
    match sources.iter().find(|source| id(source) == Some(own)) {
        Some(source) => bail!(
            "{} is the same file as {}, which is one of the files to merge",
            to.display(),
            source.display()
        ),
        None => Ok(()),
    }
}

/// Path of the file that keeps, until the merge, the capture that a copy of the application writes
/// to its standard output. If `merged` is a regular file, this path is next to it. Otherwise the
/// path is in the directory for temporary files.
pub fn spool(merged: &Path, copy: usize, start: u32) -> PathBuf {
    let secret = unguessable();
    let file = match Place::of(merged) {
        Ok(Place::File(file)) => file,
        // Keep no files in a device's directory.
        _ => {
            return std::env::temp_dir().join(format!("fanpcap-{secret}.{copy}.{start}.part"));
        }
    };
    let mut name = file.into_os_string();
    name.push(format!(".{copy}.{start}.{secret}.part"));
    PathBuf::from(name)
}

/// Creates a spool that only this user can read.
///
/// # Errors
/// open(2) failed, for example because the name exists.
pub fn make_spool(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).open(path)
}
