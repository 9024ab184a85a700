//! Changes the loader's search order: writes a file of ours in ld.so.conf.d, and runs ldconfig.

use std::env;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::library;

/// Our file. ldconfig reads the files in this directory in the order of their names. Our file comes
/// before libc.conf and the distribution's files, whose names begin with letters.
const FILE: &str = "etc/ld.so.conf.d/00-fanpcap.conf";
const HEAD: &str = "# Written by fanpcap enable --system; fanpcap disable --system removes it.\n";

/// The loader of the system below a root directory.
#[derive(Debug)]
pub(crate) struct Loader {
    root: PathBuf,
}

/// Result of a change, and the libraries that the loader has for our soname, preferred first.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Whether there was anything to change.
    pub(crate) changed: bool,
    /// The loader's libraries with our soname and architecture.
    pub(crate) found: Vec<PathBuf>,
}

impl Loader {
    /// The loader of the running system, or of the system below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The path of our file in ld.so.conf.d, as users name it.
    pub(crate) fn file(&self) -> PathBuf {
        self.root.join(FILE)
    }

    /// Puts `directory` first in the loader's search order. Undoes the change if another library
    /// still comes first.
    ///
    /// # Errors
    /// Files can't be written, or another library comes first.
    pub(crate) fn enable(&self, directory: &Path) -> Result<Outcome> {
        self.only_roots(directory)?;
        let path = self.file();
        let before = read(&path)?;
        let text = format!("{HEAD}{}\n", directory.display());
        let changed = before.as_ref() != Some(&text);
        write(&path, &text)?;
        let outcome = self.refresh().and_then(|()| self.found(directory));
        match outcome {
            Ok(found) if found.first() == Some(&directory.join(library::NAME)) => {
                Ok(Outcome { changed, found })
            }
            outcome => {
                self.restore(before.as_deref())?;
                let found = outcome?;
                let first = found.first().context(
                    "ldconfig does not list our library: does /etc/ld.so.conf include ld.so.conf.d?",
                )?;
                bail!(
                    "{} comes before {}, because /etc/ld.so.conf names it first; nothing is changed",
                    first.display(),
                    directory.display()
                )
            }
        }
    }

    /// Removes our file. This works even if our library is gone; `directory` is `None` then.
    ///
    /// # Errors
    /// The file can't be removed.
    pub(crate) fn disable(&self, directory: Option<&Path>) -> Result<Outcome> {
        let path = self.file();
        let changed = read(&path)?.is_some();
        if changed {
            fs::remove_file(&path)
                .with_context(|| format!("removing {}: run this as root", path.display()))?;
            self.refresh()?;
        }
        let found = self.found(directory.unwrap_or(Path::new("/")))?;
        Ok(Outcome { changed, found })
    }

    fn restore(&self, before: Option<&str>) -> Result<()> {
        let path = self.file();
        match before {
            Some(text) => write(&path, text)?,
            None => {
                fs::remove_file(&path).with_context(|| format!("taking back {}", path.display()))?
            }
        }
        self.refresh()
    }

    /// Checks that only root can change the library that every application of the machine loads.
    fn only_roots(&self, directory: &Path) -> Result<()> {
        let mut path = self.root.clone();
        let file = directory.join(library::NAME);
        for part in file.components() {
            if let Component::Normal(part) = part {
                path.push(part);
                let entry = fs::metadata(&path)
                    .with_context(|| format!("looking at {}", path.display()))?;
                ensure!(
                    entry.uid() == 0 && entry.mode() & 0o022 == 0,
                    "users other than root may change {}: install fanpcap where only root writes, \
                     as make install does",
                    path.display()
                );
            }
        }
        Ok(())
    }

    fn refresh(&self) -> Result<()> {
        self.ldconfig(&[]).map(|_| ())
    }

    /// The libraries with our soname, preferred first.
    ///
    /// # Errors
    /// ldconfig can't be run.
    pub(crate) fn found(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        Ok(listed(&self.ldconfig(&["-p"])?, directory))
    }

    fn ldconfig(&self, arguments: &[&str]) -> Result<String> {
        let path = env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let mut command = Command::new("ldconfig");
        command.env("PATH", path).env("LC_ALL", "C");
        if self.root != Path::new("/") {
            command.arg("-r").arg(&self.root);
        }
        let done = command
            .args(arguments)
            .output()
            .context("running ldconfig, which this system's loader needs for a change")?;
        let complaint = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "ldconfig: {}\n{complaint}",
            done.status
        );
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }
}

/// The libraries with our soname in the output of `ldconfig -p`, in order. A line is
/// `libpcap.so.0.8 (libc6,x86-64) => /lib/x86_64-linux-gnu/libpcap.so.0.8`. If the output has our
/// library, only libraries with the same ABI (in the parentheses) are returned.
fn listed(list: &str, directory: &Path) -> Vec<PathBuf> {
    let lines = || {
        list.lines().filter_map(|line| {
            let (name, path) = line.trim().split_once(" => ")?;
            let abi = name.strip_prefix(library::NAME)?.trim();
            Some((abi, Path::new(path)))
        })
    };
    let ours = directory.join(library::NAME);
    let our_abi = lines().find(|(_, path)| *path == ours).map(|(abi, _)| abi);
    lines()
        .filter(|(abi, _)| our_abi.is_none_or(|ours| ours == *abi))
        .map(|(_, path)| path.to_owned())
        .collect()
}

/// The text of a file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
}

/// Writes a file that every user's ldconfig can read, whatever the umask.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(0o644)))
        .with_context(|| format!("writing {}: run this as root", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_may_read_the_file() {
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        let path = scratch.file("00-fanpcap.conf");
        fs::write(&path, "").unwrap();
        // With a umask of 077, the file has this mode.
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write(&path, "text").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
    }

    #[test]
    fn libraries_of_another_machine_do_not_count() {
        let list = "3 libs found in cache `/etc/ld.so.cache'\n\
            \tlibpcap.so.0.8 (libc6) => /lib/i386-linux-gnu/libpcap.so.0.8\n\
            \tlibpcap.so.0.8 (libc6,x86-64) => /usr/lib/fanpcap/libpcap.so.0.8\n\
            \tlibpcap.so.0.8 (libc6,x86-64) => /lib/x86_64-linux-gnu/libpcap.so.0.8\n\
            \tlibpcap.so.1 (libc6,x86-64) => /usr/lib/fanpcap/libpcap.so.1\n";
        let found = listed(list, Path::new("/usr/lib/fanpcap"));
        assert_eq!(
            found,
            [
                Path::new("/usr/lib/fanpcap/libpcap.so.0.8"),
                Path::new("/lib/x86_64-linux-gnu/libpcap.so.0.8")
            ]
        );
        assert_eq!(listed(list, Path::new("/elsewhere")).len(), 3);
    }
}
