//! Builds the Debian package from the staged files:
//! target/fanpcap/fanpcap_VERSION_ARCHITECTURE.deb.

mod licenses;
mod texts;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::{self, Layout};
use crate::{stage, tree};

/// Facts about the package for its texts.
#[derive(Debug)]
struct Package {
    version: String,
    architecture: String,
    multiarch: String,
    maintainer: String,
    /// Time of the last change to the source, in seconds since 1970: the time of every file in the
    /// package.
    epoch: String,
}

/// Used if the builder names no address: a domain that does not exist (RFC 2606).
const NO_ADDRESS: &str = "fanpcap@maintainer.invalid";

impl Package {
    fn new() -> Result<Self> {
        let dpkg = |variable: &str| -> Result<String> {
            let said = tree::output(Command::new("dpkg-architecture").args(["-q", variable]))?;
            Ok(said.trim().to_owned())
        };
        let set = |variable: &str| env::var(variable).ok().filter(|value| !value.is_empty());
        let name = set("DEBFULLNAME").unwrap_or_else(|| "the fanpcap authors".to_owned());
        let address = set("DEBEMAIL").or_else(|| set("EMAIL"));
        let address = address.unwrap_or_else(|| NO_ADDRESS.to_owned());
        Ok(Self {
            version: format!("{}-1", env!("CARGO_PKG_VERSION")),
            architecture: dpkg("DEB_HOST_ARCH")?,
            multiarch: dpkg("DEB_HOST_MULTIARCH")?,
            maintainer: format!("{name} <{address}>"),
            epoch: set("SOURCE_DATE_EPOCH").map_or_else(last_change, Ok)?,
        })
    }

    fn layout(&self) -> Layout {
        Layout {
            libraries: format!("lib/{}", self.multiarch),
            zsh: "share/zsh/vendor-completions",
            documents: "share/doc/fanpcap",
        }
    }
}

/// Time of the last commit; outside of a repository, time of the changelog.
fn last_change() -> Result<String> {
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
    let mut dpkg = Command::new("dpkg-shlibdeps");
    tree::output(dpkg.arg("--version")).is_ok()
}

/// Builds the package and prints its path.
pub(crate) fn run() -> Result<()> {
    stage::by_least()?;
    of_staged()
}

/// The package of what is staged.
pub(crate) fn of_staged() -> Result<()> {
    let package = Package::new()?;
    let work = tree::staged()?.join("deb");
    let (built, contents) = (work.join("root"), work.join("root/usr"));
    empty(&work)?;
    let layout = package.layout();
    install::place_all(&contents, "/usr", &layout)?;
    let documents = contents.join(layout.documents);
    stage::place_text(&texts::copyright()?, &documents.join("copyright"))?;
    let changelog = texts::changelog(&package)?;
    stage::place_text(&changelog, &documents.join("changelog.Debian"))?;
    compress(&contents, &documents)?;
    set_modes(&built)?;
    let depends = depends(&work, &contents, &layout)?;
    let text = texts::control(&package, &depends, size_kib(&contents)?)?;
    place_control(&built, &text, &layout)?;
    let file = build(&package, &built)?;
    println!("built {}", file.display());
    Ok(())
}

/// Places dpkg's own files: the control file, the checksums, and the removal script.
fn place_control(built: &Path, text: &str, layout: &Layout) -> Result<()> {
    let control = built.join("DEBIAN");
    let own = format!("/usr/{}", layout.own());
    let script = |name| Ok::<_, anyhow::Error>(texts::template(name)?.replace("@LIBRARIES@", &own));
    for (name, text, bits) in [
        ("control", text.to_owned(), 0o644),
        ("md5sums", checksums(built)?, 0o644),
        ("prerm", script("prerm")?, 0o755),
        ("postrm", script("postrm")?, 0o755),
    ] {
        stage::place_text(&text, &control.join(name))?;
        mode(&control.join(name), bits)?;
    }
    mode(&control, 0o755)
}

fn build(package: &Package, built: &Path) -> Result<PathBuf> {
    let (version, architecture) = (&package.version, &package.architecture);
    let name = format!("fanpcap_{version}_{architecture}.deb");
    let (file, fresh) = (
        tree::staged()?.join(&name),
        tree::staged()?.join("deb/new.deb"),
    );
    remove_others(&file)?;
    // dpkg-deb limits the files' times to SOURCE_DATE_EPOCH; all staged files are newer.
    let mut command = Command::new("dpkg-deb");
    command
        .args(["--root-owner-group", "-Zxz", "--build"])
        .args([built, &fresh])
        .env("SOURCE_DATE_EPOCH", &package.epoch);
    tree::output(&mut command)?;
    fs::rename(&fresh, &file).with_context(|| format!("making {}", file.display()))?;
    Ok(file)
}

/// Removes packages of other versions: they must not be taken for this one.
fn remove_others(package: &Path) -> Result<()> {
    for entry in fs::read_dir(tree::staged()?)? {
        let path = entry?.path();
        if path != package && path.extension().is_some_and(|extension| extension == "deb") {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// A new, empty directory.
fn empty(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("emptying {}", dir.display()))?;
    }
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))
}

/// Compresses the files that policy requires, without name and time in them.
fn compress(contents: &Path, documents: &Path) -> Result<()> {
    let mut gzip = Command::new("gzip");
    gzip.args(["-9n"]).arg(documents.join("changelog.Debian"));
    for page in files(&contents.join("share/man"))? {
        gzip.arg(page);
    }
    tree::run(&mut gzip)
}

/// All files below a directory, sorted by name; without links.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        if kind.is_dir() {
            found.extend(files(&path)?);
        } else if kind.is_file() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Sets modes that do not depend on the builder: executables are executable, libraries are not.
fn set_modes(built: &Path) -> Result<()> {
    for file in files(built)? {
        let dir = file.parent().context("a file in a directory")?;
        let is_program = dir.ends_with("usr/bin") || dir.ends_with("libexec/fanpcap");
        mode(&file, if is_program { 0o755 } else { 0o644 })?;
        for dir in file.ancestors().skip(1) {
            mode(dir, 0o755)?;
            if dir == built {
                break;
            }
        }
    }
    Ok(())
}

fn mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| format!("setting the mode of {}", path.display()))
}

/// The size for the control file: each file rounded up to KiB.
fn size_kib(contents: &Path) -> Result<u64> {
    let mut sum = 0;
    for file in files(contents)? {
        sum += fs::metadata(&file)?.len().div_ceil(1024);
    }
    Ok(sum)
}

/// A line for each file, with its installed path.
fn checksums(built: &Path) -> Result<String> {
    let mut md5sum = Command::new("md5sum");
    md5sum.current_dir(built);
    for file in files(&built.join("usr"))? {
        md5sum.arg(file.strip_prefix(built)?);
    }
    tree::output(&mut md5sum)
}

/// The packages that executables and library need, as dpkg-shlibdeps finds them.
fn depends(work: &Path, contents: &Path, layout: &Layout) -> Result<String> {
    // dpkg-shlibdeps reads a source package's control file; only the names in it matter.
    let source = "Source: fanpcap\n\nPackage: fanpcap\nArchitecture: any\n";
    stage::place_text(source, &work.join("debian/control"))?;
    let mut command = Command::new("dpkg-shlibdeps");
    command.current_dir(work).arg("-O");
    command.arg(contents.join("bin").join(stage::COMMAND));
    command.arg(contents.join("libexec").join(stage::BENCH));
    command.arg(contents.join("libexec").join(stage::CLUSTER));
    command.arg(contents.join(layout.own()).join(stage::LIBRARY));
    let said = tree::output(&mut command)?;
    let found = said
        .lines()
        .find_map(|line| line.strip_prefix("shlibs:Depends="));
    found
        .map(str::to_owned)
        .with_context(|| format!("dpkg-shlibdeps said {said:?}"))
}
