//! Runs `fanpcap doctor`, and the commands by which its findings are fixed.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Scratch, Veth, mounts, netns};
use serde_json::Value;

#[path = "../pages/json.rs"]
mod json_page;

const COMMAND: &str = env!("CARGO_BIN_EXE_fanpcap");
const PAGE: &str = include_str!("../../../../docs/doctor-json.md");

/// doctor's exit status if packets have been lost.
const LOST: i32 = 3;

/// A user's shell with our library, and with no settings except `variables`.
pub(crate) struct Shell {
    variables: Vec<(String, String)>,
    /// The directory of the command.
    directory: PathBuf,
    /// A script that runs before each command.
    pub(crate) before: String,
    /// Arguments for doctor.
    arguments: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) effect: String,
    pub(crate) place: String,
    pub(crate) fix: String,
}

impl Shell {
    /// A shell in which doctor runs with these arguments.
    pub(crate) fn new(arguments: &str) -> Result<Self> {
        let library = library_dir()?.display().to_string();
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Ok(Self {
            variables: vec![
                of("PCAP_CONFIG", "/dev/null"),
                of("FANPCAP_LIB_DIR", &library),
                of("LD_LIBRARY_PATH", &library),
            ],
            directory: Path::new(COMMAND)
                .parent()
                .context("a directory")?
                .to_owned(),
            before: String::new(),
            arguments: arguments.to_owned(),
        })
    }

    /// Copies the command to a directory in which any user can run it, because not every user can
    /// enter the build directory.
    pub(crate) fn for_any_user(mut self, scratch: &Scratch) -> Result<Self> {
        self.directory = scratch.file("");
        fs::copy(COMMAND, self.directory.join("fanpcap"))?;
        fs::set_permissions(&self.directory, Permissions::from_mode(0o755))?;
        Ok(self)
    }

    /// Sets a variable.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.retain(|(other, _)| other != name);
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs a script in a separate mount namespace, in which sysfs shows this network namespace.
    /// Returns the script's exit status and standard output.
    pub(crate) fn run(&self, script: &str) -> Result<(i32, String)> {
        let path = env::var("PATH").unwrap_or_default();
        let mut command = Command::new("unshare");
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().to_uppercase().starts_with("PCAP_") {
                command.env_remove(name);
            }
        }
        let script = format!(
            "mount -t sysfs sysfs /sys || exit 99\n{}\n{script}",
            self.before
        );
        command
            .args(["--mount", "sh", "-c", &script])
            .envs(self.variables.iter().cloned())
            .env("PATH", format!("{}:{path}", self.directory.display()));
        let done = command.output()?;
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let status = done.status.code().context("a status")?;
        ensure!(status != 99, "{}", String::from_utf8_lossy(&done.stderr));
        Ok((status, said))
    }

    fn ask(&self, first: &str) -> Result<Vec<Value>> {
        let script = format!("{first}\nfanpcap doctor {} --json", self.arguments);
        let (status, said) = self.run(&script)?;
        let line = said.lines().last().context("doctor's line")?;
        let told: Value = serde_json::from_str(line).context("doctor's JSON")?;
        json_page::check(PAGE, &told)?;
        let loses = told["loses_packets"].as_bool().context("loses_packets")?;
        ensure!(
            status == if loses { LOST } else { 0 },
            "status {status}: {told}"
        );
        Ok(told["findings"].as_array().context("findings")?.clone())
    }

    /// The names of all findings.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let told = self.ask("")?;
        Ok(told
            .iter()
            .map(|it| it["name"].as_str().unwrap_or_default().to_owned())
            .collect())
    }

    /// Runs the command `first`, and then doctor. Returns the finding with this name, or `None` if
    /// doctor does not report it.
    pub(crate) fn find(&self, first: &str, name: &str) -> Result<Option<Finding>> {
        let told = self.ask(first)?;
        let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
        let found = told.iter().find(|it| it["name"] == name);
        Ok(found.map(|it| Finding {
            effect: text(it, "effect"),
            place: text(it, "place"),
            fix: text(it, "fix"),
        }))
    }

    /// The finding with this name, which must exist.
    pub(crate) fn found(&self, name: &str) -> Result<Finding> {
        let found = self.find("", name)?;
        found.with_context(|| format!("no finding {name}"))
    }

    /// Runs doctor, which must report the finding with this name. Then runs the finding's command
    /// and doctor again in one shell, and checks that doctor does not report the finding again.
    pub(crate) fn mend(&self, name: &str) -> Result<Finding> {
        let found = self.found(name)?;
        let left = self.find(&found.fix, name)?;
        ensure!(
            left.is_none(),
            "still there after '{}': {left:?}",
            found.fix
        );
        Ok(found)
    }
}

/// Runs a test in a network namespace with the devices `fdr0` and `fdr1`, if this machine allows
/// mounts.
pub(crate) fn within(test: impl FnOnce(&Scratch) -> Result<()> + Send) -> Result<()> {
    mounts::where_possible(|| {
        netns::within_new(|| {
            Veth::new("fdr0", "fdr1", 2)?;
            test(&Scratch::new()?)
        })
    })
}
