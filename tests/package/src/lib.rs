//! A clean Debian system in a directory, for tests of the package. debootstrap makes the directory
//! once, and each test copies it.

mod listing;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use fanpcap_testkit::{Scratch, mounts};

pub use listing::Listing;

/// Packages that the tests need and a minimal Debian does not have. fanpcap's package itself does
/// not need them.
const TOOLS: &str = "tcpdump apparmor";
/// The shell command that runs a command in a root directory with its own /proc and /sys. Their
/// mounts end with the command.
const ENTER: &str = "mount -t proc proc \"$0/proc\" && mount -t sysfs -o ro sysfs \"$0/sys\" \
                     && exec chroot \"$0\" \"$@\"";

/// A copy of the clean Debian for one test. Dropping the value removes it.
#[derive(Debug)]
pub struct Root {
    // All processes in the directory must end before it is removed. So the tests wait for the end
    // of their programs.
    scratch: Scratch,
}

impl Root {
    /// A copy of the clean Debian. If this machine can't have a clean Debian, prints the reason and
    /// returns `None`.
    ///
    /// # Errors
    /// The copy fails.
    pub fn new() -> Result<Option<Self>> {
        let base = match base() {
            Ok(base) => base,
            // The system in FANPCAP_ROOT must serve, because a release relies on the tests in it.
            Err(reason) if env::var_os("FANPCAP_ROOT").is_some() => return Err(reason),
            Err(reason) => {
                skip(&format!("no clean Debian here: {reason:#}"));
                return Ok(None);
            }
        };
        let root = Self {
            scratch: Scratch::new()?,
        };
        success(Command::new("cp").arg("-a").arg(base).arg(root.path()))?;
        Ok(Some(root))
    }

    /// A copy of the clean Debian with the package installed.
    ///
    /// # Errors
    /// apt-get fails; the error has its output.
    pub fn with_package() -> Result<Option<Self>> {
        let Some(root) = Self::new()? else {
            return Ok(None);
        };
        root.install()?;
        Ok(Some(root))
    }

    /// The directory of this Debian.
    pub fn path(&self) -> PathBuf {
        self.scratch.file("root")
    }

    /// The path of a file in this Debian, given its path inside.
    pub fn file(&self, path: &str) -> PathBuf {
        self.path().join(path.trim_start_matches('/'))
    }

    /// A directory for the files of programs that run in this Debian.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Installs the package as a user does. Installs it again if it is installed.
    ///
    /// # Errors
    /// apt-get fails; the error has its output.
    pub fn install(&self) -> Result<()> {
        fs::copy(package()?, self.file("tmp/fanpcap.deb"))?;
        self.run("apt-get install -y -qq --no-install-recommends --reinstall /tmp/fanpcap.deb")?;
        Ok(())
    }

    /// The arguments of `unshare` that run a command inside this Debian, in the caller's network
    /// namespace.
    pub fn entered(&self, command: &[&str]) -> Vec<String> {
        let path = self.path().display().to_string();
        let words = ["--mount", "sh", "-c", ENTER, &path];
        words.iter().chain(command).map(|&w| w.to_owned()).collect()
    }

    /// Runs a shell line to its end inside this Debian. Returns its standard output and standard
    /// error.
    ///
    /// # Errors
    /// The line fails; the error has its output.
    pub fn run(&self, line: &str) -> Result<String> {
        let line = format!("exec 2>&1; {line}");
        let mut command = Command::new("unshare");
        command.args(self.entered(&["sh", "-c", &line]));
        command.env_clear().envs([
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            ("LC_ALL", "C"),
            ("DEBIAN_FRONTEND", "noninteractive"),
        ]);
        success(&mut command)
    }
}

/// Prints why a test does nothing, in the form that the test runner counts as a skipped test.
#[allow(clippy::print_stdout, reason = "the tally reads it")]
pub fn skip(reason: &str) {
    println!("SKIP: {reason}");
}

/// Whether packages can be built on this machine. If not, prints the reason.
pub fn can_build() -> bool {
    let can = Command::new("dh").arg("--list").output().is_ok();
    if !can {
        skip("no debhelper here, which builds the package");
    }
    can
}

/// The package that `make deb` built, or the package that `FANPCAP_PACKAGE` names.
///
/// # Errors
/// There is no package, or more than one.
pub fn package() -> Result<PathBuf> {
    if let Some(package) = env::var_os("FANPCAP_PACKAGE") {
        return Ok(package.into());
    }
    let dir = workspace().join("target/fanpcap");
    let entries = fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            found.push(path);
        }
    }
    ensure!(
        found.len() == 1,
        "{found:?}: build one package first (make deb)"
    );
    found.pop().context("a package")
}

/// The workspace's root.
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command's standard output.
///
/// # Errors
/// The command fails; the error has its output.
pub fn success(command: &mut Command) -> Result<String> {
    let done = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let (out, err) = (&done.stdout, &done.stderr);
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    ensure!(
        done.status.success(),
        "{command:?}: {}\n{out}{err}",
        done.status
    );
    Ok(out.into_owned())
}

/// The clean system with the tools: a Debian of the same release as this machine, or the system in
/// the directory that `FANPCAP_ROOT` names. Creates it if it does not exist yet.
fn base() -> Result<PathBuf> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock();
    let _guard = guard.unwrap_or_else(PoisonError::into_inner);
    if let Some(reason) = mounts::hindrance()? {
        bail!("{reason}");
    }
    let given = env::var_os("FANPCAP_ROOT").map(PathBuf::from);
    let release = release(given.as_deref())?;
    let dir = workspace().join("target/package");
    let base = dir.join(format!("{release}-{}", TOOLS.replace(' ', "-")));
    if !base.exists() {
        fs::create_dir_all(&dir)?;
        let fresh = Scratch::new()?;
        let root = Root { scratch: fresh };
        match given {
            Some(given) => success(Command::new("cp").arg("-a").arg(given).arg(root.path()))?,
            None => debootstrap(&release, &root.path())?,
        };
        root.run("timeout 300 apt-get update -qq")?;
        let install = "apt-get install -y -qq --no-install-recommends";
        root.run(&format!("timeout 300 {install} {TOOLS}"))?;
        root.run("apt-get clean && rm -rf /var/lib/apt/lists/*")?;
        // Copy to another name first, and rename the directory when it is complete.
        let half = dir.join(".half");
        success(Command::new("rm").arg("-rf").arg(&half))?;
        success(Command::new("cp").arg("-a").arg(root.path()).arg(&half))?;
        fs::rename(&half, &base)?;
    }
    Ok(base)
}

fn debootstrap(release: &str, to: &Path) -> Result<String> {
    let mut debootstrap = Command::new("timeout");
    debootstrap.args(["900", "debootstrap", "--variant=minbase", release]);
    success(debootstrap.arg(to).arg(mirror()?))
}

/// The name of the release of the given system, or of this machine, which must be a Debian. The
/// package is built for this release.
fn release(given: Option<&Path>) -> Result<String> {
    let path = given.unwrap_or(Path::new("/")).join("etc/os-release");
    let text = fs::read_to_string(path).context("reading which distribution this is")?;
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_matches('"').to_owned())
    };
    ensure!(
        given.is_some() || value("ID=").as_deref() == Some("debian"),
        "this machine is not a Debian"
    );
    value("VERSION_CODENAME=").context("this release has no name")
}

/// The mirror from which this machine installs Debian's packages.
fn mirror() -> Result<String> {
    let format = "$(ORIGIN) $(COMPONENT) $(REPO_URI)";
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", format, "Created-By: Packages"]);
    let sources = success(&mut apt)?;
    let found = sources
        .lines()
        .find_map(|line| line.strip_prefix("Debian main "));
    found
        .map(str::to_owned)
        .context("no source of Debian in apt's list")
}
