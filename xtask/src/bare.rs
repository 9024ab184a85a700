//! `make test-bare`: builds, runs the demos and tests in clean roots, with the packages of each
//! distribution.

mod root;

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::tally::Tally;
use crate::tree;
pub(crate) use root::{Root, base, debootstrap};

/// The distributions of the roots.
pub(crate) const DISTRIBUTIONS: [Distribution; 3] = [
    Distribution {
        name: "debian-12",
        suite: "bookworm",
        suffix: "~deb12",
        ..DEBIAN
    },
    Distribution {
        name: "debian-13",
        suite: "trixie",
        suffix: "~deb13",
        packages: "make ubuntu-keyring",
        ..DEBIAN
    },
    Distribution {
        name: "ubuntu-24.04",
        origin: "Ubuntu",
        suite: "noble",
        suffix: "~ubuntu24.04",
        script: "gutsy",
        packages: "make",
    },
];

const DEBIAN: Distribution = Distribution {
    name: "",
    origin: "Debian",
    suite: "",
    suffix: "",
    script: "sid",
    packages: "make",
};

/// What runs in each root, in this order, as on a user's fresh machine. `make` and the demos
/// install the packages that they need; the tests run with these packages only. Tiers `least` and
/// `fuzz` are left out because they do not depend on installed packages. Tiers `soak` and `package`
/// are left out because they take long. Nothing of DPDK is installed until `make dpdk` installs it.
const COMMANDS: [&str; 7] = [
    "make",
    "make demo",
    "make demo-cluster",
    "FANPCAP_NO_INSTALL=1 make test TIERS='unit steering properties symbols loading manual packets tools conformance faults'",
    "! dpkg -l 'librte-*' 2>/dev/null | grep '^ii'",
    "make dpdk",
    "FANPCAP_NO_INSTALL=1 make test-dpdk",
];

/// A release of a distribution.
#[derive(Debug)]
pub(crate) struct Distribution {
    pub(crate) name: &'static str,
    /// The field `Origin` of the distribution's archive.
    pub(crate) origin: &'static str,
    pub(crate) suite: &'static str,
    /// The end of the version of the packages that a release has for this distribution.
    pub(crate) suffix: &'static str,
    /// debootstrap's script for this suite. debootstrap uses the same script for later suites too.
    pub(crate) script: &'static str,
    /// Packages that a user must install first: README asks for `make`. Debian 13 also gets the
    /// keys that verify Ubuntu's archive.
    pub(crate) packages: &'static str,
}

/// Runs the commands in the roots with these names, or in all roots if there are no names.
pub(crate) fn run(names: &[&str]) -> Result<Tally> {
    let mut tally = Tally::default();
    for distribution in chosen(names)? {
        try_out(distribution, &mut tally)?;
    }
    Ok(tally)
}

/// The distributions with these names, or all if there are no names.
pub(crate) fn chosen(names: &[&str]) -> Result<Vec<&'static Distribution>> {
    ensure!(
        tree::is_root()?,
        "debootstrap makes the roots: run this as root"
    );
    tree::ensure_known("root", names, &DISTRIBUTIONS.map(|it| it.name))?;
    let is_chosen = |it: &&Distribution| names.is_empty() || names.contains(&it.name);
    Ok(DISTRIBUTIONS.iter().filter(is_chosen).collect())
}

fn try_out(distribution: &Distribution, tally: &mut Tally) -> Result<()> {
    let name = distribution.name;
    println!("{name} ...");
    let root = match Root::new(distribution) {
        Ok(root) => root,
        Err(error) => {
            tally.skip(name, &format!("no clean root: {error:#}"));
            return Ok(());
        }
    };
    let log = tree::target()?.join(format!("bare/{name}.log"));
    let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
    for command in COMMANDS {
        let begin = Instant::now();
        let outcome = root.run(command, &file).and_then(|()| last_line(&log));
        let seconds = begin.elapsed().as_secs();
        let outcome = outcome
            .map(|line| format!("{line} ({seconds} s)"))
            .with_context(|| format!("after {seconds} s; see {}", log.display()));
        tally.check(&format!("{name}: {command}"), &outcome);
        if outcome.is_err() {
            break;
        }
    }
    print_tests(&log)?;
    root.remove()
}

/// The messages of the tests that were skipped or failed.
fn print_tests(log: &Path) -> Result<()> {
    for line in read(log)?.lines() {
        if line.starts_with("  skip  ") || line.starts_with("  FAIL  ") {
            println!("    {}", line.trim_start());
        }
    }
    Ok(())
}

fn last_line(log: &Path) -> Result<String> {
    let text = read(log)?;
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    Ok(line.unwrap_or_default().trim().to_owned())
}

fn read(log: &Path) -> Result<String> {
    let bytes = fs::read(log).with_context(|| format!("reading {}", log.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
