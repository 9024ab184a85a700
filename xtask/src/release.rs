//! `make release`: the files of a release in target/release-files. Clean roots of the distributions
//! build the packages; other clean roots try them.

mod arm64;
mod repository;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::bare::{self, Distribution, Root};
use crate::tally::Tally;
use crate::{archive, deb, tree};

/// The name of package and source archive.
const NAME: &str = "fanpcap";
/// The package of the plugin for DPDK.
const PLUGIN: &str = "fanpcap-dpdk";

/// The release's files and the log of their build.
#[derive(Debug)]
struct Release {
    files: PathBuf,
    log: File,
    /// Time of the last change to the source: files in the release have no later time.
    epoch: String,
}

/// Makes the files with packages of these distributions, or of all if there are no names.
pub(crate) fn run(names: &[&str]) -> Result<Tally> {
    let distributions = bare::chosen(names)?;
    let release = Release::new()?;
    let mut tally = Tally::default();
    release.write_source()?;
    for distribution in &distributions {
        release.build(distribution, &mut tally)?;
    }
    repository::write(&release.files, &release.epoch)?;
    for distribution in &distributions {
        repository::try_out(distribution, &release, &mut tally)?;
    }
    release.write_sums()?;
    println!("the files are in {}", release.files.display());
    Ok(tally)
}

impl Release {
    /// Begins with an empty directory, so that no file of an earlier release is in the checksums.
    fn new() -> Result<Self> {
        let files = tree::target()?.join("release-files");
        tree::remove(&files)?;
        tree::make(&files)?;
        let log = files.with_extension("log");
        Ok(Self {
            log: File::create(&log).with_context(|| format!("making {}", log.display()))?,
            files,
            epoch: deb::last_change()?,
        })
    }

    /// The source archive of the last commit, and the notes.
    fn write_source(&self) -> Result<()> {
        let git = |line: &str| {
            let mut git = Command::new("git");
            git.args(line.split(' ')).current_dir(tree::root()?);
            tree::output(&mut git)
        };
        let changed = git("status --porcelain --untracked-files=no")?;
        ensure!(
            changed.is_empty(),
            "uncommitted changes, which the source archive would lack:\n{changed}"
        );
        let name = format!("{NAME}-{}", env!("CARGO_PKG_VERSION"));
        let tar = self.files.join(format!("{name}.tar"));
        git(&format!(
            "archive --prefix={name}/ --output={} HEAD",
            tar.display()
        ))?;
        tree::output(Command::new("xz").args(["-9", "-T1"]).arg(&tar))?;
        let changes = tree::read(&tree::root()?.join("CHANGELOG.md"))?;
        fs::write(self.files.join("NOTES.md"), notes(&changes)).context("writing NOTES.md")
    }

    /// Builds the packages of a distribution, and tries them in other roots.
    fn build(&self, distribution: &Distribution, tally: &mut Tally) -> Result<()> {
        let name = distribution.name;
        println!("{name} ...");
        let root = match Root::new(distribution) {
            Ok(root) => root,
            Err(error) => {
                tally.skip(name, &format!("no clean root: {error:#}"));
                return Ok(());
            }
        };
        let pool = self.pool(distribution)?;
        let make = format!("{} make deb", self.variables(distribution));
        let built = root.run(&make, &self.log);
        let built = built.and_then(|()| take(&root, NAME, &pool));
        let tried = built
            .as_ref()
            .ok()
            .map(|package| self.try_package(distribution, package));
        tally.check(&format!("{name}: package"), &built.map(shown));
        match tried {
            Some(tried) => {
                let tried = tried.map(|()| "tests/package".to_owned());
                tally.check(&format!("{name}: installed, used, purged"), &tried);
            }
            None => return root.remove(),
        }
        self.build_plugin(&root, distribution, tally)?;
        arm64::build(&root, distribution, self, tally)?;
        root.remove()
    }

    /// Builds the package of the plugin for DPDK. Only this installs DPDK in the root.
    fn build_plugin(
        &self,
        root: &Root,
        distribution: &Distribution,
        tally: &mut Tally,
    ) -> Result<()> {
        let pool = self.pool(distribution)?;
        let make = format!("{} make deb-dpdk", self.variables(distribution));
        let built = root.run(&make, &self.log);
        let built = built.and_then(|()| take(root, PLUGIN, &pool));
        let name = format!("{}: package {PLUGIN}", distribution.name);
        tally.check(&name, &built.map(shown));
        Ok(())
    }

    /// Runs the package's tests in roots of its distribution.
    fn try_package(&self, distribution: &Distribution, package: &Path) -> Result<()> {
        let mut cargo = tree::cargo(&["test", "-p", "fanpcap-package-tests", "--test", "package"])?;
        cargo.args(["--", "--ignored"]);
        cargo.env("FANPCAP_PACKAGE", package);
        cargo.env("FANPCAP_ROOT", bare::base(distribution)?);
        tree::run(
            cargo
                .stdout(self.log.try_clone()?)
                .stderr(self.log.try_clone()?),
        )
    }

    /// Adds a guest's output to the log.
    fn note(&self, output: &str) -> Result<()> {
        let mut log = &self.log;
        log.write_all(output.as_bytes()).context("writing the log")
    }

    /// Variables for the version and the times in a package.
    fn variables(&self, distribution: &Distribution) -> String {
        let (suffix, epoch) = (distribution.suffix, &self.epoch);
        format!("FANPCAP_REVISION='{suffix}' SOURCE_DATE_EPOCH={epoch}")
    }

    /// The directory of a distribution's packages.
    fn pool(&self, distribution: &Distribution) -> Result<PathBuf> {
        let pool = self.files.join("apt/pool").join(distribution.suite);
        tree::make(&pool)?;
        Ok(pool)
    }

    /// SHA256SUMS has the checksum of each file. SHA256SUMS.asc is its signature, if there is a
    /// key.
    fn write_sums(&self) -> Result<()> {
        let line = "find . -type f ! -name 'SHA256SUMS*' | sort | xargs -d '\\n' sha256sum";
        let sums = tree::output(
            Command::new("sh")
                .args(["-c", line])
                .current_dir(&self.files),
        )?;
        let path = self.files.join("SHA256SUMS");
        fs::write(&path, listed(&sums)).context("writing SHA256SUMS")?;
        repository::sign(&path, "--detach-sign", &self.files.join("SHA256SUMS.asc"))
    }
}

/// Copies a package that a root has built to `pool`.
fn take(root: &Root, name: &str, pool: &Path) -> Result<PathBuf> {
    let built = archive::packages(&root.source().join("target").join(name))?.pop();
    let built = built.context("no package was built")?;
    let to = pool.join(built.file_name().context("a package's name")?);
    fs::copy(&built, &to).with_context(|| format!("copying {}", built.display()))?;
    Ok(to)
}

fn shown(package: PathBuf) -> String {
    let name = package.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The lines of SHA256SUMS. A package has two: one for its place in the apt repository, and one
/// for users who download the package alone.
fn listed(sums: &str) -> String {
    let lines = sums.lines().flat_map(|line| {
        let (sum, path) = line.split_once("  ./").unwrap_or_default();
        let alone = path
            .rsplit('/')
            .next()
            .filter(|name| name.ends_with(".deb"));
        let alone = alone.map(|name| format!("{sum}  {name}\n"));
        [Some(format!("{sum}  {path}\n")), alone]
    });
    lines.flatten().collect()
}

/// The changelog's newest section.
fn notes(changelog: &str) -> String {
    let section = changelog.split("\n## ").nth(1).unwrap_or_default();
    let body = section.split_once('\n').map_or("", |(_, body)| body);
    let version = env!("CARGO_PKG_VERSION");
    format!("# fanpcap {version}\n\n{}\n", body.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_can_be_checked_beside_the_checksums() {
        let sums = "1a  ./NOTES.md\n2b  ./apt/pool/trixie/p_1_arm64.deb\n";
        let listed = listed(sums);
        assert_eq!(
            listed,
            "1a  NOTES.md\n2b  apt/pool/trixie/p_1_arm64.deb\n2b  p_1_arm64.deb\n"
        );
    }

    #[test]
    fn the_notes_are_the_newest_section() {
        let text = "# Changelog\n\n## Unreleased\n\n### Part\n\n* One\n\n## 0.0\n\n* Old.\n";
        let head = concat!("# fanpcap ", env!("CARGO_PKG_VERSION"));
        assert_eq!(notes(text), format!("{head}\n\n### Part\n\n* One\n"));
    }
}
