//! Paths in the source tree, and commands that run there.

use std::env;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};

/// The workspace's root: the nearest parent directory that contains xtask.
pub(crate) fn root() -> Result<PathBuf> {
    let here = env::current_dir().context("the current directory")?;
    here.ancestors()
        .find(|dir| dir.join("xtask/Cargo.toml").exists())
        .map(Path::to_path_buf)
        .context("run this inside fanpcap's source tree")
}

/// The directory of the staged files.
pub(crate) fn staged() -> Result<PathBuf> {
    Ok(root()?.join("target/fanpcap"))
}

/// cargo's target directory.
pub(crate) fn target() -> Result<PathBuf> {
    let configured = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    Ok(root()?.join(configured.unwrap_or_else(|| "target".into())))
}

/// The target triple of another architecture, for which `CARGO_BUILD_TARGET` makes cargo build.
pub(crate) fn foreign() -> Option<String> {
    env::var("CARGO_BUILD_TARGET")
        .ok()
        .filter(|it| !it.is_empty())
}

/// The directory of a profile's files below cargo's target directory.
pub(crate) fn built(target: &Path, profile: &str) -> PathBuf {
    target.join(foreign().unwrap_or_default()).join(profile)
}

/// Fails if one of the names is not known.
pub(crate) fn ensure_known(what: &str, names: &[&str], known: &[&str]) -> Result<()> {
    let unknown = names.iter().find(|name| !known.contains(name));
    unknown.map_or(Ok(()), |name| {
        bail!("no {what} {name:?}; known are {}", known.join(", "))
    })
}

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// Makes a directory and its parent directories, if they do not exist.
pub(crate) fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))
}

/// Makes and fills a directory that later runs use again, if it does not exist. The directory gets
/// its name only when it is complete, so a run that is interrupted leaves no half-filled directory.
pub(crate) fn make_once(dir: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if dir.exists() {
        return Ok(());
    }
    let half = dir.with_extension("half");
    remove(&half)?;
    fill(&half)?;
    fs::rename(&half, dir).with_context(|| format!("making {}", dir.display()))
}

/// Removes a directory with its contents, but does not enter other file systems.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    let mut rm = Command::new("rm");
    output(rm.args(["-rf", "--one-file-system"]).arg(dir)).map(drop)
}

/// cargo, in the workspace's root.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command> {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()?);
    Ok(command)
}

/// Runs a command and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// Runs two functions that build at the same time. Linking uses one CPU only, so while one function
/// links, the second uses the other CPUs.
pub(crate) fn at_once<A, B: Send>(
    one: impl FnOnce() -> Result<A>,
    other: impl FnOnce() -> Result<B> + Send,
) -> Result<(A, B)> {
    thread::scope(|scope| {
        let other = scope.spawn(other);
        let one = one();
        let other = other.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((one?, other?))
    })
}

/// A command's standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let done = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{command:?}: {}\n{complaint}",
        done.status
    );
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Whether this process runs as root. Tests of namespaces, packet sockets and other users'
/// processes need root.
pub(crate) fn is_root() -> Result<bool> {
    Ok(output(Command::new("id").arg("-u"))?.trim() == "0")
}

/// Whether this runs in CI. In CI, a test that needs root and runs without root is a failure, not a
/// skip.
pub(crate) fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// The directory for `prefix`: if DESTDIR is set, `prefix` below the directory that DESTDIR names.
pub(crate) fn destination(prefix: &str) -> Result<PathBuf> {
    ensure!(
        prefix.starts_with('/'),
        "PREFIX must be an absolute path, not {prefix:?}"
    );
    Ok(below(&env::var("DESTDIR").unwrap_or_default(), prefix))
}

/// A path below DESTDIR. Packagers set DESTDIR; the installed paths do not contain it.
fn below(destdir: &str, prefix: &str) -> PathBuf {
    match destdir {
        "" => PathBuf::from(prefix),
        _ => Path::new(destdir).join(prefix.trim_start_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destdir_comes_before_an_absolute_prefix() {
        assert_eq!(below("", "/usr"), Path::new("/usr"));
        assert_eq!(below("/tmp/root", "/usr"), Path::new("/tmp/root/usr"));
    }
}
