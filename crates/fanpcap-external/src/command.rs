//! Subcommands that are separate programs, either beside the command or in PREFIX/libexec.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::{env, fs};

use anyhow::{Context, Error, Result, ensure};
use clap::Args;
use fanpcap_linux::file::directory;

use crate::build::BUILD;

/// A separate program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalCommand {
    /// The subcommand of `fanpcap`.
    verb: &'static str,
    /// The program's file name.
    name: &'static str,
    /// Whether the program implements several subcommands, including this one.
    shares: bool,
}

const EXTERNAL: [ExternalCommand; 5] = [
    ExternalCommand {
        verb: "bench",
        name: "fanpcap-bench",
        shares: false,
    },
    of_cluster("node"),
    of_cluster("coordinator"),
    of_cluster("analyzer"),
    of_cluster("cluster"),
];

const fn of_cluster(verb: &'static str) -> ExternalCommand {
    ExternalCommand {
        verb,
        name: "fanpcap-cluster",
        shares: true,
    }
}

/// The arguments of a separate program.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Arguments {
    /// The arguments, which the program's own manual page describes
    #[arg(
        value_name = "ARG",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

impl ExternalCommand {
    /// The program of a subcommand; `None` if `fanpcap` itself implements the subcommand.
    pub fn of(verb: impl AsRef<OsStr>) -> Option<Self> {
        let verb = verb.as_ref();
        EXTERNAL.into_iter().find(|it| verb == it.verb)
    }

    /// Replaces this process with the program.
    ///
    /// # Errors
    /// The program is not installed, not trusted, from another build, or can't be started.
    pub fn run(self, arguments: &Arguments) -> Result<ExitCode> {
        let own: &[&str] = if self.shares { &[self.verb] } else { &[] };
        Err(self.replace(own, &arguments.words))
    }

    /// Shows the program's help for the subcommand `of`.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn help(self, of: &[OsString]) -> Result<ExitCode> {
        let words: &[&str] = if self.shares {
            &["help", self.verb]
        } else {
            &["help"]
        };
        Err(self.replace(words, of))
    }

    /// Prints the program's completions for the last word.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn complete(self, words: &[String]) -> Result<ExitCode> {
        let own: &[&str] = if self.shares {
            &["complete", "--", self.verb]
        } else {
            &["complete", "--"]
        };
        Err(self.replace(own, words))
    }

    /// Whether the program is installed.
    pub fn is_installed(self) -> bool {
        self.places()
            .is_ok_and(|places| places.iter().any(|it| it.exists()))
    }

    /// Runs the program to its end and returns its output, which must be short.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn output(self, words: &[&str]) -> Result<Output> {
        let program = self.program()?;
        let own: &[&str] = if self.shares { &[self.verb] } else { &[] };
        let mut command = Command::new(&program);
        command.args(own).args(words).stdin(Stdio::null());
        let done = command.output();
        done.with_context(|| format!("starting {}", program.display()))
    }

    /// Replaces this process with the program. Returns only if that fails.
    fn replace(self, first: &[&str], words: &[impl AsRef<OsStr>]) -> Error {
        match self.program() {
            Ok(program) => {
                let error = Command::new(&program).args(first).args(words).exec();
                Error::new(error).context(format!("starting {}", program.display()))
            }
            Err(error) => error,
        }
    }

    /// The possible paths of the program: beside the command in the build tree, and in
    /// PREFIX/libexec after installation.
    fn places(self) -> Result<[PathBuf; 2]> {
        let command = env::current_exe().context("where this command is")?;
        let directory = command.parent().context("where this command is")?;
        let places = [directory, &directory.join("../libexec/fanpcap")];
        Ok(places.map(|place| place.join(self.name)))
    }

    fn program(self) -> Result<PathBuf> {
        let Self { verb, name, .. } = self;
        let command = env::current_exe().context("where this command is")?;
        let places = self.places()?;
        let [beside, installed] = places.each_ref().map(|place| place.display().to_string());
        let found = places.into_iter().find(|place| place.exists());
        let found = found.with_context(|| {
            format!(
                "{verb} needs the separate program {name}, which is not installed: there is \
                 neither {beside} nor {installed}"
            )
        })?;
        check_owners(&found, &command)?;
        check_build(&found, &build_of(&found)?)?;
        Ok(found)
    }
}

/// Refuses a program that can be changed by a user who can't change the command itself. Root and
/// the calling user can change both.
fn check_owners(program: &Path, command: &Path) -> Result<()> {
    let owner = fs::metadata(command).context("reading the owner of this command")?;
    let place = program.parent().unwrap_or(program);
    for path in [place, program] {
        let about =
            fs::metadata(path).with_context(|| format!("reading whose {} is", path.display()))?;
        let is_known = directory::is_roots_or_own(&about) || about.uid() == owner.uid();
        ensure!(
            is_known && !directory::others_may_write(&about),
            "{} is not run: users other than root and you can change {}",
            program.display(),
            path.display()
        );
    }
    Ok(())
}

/// The build that the program prints; empty if the program is too old to print one.
fn build_of(program: &Path) -> Result<String> {
    let output = Command::new(program).arg("build").output();
    let output = output.with_context(|| format!("starting {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(if output.status.success() {
        said
    } else {
        String::new()
    })
}

/// Refuses a program from another build, because that program may differ from this command's
/// manual.
fn check_build(program: &Path, build: &str) -> Result<()> {
    let its = if build.is_empty() { "unknown" } else { build };
    ensure!(
        build == BUILD,
        "{} is not run: its build is {its}, this command's is {BUILD}; build both anew (make), or \
         install both from one package",
        program.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use fanpcap_testkit::Scratch;

    use super::*;

    #[test]
    fn a_program_that_others_can_change_is_not_run() {
        let scratch = Scratch::new().unwrap();
        let (command, bench) = (scratch.file("fanpcap"), scratch.file("fanpcap-bench"));
        for path in [&command, &bench] {
            fs::write(path, "").unwrap();
        }
        let directory = command.parent().unwrap();
        let chmod = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        chmod(directory, 0o755);
        chmod(&bench, 0o755);
        check_owners(&bench, &command).unwrap();
        for (path, mode) in [(directory, 0o1777), (&bench, 0o775)] {
            chmod(path, mode);
            let error = check_owners(&bench, &command).unwrap_err().to_string();
            assert!(
                error.ends_with(&format!("can change {}", path.display())),
                "{error}"
            );
            chmod(path, 0o755);
        }
    }

    #[test]
    fn a_program_of_another_build_is_not_run() {
        let bench = Path::new("/opt/fanpcap-bench");
        check_build(bench, BUILD).unwrap();
        for (build, told) in [("0.0.9 (1)", "its build is 0.0.9 (1)"), ("", "is unknown")] {
            let error = check_build(bench, build).unwrap_err().to_string();
            assert!(error.contains("/opt/fanpcap-bench is not run"), "{error}");
            assert!(error.contains(told) && error.contains(BUILD), "{error}");
        }
    }
}
