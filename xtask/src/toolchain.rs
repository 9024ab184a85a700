//! A Rust toolchain of the least supported version: the machine's own, or Debian's unpacked
//! packages.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{archive, tree};

/// The workspace's `rust-version`.
pub(crate) const VERSION: &str = env!("CARGO_PKG_RUST_VERSION");
/// Debian's packages of compiler, cargo and clippy: first for releases whose package `rustc` has
/// the least version, then for older releases.
const PACKAGES: [[&str; 3]; 2] = [
    ["rustc", "cargo", "rust-clippy"],
    ["rustc-web", "cargo-web", "rust-web-clippy"],
];

/// The target directory for builds by the unpacked toolchain. Builds by the machine's own compiler
/// have another one.
fn dir() -> Result<PathBuf> {
    Ok(tree::target()?.join("least"))
}

/// A toolchain: the machine's own, or an unpacked one of the least version.
pub(crate) struct Rust {
    /// Directory of the unpacked packages; `None` for the machine's own toolchain.
    root: Option<PathBuf>,
}

impl Rust {
    /// The machine's own toolchain, of any version.
    pub(crate) fn own() -> Self {
        Self { root: None }
    }

    /// The toolchain of the least version, or the machine's own if the least version is not
    /// available. Only the machine's own has libraries of other architectures.
    pub(crate) fn least_or_own() -> Self {
        match tree::foreign() {
            Some(_) => Self::own(),
            None => Self::find().unwrap_or(Self::own()),
        }
    }

    /// The machine's own toolchain, if it has the least version; otherwise a toolchain from the
    /// machine's package sources.
    pub(crate) fn find() -> Result<Self> {
        let own = Self::own();
        if own.serves().is_ok() {
            return Ok(own);
        }
        let root = dir()?.join("rust");
        tree::make_once(&root, |half| {
            let debs = download()?;
            archive::unpack(&debs, half)?;
            tree::remove(&debs)
        })?;
        let rust = Self { root: Some(root) };
        rust.serves().map(|()| rust)
    }

    /// Target directory. An unpacked toolchain has a target directory of its own.
    pub(crate) fn dir(&self) -> Result<PathBuf> {
        match self.root {
            Some(_) => dir(),
            None => tree::target(),
        }
    }

    /// Fails unless all three executables run and the compiler has the version [`VERSION`].
    fn serves(&self) -> Result<()> {
        for program in ["rustc", "cargo", "cargo-clippy"] {
            let said = tree::output(&mut self.command(program, "--version"))?;
            let right = said.starts_with(&format!("rustc {VERSION}."));
            ensure!(right || program != "rustc", "the compiler is {said}");
        }
        Ok(())
    }

    /// A command of the toolchain in the workspace's root. Its child processes use the toolchain
    /// too.
    pub(crate) fn command(&self, program: &str, line: &str) -> Command {
        let mut command = Command::new(self.program(program));
        command.args(line.split(' '));
        if let Ok((root, dir)) = tree::root().and_then(|root| Ok((root, self.dir()?))) {
            command.current_dir(root).env("CARGO_TARGET_DIR", dir);
        }
        let Some(root) = &self.root else {
            return command;
        };
        command
            .env("CARGO", self.program("cargo"))
            .env("RUSTC", self.program("rustc"))
            .env("PATH", first(vec![root.join("usr/bin")], "PATH"))
            .env("LD_LIBRARY_PATH", first(libraries(root), "LD_LIBRARY_PATH"))
            .env_remove("RUSTUP_TOOLCHAIN");
        command
    }

    /// The path of a program of the toolchain. If the machine already has the program's package,
    /// the package was not unpacked, and the machine's program is used.
    fn program(&self, name: &str) -> PathBuf {
        let unpacked = self
            .root
            .as_ref()
            .map(|root| root.join("usr/bin").join(name));
        unpacked
            .filter(|path| path.exists())
            .unwrap_or_else(|| name.into())
    }
}

/// `dirs`, then the directories in the variable.
fn first(mut dirs: Vec<PathBuf>, variable: &str) -> OsString {
    let known = env::var_os(variable).unwrap_or_default();
    dirs.extend(env::split_paths(&known));
    env::join_paths(dirs).unwrap_or(known)
}

/// The directories of shared libraries below a root: Debian has one for each architecture.
fn libraries(root: &Path) -> Vec<PathBuf> {
    let all = ["usr/lib", "lib"].map(|lib| fs::read_dir(root.join(lib)));
    let entries = all.into_iter().flatten().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("-linux-gnu"))
        .collect()
}

/// Downloads the toolchain's packages and their missing dependencies, without installing them.
fn download() -> Result<PathBuf> {
    let debs = dir()?.join("debs");
    fs::create_dir_all(debs.join("partial")).context("making a directory for packages")?;
    let preferences = debs.join("preferences");
    let pin = format!("Package: *rust* cargo*\nPin: version {VERSION}.*\nPin-Priority: 1001\n");
    fs::write(&preferences, pin).context("writing apt's preferences")?;
    let options = [
        format!("-oDir::Etc::preferences={}", preferences.display()),
        format!("-oDir::Cache::archives={}/", debs.display()),
        // apt installs nothing, so it needs neither a lock nor root.
        "-oDebug::NoLocking=1".to_owned(),
    ];
    let packages = offered(&options)?;
    let mut apt = Command::new("apt-get");
    apt.args(&options)
        .args(["install", "--download-only", "--no-install-recommends"])
        .args(["-qq", "-y", "--allow-downgrades"])
        .args(packages);
    tree::output(&mut apt)?;
    Ok(debs)
}

/// The names of the packages that have the least version in this release.
fn offered(options: &[String]) -> Result<[&'static str; 3]> {
    for packages in PACKAGES {
        let mut apt = Command::new("apt-cache");
        let said = tree::output(apt.args(options).args(["policy", packages[0]]))?;
        if said.contains(&format!("Candidate: {VERSION}.")) {
            return Ok(packages);
        }
    }
    bail!("no package source of this machine has Rust {VERSION}")
}
