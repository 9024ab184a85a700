//! The files of an apt repository: Packages and Release of each suite. They are signed if `SIGN`
//! names a key.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{PLUGIN, Release};
use crate::bare::{Distribution, Root};
use crate::tally::Tally;
use crate::{deb, tree};

/// Architectures of the packages.
const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// A poller of a virtual device of DPDK, which invents packets. When the poller ends, it prints the
/// device, the queue's number and how many packets it has received.
const SERVE: &str = "timeout 10 fanpcap poller dpdk:net_null0,size=60 --no-huge 2>&1 \
    | grep -E 'dpdk:net_null0 +0 +[1-9]'";

/// Writes apt/dists for the packages in apt/pool. `epoch` is the date of the files, in seconds
/// since 1970.
pub(super) fn write(files: &Path, epoch: &str) -> Result<()> {
    let apt = files.join("apt");
    let mut date = Command::new("date");
    date.args(["-u", "-R", "-d", &format!("@{epoch}")])
        .env("LC_ALL", "C");
    let date = tree::output(&mut date)?;
    let suites = fs::read_dir(apt.join("pool")).context("no package was built")?;
    for suite in suites {
        let suite = suite?.file_name().to_string_lossy().into_owned();
        write_suite(&apt, &suite, date.trim().trim_end_matches("+0000"))?;
    }
    export_key(&apt)
}

fn write_suite(apt: &Path, suite: &str, date: &str) -> Result<()> {
    let dists = apt.join("dists").join(suite);
    for architecture in ARCHITECTURES {
        let dir = dists.join(format!("main/binary-{architecture}"));
        tree::make(&dir)?;
        let mut list = ftparchive(apt);
        list.args(["--arch", architecture, "packages"]);
        let packages = tree::output(list.arg(format!("pool/{suite}")))?;
        let path = dir.join("Packages");
        fs::write(&path, packages).with_context(|| format!("writing {}", path.display()))?;
        tree::output(Command::new("gzip").arg("-kn9").arg(&path))?;
    }
    let mut release = ftparchive(apt);
    for (field, value) in [
        ("Origin", "fanpcap"),
        ("Label", "fanpcap"),
        ("Suite", suite),
        ("Codename", suite),
        ("Architectures", &ARCHITECTURES.join(" ")),
        ("Components", "main"),
        ("Date", &format!("{date}UTC")),
    ] {
        release.arg(format!("-oAPT::FTPArchive::Release::{field}={value}"));
    }
    let text = tree::output(release.arg("release").arg(&dists))?;
    let path = dists.join("Release");
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    sign(&path, "--clearsign", &dists.join("InRelease"))?;
    sign(&path, "--detach-sign", &dists.join("Release.gpg"))
}

/// Installs the package from the repository in a clean root of its distribution.
pub(super) fn try_out(
    distribution: &Distribution,
    release: &Release,
    tally: &mut Tally,
) -> Result<()> {
    let name = format!("{}: apt-get install from the repository", distribution.name);
    let suite = distribution.suite;
    if !release.files.join("apt/dists").join(suite).exists() {
        tally.skip(&name, "no package");
        return Ok(());
    }
    let root = Root::new(distribution)?;
    let mut cp = Command::new("cp");
    tree::output(
        cp.arg("-a")
            .arg(release.files.join("apt"))
            .arg(root.source()),
    )?;
    let trust = key().map_or("trusted=yes", |_| "signed-by=/root/fanpcap/apt/fanpcap.gpg");
    let version = deb::version(distribution.suffix);
    let line = format!(
        "echo 'deb [{trust}] file:/root/fanpcap/apt {suite} main' >/etc/apt/sources.list.d/fanpcap.list \
         && apt-get update -q && apt-get install -qy --no-install-recommends fanpcap={version} \
         && fanpcap --version"
    );
    let outcome = root.run(&line, &release.log).map(|()| version.clone());
    tally.check(&name, &outcome);
    if outcome.is_ok() {
        let line = format!(
            "apt-get install -qy --no-install-recommends {PLUGIN}={version} librte-meta-net && {SERVE}"
        );
        let outcome = root.run(&line, &release.log).map(|()| version);
        let name = format!("{}: {PLUGIN} serves a device", distribution.name);
        tally.check(&name, &outcome);
    }
    root.remove()
}

/// apt-ftparchive in the repository's directory, with SHA-256 alone.
fn ftparchive(apt: &Path) -> Command {
    let mut command = Command::new("apt-ftparchive");
    command.current_dir(apt);
    command.args(["MD5", "SHA1", "SHA512"].map(|it| format!("-oAPT::FTPArchive::{it}=false")));
    command
}

/// The key that signs, which `SIGN` names as gpg does.
fn key() -> Option<String> {
    env::var("SIGN").ok().filter(|key| !key.is_empty())
}

/// Signs a file if there is a key.
pub(super) fn sign(file: &Path, how: &str, to: &Path) -> Result<()> {
    let Some(key) = key() else {
        return Ok(());
    };
    let mut gpg = Command::new("gpg");
    gpg.args(["--batch", "--yes", "--armor", "--local-user", &key, how]);
    tree::output(gpg.arg("--output").arg(to).arg(file)).map(drop)
}

/// Writes the public key, which users give to apt.
fn export_key(apt: &Path) -> Result<()> {
    let Some(key) = key() else {
        return Ok(());
    };
    let mut gpg = Command::new("gpg");
    gpg.args(["--batch", "--yes", "--output"]);
    let file = apt.join("fanpcap.gpg");
    tree::output(gpg.arg(file).args(["--export", &key])).map(drop)
}

#[cfg(test)]
mod tests {
    use fanpcap_testkit::Scratch;

    use super::*;

    #[test]
    fn each_suite_lists_its_packages_and_their_checksums() {
        let scratch = Scratch::new().unwrap();
        if Command::new("apt-ftparchive").output().is_err() {
            println!("SKIP: no apt-ftparchive here (apt-utils)");
            return;
        }
        let control = "Package: p\nVersion: 1-1~deb13\nArchitecture: arm64\nMaintainer: m <m@m>\nDescription: d\n";
        let pool = scratch.file("apt/pool/trixie");
        for dir in [&pool, &scratch.file("p/DEBIAN")] {
            fs::create_dir_all(dir).unwrap();
        }
        fs::write(scratch.file("p/DEBIAN/control"), control).unwrap();
        let mut pack = Command::new("dpkg-deb");
        pack.args(["--root-owner-group", "-b"])
            .arg(scratch.file("p"));
        tree::output(pack.arg(pool.join("p_1-1~deb13_arm64.deb"))).unwrap();
        write(&scratch.file(""), "86400").unwrap();
        let dists = scratch.file("apt/dists/trixie");
        let read = |name: &str| fs::read_to_string(dists.join(name)).unwrap();
        let packages = read("main/binary-arm64/Packages");
        assert!(
            packages.contains("Filename: pool/trixie/p_1-1~deb13_arm64.deb\n"),
            "{packages}"
        );
        assert!(packages.contains("\nSHA256: "), "{packages}");
        assert_eq!(read("main/binary-amd64/Packages"), "");
        let release = read("Release");
        for line in [
            "Codename: trixie\n",
            "Architectures: amd64 arm64\n",
            "Date: Fri, 02 Jan 1970 00:00:00 UTC\n",
            " main/binary-arm64/Packages\n",
            " main/binary-arm64/Packages.gz\n",
        ] {
            assert!(release.contains(line), "{line}{release}");
        }
        assert!(!dists.join("InRelease").exists());
    }
}
