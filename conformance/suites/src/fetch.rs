//! Fetches the suites' sources, each with its registry's ordinary client.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::command::{self, BUILD};
use crate::place::Place;

/// The unpacked source of a Debian package, with the package's patches if they are available. Takes
/// the machine's package sources and adds the source packages of each. The result is in separate
/// lists, so that nothing changes on the machine.
pub(crate) fn debian_source(place: &Place, package: &str) -> Result<PathBuf> {
    place.made(&format!("debian/{package}"), |dir| {
        let apt = Apt::new(place)?;
        let log = place.log(&format!("fetch.{package}"))?;
        let whole = apt.get(dir, &["source", "--download-only", package], &log);
        if whole.is_ok() {
            unpack_patched(dir, &log)
        } else {
            // The original source is enough, because it lacks only Debian's packaging.
            apt.get(
                dir,
                &["source", "--download-only", "--tar-only", package],
                &log,
            )?;
            unpack(&only_file(dir, ".orig.tar.")?, &dir.join(SOURCE), &log)
        }
    })?;
    Ok(place.dir(&format!("debian/{package}"))?.join(SOURCE))
}

/// The version of the source that [`debian_source`] has unpacked.
pub(crate) fn debian_version(source: &Path) -> Result<String> {
    let dir = source.parent().context("a source's directory")?;
    let file = only_file(dir, ".orig.tar.")?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let version = name
        .split_once('_')
        .and_then(|(_, rest)| rest.split_once(".orig"));
    Ok(version
        .context("a version in the source's name")?
        .0
        .to_owned())
}

/// Unpacks an archive that contains one directory. The directory becomes `dir`.
pub(crate) fn unpack(archive: &Path, dir: &Path, log: &Path) -> Result<()> {
    fs::create_dir_all(dir)?;
    let mut tar = command::bounded("tar", BUILD);
    tar.args(["-x", "--strip-components=1", "-f"])
        .arg(archive)
        .arg("-C")
        .arg(dir);
    command::step(&mut tar, log).map(drop)
}

/// The only file in `dir` whose name contains `part`, apart from signatures.
pub(crate) fn only_file(dir: &Path, part: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.contains(part) && !name.ends_with(".asc") {
            found.push(path.clone());
        }
    }
    ensure!(
        found.len() == 1,
        "{} files *{part}* in {}",
        found.len(),
        dir.display()
    );
    Ok(found.remove(0))
}

/// The path of a program, if it is installed.
pub(crate) fn installed(program: &str) -> Result<PathBuf> {
    let said = Command::new("sh")
        .args(["-c", r#"command -v "$1""#, "sh", program])
        .output()?;
    let path = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    ensure!(
        said.status.success() && !path.is_empty(),
        "no {program} on this machine"
    );
    Ok(PathBuf::from(path))
}

/// The first line that a program prints with these arguments. The line has the program's version.
pub(crate) fn first_line(program: &str, arguments: &[&str]) -> Result<String> {
    let said = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("running {program}"))?;
    let text = String::from_utf8_lossy(&said.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn unpack_patched(dir: &Path, log: &Path) -> Result<()> {
    let mut unpack = command::bounded("dpkg-source", BUILD);
    // No check is needed: apt-get has compared every file with the signed lists.
    unpack
        .args(["--no-check", "-x"])
        .arg(only_file(dir, ".dsc")?)
        .arg(dir.join(SOURCE));
    command::step(&mut unpack, log).map(drop)
}

/// apt-get with separate lists, caches and sources.
struct Apt {
    options: Vec<OsString>,
}

impl Apt {
    fn new(place: &Place) -> Result<Self> {
        ensure!(installed("apt-get").is_ok(), "no apt-get on this machine");
        place.dir("apt/lists/partial")?;
        place.dir("apt/cache/archives/partial")?;
        let root = place.dir("apt")?;
        let sources = root.join("sources.list");
        let own = [
            ("Dir::Etc::SourceList", sources.clone()),
            ("Dir::Etc::SourceParts", PathBuf::from("/dev/null")),
            ("Dir::State::lists", root.join("lists")),
            ("Dir::Cache", root.join("cache")),
        ];
        let mut options = Vec::new();
        for (name, path) in own {
            let mut option = OsString::from(format!("{name}="));
            option.push(path);
            options.extend(["-o".into(), option]);
        }
        // By default, apt downloads as its own user, who can't write to this directory.
        options.extend(["-o".into(), "APT::Sandbox::User=root".into()]);
        let apt = Self { options };
        let log = place.log("fetch.apt")?;
        fs::write(&sources, source_lines(&log)?)?;
        apt.get(&root, &["update"], &log)?;
        Ok(apt)
    }

    fn get(&self, dir: &Path, arguments: &[&str], log: &Path) -> Result<()> {
        let mut command = command::bounded("apt-get", BUILD);
        command
            .args(&self.options)
            .arg("-qq")
            .args(arguments)
            .current_dir(dir);
        command::step(&mut command, log).map(drop)
    }
}

/// For each package source of the machine, a line that adds its source packages.
fn source_lines(log: &Path) -> Result<String> {
    let mut targets = command::bounded("apt-get", BUILD);
    let format = "deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)";
    targets.args(["indextargets", "--format", format, "Created-By: Packages"]);
    let said = command::step(&mut targets, log)?;
    let mut lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("deb-src "))
        .collect();
    lines.sort_unstable();
    lines.dedup();
    ensure!(!lines.is_empty(), "apt-get knows no source of packages");
    Ok(lines.join("\n") + "\n")
}

const SOURCE: &str = "source";
