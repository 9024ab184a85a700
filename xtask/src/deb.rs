//! Builds the Debian package of the staged files by debhelper and `packaging/debian`:
//! target/fanpcap/fanpcap_VERSION_ARCHITECTURE.deb.

mod licenses;
mod texts;
pub(crate) mod dpdk;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::{self, Layout};
use crate::{archive, stage, tree};

/// Facts about the package, for its changelog and copyright files.
#[derive(Debug)]
struct Package {
    version: String,
    maintainer: String,
    /// Time of the last change to the source, in seconds since 1970. Files in the package that are
    /// newer get this time.
    epoch: String,
}

/// The maintainer's address if no variable has an address. The domain does not exist (RFC 2606).
const NO_ADDRESS: &str = "fanpcap@maintainer.invalid";

impl Package {
    fn new() -> Result<Self> {
        let set = |variable: &str| env::var(variable).ok().filter(|value| !value.is_empty());
        let name = set("DEBFULLNAME").unwrap_or_else(|| "the fanpcap authors".to_owned());
        let address = set("DEBEMAIL").or_else(|| set("EMAIL"));
        let address = address.unwrap_or_else(|| NO_ADDRESS.to_owned());
        Ok(Self {
            version: version(&set("FANPCAP_REVISION").unwrap_or_default()),
            maintainer: format!("{name} <{address}>"),
            epoch: set("SOURCE_DATE_EPOCH").map_or_else(last_change, Ok)?,
        })
    }
}

/// The package's version. `suffix` tells apart the packages of several distributions, `~deb13`.
pub(crate) fn version(suffix: &str) -> String {
    format!("{}-1{suffix}", env!("CARGO_PKG_VERSION"))
}

/// Time of the last commit. If the source is not in a repository, the changelog's modification
/// time.
pub(crate) fn last_change() -> Result<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"])
        .current_dir(tree::root()?);
    if let Ok(said) = tree::output(&mut git) {
        return Ok(said.trim().to_owned());
    }
    let changelog = tree::root()?.join("CHANGELOG.md");
    let modified = fs::metadata(&changelog)?.modified()?;
    let since = modified.duration_since(std::time::UNIX_EPOCH)?;
    Ok(since.as_secs().to_string())
}

/// Whether this machine has the tools that build packages.
pub(crate) fn can_build() -> bool {
    tree::output(Command::new("dh").arg("--list")).is_ok()
}

/// Builds the package and prints its path.
pub(crate) fn run() -> Result<()> {
    stage::by_least()?;
    of_staged()
}

/// Builds the package of the staged files.
pub(crate) fn of_staged() -> Result<()> {
    let package = Package::new()?;
    let work = tree::staged()?.join("deb");
    tree::remove(&work)?;
    tree::make(&work)?;
    let multiarch =
        tree::output(Command::new("dpkg-architecture").args(["-q", "DEB_HOST_MULTIARCH"]))?;
    let layout = Layout {
        libraries: format!("lib/{}", multiarch.trim()),
        zsh: "share/zsh/vendor-completions",
        documents: "share/doc/fanpcap",
    };
    install::place_all(&work.join("usr"), "/usr", &layout)?;
    let texts = Texts {
        directory: "debian",
        source: "fanpcap",
        copyright: texts::copyright()?,
    };
    pack(&package, &work, &texts)?;
    let file = take(&work, &tree::staged()?)?;
    println!("built {}", file.display());
    Ok(())
}

/// The texts of a package.
#[derive(Debug)]
struct Texts {
    /// Their directory below `packaging`.
    directory: &'static str,
    /// The name of the source package.
    source: &'static str,
    copyright: String,
}

/// Packs what is in `work`.
fn pack(package: &Package, work: &Path, texts: &Texts) -> Result<()> {
    let debian = work.join("debian");
    let mut copy = Command::new("cp");
    tree::run(
        copy.arg("-r")
            .arg(texts::directory(texts.directory)?)
            .arg(&debian),
    )?;
    stage::place_text(&texts.copyright, &debian.join("copyright"))?;
    let changelog = texts::changelog(texts.source, package)?;
    stage::place_text(&changelog, &debian.join("changelog"))?;
    // dpkg-deb sets the time of each file that is newer than SOURCE_DATE_EPOCH to
    // SOURCE_DATE_EPOCH.
    let mut rules = Command::new("debian/rules");
    rules.arg("binary").env("MAINTAINER", &package.maintainer);
    rules.env("SOURCE_DATE_EPOCH", &package.epoch);
    tree::output(rules.current_dir(work)).map(drop)
}

/// Moves the package to a directory, and removes packages of other versions there.
fn take(work: &Path, to: &Path) -> Result<PathBuf> {
    let built = archive::packages(work)?
        .pop()
        .context("debian/rules built no package")?;
    for old in archive::packages(to)? {
        fs::remove_file(&old).with_context(|| format!("removing {}", old.display()))?;
    }
    let file = to.join(built.file_name().context("a package's name")?);
    fs::rename(&built, &file).with_context(|| format!("making {}", file.display()))?;
    Ok(file)
}
