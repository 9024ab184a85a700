//! The behaviours of libpcap: one C program for each, in a directory for each family of programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use fanpcap_testkit::{Scratch, needs};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/c");

/// A behaviour of libpcap and the program that shows this behaviour.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Behaviour {
    /// `FAMILY/PROGRAM`, from the program's path.
    pub name: String,
}

impl Behaviour {
    /// The behaviour with this name.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
        }
    }

    /// All behaviours, in order of their names.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn all() -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for family in entries(Path::new(PROGRAMS))? {
            if family.is_dir() {
                found.extend(entries(&family)?.iter().filter_map(|path| Self::of(path)));
            }
        }
        ensure!(!found.is_empty(), "no programs in {PROGRAMS}");
        found.sort();
        Ok(found)
    }

    /// The behaviours of one family.
    ///
    /// # Errors
    /// The family has no programs.
    pub fn of_family(family: &str) -> Result<Vec<Self>> {
        let mut members = Self::all()?;
        members.retain(|behaviour| behaviour.family() == family);
        ensure!(!members.is_empty(), "no programs in {PROGRAMS}/{family}");
        Ok(members)
    }

    fn of(path: &Path) -> Option<Self> {
        let name = path.strip_prefix(PROGRAMS).ok()?.to_str()?;
        Some(Self::named(name.strip_suffix(".c")?))
    }

    /// The family's name.
    pub fn family(&self) -> &str {
        self.name.split_once('/').map_or("", |(family, _)| family)
    }

    /// The behaviour that the program shows: the comment on its first line.
    ///
    /// # Errors
    /// The first line has no comment.
    pub fn title(&self) -> Result<String> {
        let text = fs::read_to_string(self.source()).with_context(|| self.name.clone())?;
        let first = text.lines().next().unwrap_or_default();
        let title = first
            .strip_prefix("/* ")
            .and_then(|rest| rest.strip_suffix(" */"));
        let title = title.with_context(|| format!("{}: no comment on line 1", self.name))?;
        Ok(title.trim_end_matches('.').to_owned())
    }

    /// Compiles the program against the installed libpcap, as a distribution compiles applications.
    ///
    /// # Errors
    /// The compiler's messages; warnings are errors.
    pub fn compile(&self, scratch: &Scratch, flags: &[&str]) -> Result<PathBuf> {
        needs::libpcap_headers()?;
        let program = scratch.new_file(&self.name.replace('/', "-"));
        let done = Command::new("cc")
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"])
            .args(["-pthread", "-I", PROGRAMS])
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(self.source())
            .arg("-lpcap")
            .output()
            .context("running cc")?;
        if !done.status.success() {
            bail!("{}: {}", self.name, String::from_utf8_lossy(&done.stderr));
        }
        Ok(program)
    }

    fn source(&self) -> PathBuf {
        Path::new(PROGRAMS).join(format!("{}.c", self.name))
    }
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let listing = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    listing.map(|entry| Ok(entry?.path())).collect()
}
