//! A clean root: made by debootstrap, with a copy of the tracked files and no toolchain.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Distribution;
use crate::archive::{self, Source};
use crate::tree;

/// Enters a root. The root is a mount of its own, so that tests in it can have private mounts.
/// Processes and mounts end with the command. The script makes /dev/net/tun, which debootstrap does
/// not make.
const ENTER: &str = "mount --bind \"$0\" \"$0\" && cd \"$0\" && mount -t proc proc proc \
    && mount -t sysfs sysfs sys && mount -t tmpfs -o mode=755 tmpfs run \
    && mkdir -p dev/shm dev/pts && mount -t tmpfs -o mode=1777 tmpfs dev/shm \
    && mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts \
    && mkdir -p dev/net && { test -c dev/net/tun || mknod dev/net/tun c 10 200; } \
    && exec chroot . sh -c \"$1\"";
/// Directory of the source in a root.
const SOURCE: &str = "root/fanpcap";
/// Variables that tell cargo and apt how to reach their sources.
const NETWORK: [&str; 9] = [
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTR",
    "CARGO_SOURCE_",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP",
    "NO_PROXY",
];

/// A clean root with the source in it.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
}

impl Root {
    /// Makes a root: a copy of a fresh system, which debootstrap makes once and which is kept.
    pub(crate) fn new(distribution: &Distribution) -> Result<Self> {
        let base = base(distribution)?;
        let path = base.with_file_name(distribution.name);
        tree::remove(&path)?;
        tree::output(Command::new("cp").arg("-a").args([&base, &path]))?;
        copy_source(&path.join(SOURCE))?;
        copy_cargo_settings(&path.join("root/.cargo"))?;
        copy_certificates(&path)?;
        Ok(Self { path })
    }

    /// Runs a shell command in the source's directory, with its output to a file.
    pub(crate) fn run(&self, line: &str, log: &File) -> Result<()> {
        enter(&self.path, &format!("cd /{SOURCE} && {line}"), log)
    }

    /// The source's directory.
    pub(crate) fn source(&self) -> PathBuf {
        self.path.join(SOURCE)
    }

    /// Removes the root. No mount is below the root now: the mounts existed only in the mount
    /// namespace of its processes.
    pub(crate) fn remove(self) -> Result<()> {
        tree::remove(&self.path)
    }
}

/// The fresh system of a distribution, which debootstrap makes once and which is kept.
pub(crate) fn base(distribution: &Distribution) -> Result<PathBuf> {
    let dir = tree::target()?.join("bare");
    tree::make(&dir)?;
    let base = dir.join(format!("{}.base", distribution.name));
    tree::make_once(&base, |half| make(distribution, half))?;
    Ok(base)
}

/// Runs debootstrap for a distribution, with these options beside the usual ones. Returns the
/// machine's own package sources for the distribution, if it has any.
pub(crate) fn debootstrap(
    distribution: &Distribution,
    options: &[&str],
    path: &Path,
) -> Result<Vec<Source>> {
    let sources = archive::sources(distribution.origin, distribution.suite)?;
    let mut debootstrap = Command::new("timeout");
    debootstrap.args([
        "900",
        "debootstrap",
        "--variant=minbase",
        "--force-check-gpg",
    ]);
    debootstrap.args(options);
    if distribution.origin == "Ubuntu" {
        debootstrap.arg("--keyring").arg(ubuntu_keys()?);
    }
    debootstrap.arg(distribution.suite).arg(path);
    // If the mirror is empty, debootstrap uses the distribution's own mirror.
    let main = sources.iter().find(|it| it.suite == distribution.suite);
    debootstrap.arg(main.map_or("", |source| source.uri.as_str()));
    // An older debootstrap has a script for the distribution, but not for each later suite.
    debootstrap.arg(format!(
        "/usr/share/debootstrap/scripts/{}",
        distribution.script
    ));
    tree::output(&mut debootstrap)?;
    Ok(sources)
}

/// Makes a system with the package lists, and with `make`, which README asks for.
fn make(distribution: &Distribution, path: &Path) -> Result<()> {
    let sources = debootstrap(distribution, &[], path)?;
    let list = path.join("etc/apt/sources.list");
    let lines = if sources.is_empty() {
        with_updates(&tree::read(&list)?, distribution.suite)
    } else {
        sources.iter().map(Source::line).collect()
    };
    fs::write(&list, lines).context("writing sources.list")?;
    let log = File::create(path.with_extension("log"))?;
    let install = "apt-get update -q && apt-get install -qy --no-install-recommends";
    enter(path, &format!("{install} {}", distribution.packages), &log)
        .with_context(|| format!("see {}.log", path.display()))
}

/// The file with the keys of Ubuntu's archive, on this machine or in the root of Debian 13.
fn ubuntu_keys() -> Result<PathBuf> {
    let name = "usr/share/keyrings/ubuntu-archive-keyring.gpg";
    let places = [
        Path::new("/").join(name),
        tree::target()?.join("bare/debian-13.base").join(name),
    ];
    let found = places.into_iter().find(|path| path.exists());
    found.context("no keys of Ubuntu's archive: install ubuntu-keyring, or make debian-13 first")
}

/// Adds lines for the updates to debootstrap's line, because Ubuntu's newer compilers are in the
/// updates.
fn with_updates(list: &str, suite: &str) -> String {
    let archive = list.lines().find_map(|line| line.strip_prefix("deb "));
    let uri = archive
        .and_then(|rest| rest.split(' ').next())
        .unwrap_or_default();
    let line = |pocket| format!("deb {uri} {suite}{pocket} main universe\n");
    ["", "-updates", "-security"].map(line).concat()
}

/// Copies the tracked files, including uncommitted changes.
fn copy_source(to: &Path) -> Result<()> {
    tree::make(to)?;
    let copy = "git ls-files -z --cached --others --exclude-standard \
                | tar -c --null --no-recursion --ignore-failed-read -T - | tar -x -C \"$0\"";
    let mut sh = Command::new("sh");
    sh.args(["-c", copy]).arg(to).current_dir(tree::root()?);
    tree::output(&mut sh).map(|_| ())
}

/// Copies cargo's settings for its registry, if this machine has a file with them.
fn copy_cargo_settings(to: &Path) -> Result<()> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
    for name in ["config.toml", "config"] {
        let from = home.as_ref().map(|home| home.join(name));
        if let Some(from) = from.filter(|from| from.exists()) {
            tree::make(to)?;
            fs::copy(&from, to.join(name))
                .with_context(|| format!("copying {}", from.display()))?;
        }
    }
    Ok(())
}

/// Copies the certificates that this machine's administrator added, because a proxy may use them.
/// The package ca-certificates reads them.
fn copy_certificates(root: &Path) -> Result<()> {
    let added = Path::new("/usr/local/share/ca-certificates");
    if !added.exists() {
        return Ok(());
    }
    let mut cp = Command::new("cp");
    cp.args(["-a", "--parents"]).arg(added).arg(root);
    tree::output(&mut cp).map(|_| ())
}

fn enter(root: &Path, line: &str, log: &File) -> Result<()> {
    let reaches = |name: &str| NETWORK.iter().any(|prefix| name.starts_with(prefix));
    let network = env::vars().filter(|(name, _)| reaches(name));
    let status = Command::new("unshare")
        .args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            ENTER,
        ])
        .arg(root)
        .arg(line)
        .env_clear()
        .envs(network)
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .env("HOME", "/root")
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        .status()
        .context("starting unshare")?;
    ensure!(status.success(), "{line}: {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_distribution_has_its_updates() {
        let lines = with_updates("deb http://m/ubuntu noble main\n", "noble");
        assert_eq!(
            lines,
            "deb http://m/ubuntu noble main universe\n\
             deb http://m/ubuntu noble-updates main universe\n\
             deb http://m/ubuntu noble-security main universe\n"
        );
    }
}
