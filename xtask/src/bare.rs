//! `make test-bare`: builds, shows and tests in clean roots, with what each distribution has.

mod root;

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::tally::Tally;
use crate::tree;
use root::Root;

/// The roots that there are.
pub(crate) const DISTRIBUTIONS: [Distribution; 3] = [
    Distribution {
        name: "debian-12",
        suite: "bookworm",
        ..DEBIAN
    },
    Distribution {
        name: "debian-13",
        suite: "trixie",
        packages: "make ubuntu-keyring",
        ..DEBIAN
    },
    Distribution {
        name: "ubuntu-24.04",
        origin: "Ubuntu",
        suite: "noble",
        script: "gutsy",
        packages: "make",
    },
];

const DEBIAN: Distribution = Distribution {
    name: "",
    origin: "Debian",
    suite: "",
    script: "sid",
    packages: "make",
};

/// What runs in each root, in this order, as on a user's fresh machine. `make` and the demos
/// install what they need; the tests run with that and nothing more. Left out: `least` and `fuzz`,
/// which have nothing to do with what is installed; `soak` and `package`, which take long.
const COMMANDS: [&str; 4] = [
    "make",
    "make demo",
    "make demo-cluster",
    "FANPCAP_NO_INSTALL=1 make test TIERS='unit steering properties symbols loading manual packets tools conformance faults'",
];

/// A release of a distribution.
#[derive(Debug)]
pub(crate) struct Distribution {
    pub(crate) name: &'static str,
    /// As its archive calls itself (`Origin`).
    pub(crate) origin: &'static str,
    pub(crate) suite: &'static str,
    /// debootstrap's script for it, which serves all later suites.
    pub(crate) script: &'static str,
    /// What its user has installed: README asks for `make`. Debian's Ubuntu keys verify Ubuntu.
    pub(crate) packages: &'static str,
}

/// Runs in the roots of these names; in all of them when there are none.
pub(crate) fn run(names: &[&str]) -> Result<Tally> {
    ensure!(
        tree::is_root()?,
        "roots are made by debootstrap: run it as root"
    );
    tree::ensure_known("root", names, &DISTRIBUTIONS.map(|it| it.name))?;
    let mut tally = Tally::default();
    for distribution in &DISTRIBUTIONS {
        if names.is_empty() || names.contains(&distribution.name) {
            try_out(distribution, &mut tally)?;
        }
    }
    Ok(tally)
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
