//! `make test-guest`: runs tests on Debian's kernels, in emulated machines with emulated network
//! cards.

mod architecture;
mod kernel;
mod initrd;
mod machine;
mod subset;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::tally::Tally;
use crate::{harness, stage, tree};
use architecture::{AMD64, ARM64, Architecture};
use kernel::Kernel;
pub(crate) use machine::Ended;
use subset::Program;

/// A release of Debian for one architecture, named by the series of its kernel, such as 6.1.
#[derive(Clone, Copy, Debug)]
struct Release {
    name: &'static str,
    suite: &'static str,
    architecture: &'static Architecture,
}

const RELEASES: [Release; 3] = [
    Release::new("5.10", "bullseye", &AMD64),
    Release::new("6.1", "bookworm", &AMD64),
    Release::new("6.12", "trixie", &AMD64),
];
/// The kernels of the packages that a release has for arm64.
const ON_ARM64: [Release; 2] = [
    Release::new("6.1-arm64", "bookworm", &ARM64),
    Release::new("6.12-arm64", "trixie", &ARM64),
];

impl Release {
    const fn new(
        name: &'static str,
        suite: &'static str,
        architecture: &'static Architecture,
    ) -> Self {
        Self {
            name,
            suite,
            architecture,
        }
    }
}

/// The longest time that the tests of one kernel may take.
const LIMIT: Duration = Duration::from_secs(1200);
const LIMIT_ON_ARM64: Duration = Duration::from_secs(3600);

/// Runs the tests on the kernels of these series, or on all kernels.
pub(crate) fn run(names: &[&str]) -> Result<Tally> {
    let releases = chosen(names)?;
    if let Some(reason) = hindrance()? {
        let mut tally = Tally::default();
        tally.skip("guests", reason);
        return Ok(tally);
    }
    stage::everything()?;
    let programs = subset::build()?;
    let mut sum = Tally::default();
    for release in releases {
        let begin = Instant::now();
        println!("Linux {} ...", release.name);
        let tally = on(release, &programs);
        let seconds = begin.elapsed().as_secs();
        println!("Linux {:5} {tally} ({seconds} s)", release.name);
        sum += tally;
    }
    Ok(sum)
}

/// Runs programs on the kernel of a release. If the kernel can't be downloaded, they are skipped.
fn on(release: &Release, programs: &[Program]) -> Tally {
    let mut tally = Tally::default();
    let tested = match Kernel::of(release) {
        Ok(kernel) => test(release, &kernel, programs),
        Err(error) => {
            tally.skip(release.name, &format!("can't get the kernel: {error:#}"));
            return tally;
        }
    };
    tested.unwrap_or_else(|error| {
        println!("  FAIL  Linux {}: {error:#}", release.name);
        Tally::one_failed(release.name)
    })
}

/// Runs a command in a guest with the kernel of this series, and prints the command's output.
pub(crate) fn command(name: &str, words: &[&str]) -> Result<Tally> {
    if let Some(reason) = hindrance()? {
        bail!("no guest here: {reason}");
    }
    let releases = chosen(&[name])?;
    let release = releases.first().context("one release")?;
    let line = format!(
        "cd '{}'\n{}\n",
        std::env::current_dir()?.display(),
        words.join(" ")
    );
    let ended = machine::run(&Kernel::of(release)?, Path::new("/"), &line, LIMIT)?;
    print!("{}", ended.output);
    ensure!(
        ended.status == 0,
        "the command's status is {}",
        ended.status
    );
    Ok(Tally::default())
}

/// Builds test programs for the architecture of `CARGO_BUILD_TARGET`, and writes the command that
/// runs them in a guest with a kernel of this series.
pub(crate) fn write_command(series: &str, to: &str) -> Result<()> {
    let programs = subset::build_foreign()?;
    let able = programs
        .iter()
        .filter(|it| it.hindrance(series).is_none())
        .collect::<Vec<_>>();
    fs::write(to, subset::script(&able)?).with_context(|| format!("writing {to}"))
}

/// The series of Debian's kernel for arm64 in a suite; `None` if no guest runs it.
pub(crate) fn series_on_arm64(suite: &str) -> Option<&'static str> {
    let release = ON_ARM64.iter().find(|it| it.suite == suite);
    release.and_then(|it| it.name.strip_suffix("-arm64"))
}

/// Runs a command in a guest of arm64, with Debian's kernel of a suite. `root` is the guest's root
/// directory.
pub(crate) fn on_arm64(suite: &str, root: &Path, command: &str) -> Result<Ended> {
    let release = ON_ARM64.iter().find(|it| it.suite == suite);
    let release = release.with_context(|| format!("no kernel of arm64 for {suite}"))?;
    machine::run(&Kernel::of(release)?, root, command, LIMIT_ON_ARM64)
}

fn chosen(names: &[&str]) -> Result<Vec<&'static Release>> {
    tree::ensure_known("kernel", names, &RELEASES.map(|it| it.name))?;
    let wanted = |release: &&Release| names.is_empty() || names.contains(&release.name);
    Ok(RELEASES.iter().filter(wanted).collect())
}

/// Why this machine can't run a guest; `None` if it can.
fn hindrance() -> Result<Option<&'static str>> {
    let has = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(program).exists())
    };
    Ok(if !tree::is_root()? {
        Some("a guest reads this machine's files, so run this as root")
    } else if std::env::consts::ARCH != "x86_64" {
        Some("the guests are x86-64 machines, and run this machine's programs")
    } else if !has(AMD64.emulator) {
        Some("no qemu-system-x86_64 here")
    } else if !has("apt-get") {
        Some("no apt-get here, which downloads Debian's kernels")
    } else if !Path::new("/dev/net/tun").exists() {
        Some("no /dev/net/tun here")
    } else {
        None
    })
}

fn test(release: &Release, kernel: &Kernel, programs: &[Program]) -> Result<Tally> {
    println!("  {}", kernel.version());
    let mut tally = Tally::default();
    let mut able = Vec::new();
    for program in programs {
        let Some(why) = program.hindrance(release.name) else {
            able.push(program);
            continue;
        };
        for label in program.labels() {
            tally.skip(label, &format!("Linux {}: {why}", release.name));
        }
    }
    let ended = machine::run(kernel, Path::new("/"), &subset::script(&able)?, LIMIT)?;
    tally += harness::judge("in the guest", &ended.output, "", ended.status == 0);
    for name in subset::unmatched(&able, &ended.output) {
        println!("  FAIL  no test's name contains {name:?}");
        tally += Tally::one_failed(name);
    }
    Ok(tally)
}
