//! `--user`: problems of another user's applications, found by a doctor that runs as that user.

use std::env;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use fanpcap_config::report::harmless_text;
use fanpcap_external::User;
use fanpcap_linux::process::effective_user;

use super::LOST;
use super::finding::{Finding, PrintedFinding, PrintedFindings};

/// A process of `fanpcap doctor` that runs as another user.
#[derive(Debug)]
pub(super) struct AsUser {
    name: String,
    user: User,
    doctor: Child,
}

/// The names of the findings of a doctor that examines only its caller.
pub(super) const NAMES: [&str; 16] = [
    "no-poller",
    "settings",
    "set-in-vain",
    "group-elsewhere",
    "group-mode",
    "group-taken",
    "no-cap-net-raw",
    "no-cap-bpf",
    "no-cap-net-admin",
    "few-descriptors",
    "locked-memory",
    "file-size",
    "memory-limit",
    "library-not-loaded",
    "privileged-program",
    "apparmor",
];

/// How many bytes of a doctor's output are read at most.
const MOST: u64 = 1 << 18;

/// A doctor that has not ended after this many seconds is killed. The user can stop the doctor's
/// process, and a stopped process would never end.
const PATIENCE: &str = "20";

impl AsUser {
    /// Starts a doctor as this user, with the user's home.
    pub(super) fn start(name: &str, device: Option<&str>, program: Option<&Path>) -> Result<Self> {
        let user = User::find(name)?;
        let caller = effective_user();
        ensure!(
            caller == 0 || user.id == caller.to_string(),
            "--user {name}: only root can look as another user: run this command as root"
        );
        let own = env::current_exe().context("this program's file")?;
        // In its own session, the doctor can't reach the caller's terminal.
        let mut command = Command::new("setsid");
        command
            .args(["timeout", "-s", "KILL", PATIENCE, "setpriv"])
            .args(["--reuid", &user.id, "--regid", &user.group, "--init-groups"])
            .arg(own)
            .args(["doctor", "--caller", "--json"])
            // The user can read the doctor's environment, so only needed variables are passed on.
            .env_clear()
            .envs(env::vars_os().filter(|(name, _)| is_passed_on(&name.to_string_lossy())))
            .env("HOME", &user.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(program) = program {
            command.arg("--program").arg(program);
        }
        command.arg("--").args(device);
        let doctor = command.spawn().context("running setsid")?;
        Ok(Self {
            name: name.to_owned(),
            user,
            doctor,
        })
    }

    /// The findings of the doctor that runs as the user. The findings are checked, because the user
    /// may have made the doctor's process print anything.
    pub(super) fn findings(mut self) -> Result<Vec<Finding>> {
        let (mut said, mut complaint) = (Vec::new(), Vec::new());
        // An error text always fits into its pipe, so the process can't block although this text is
        // read last.
        if let Some(out) = self.doctor.stdout.take() {
            out.take(MOST).read_to_end(&mut said).context("reading")?;
        }
        if let Some(err) = self.doctor.stderr.take() {
            let mut err = err.take(MOST);
            err.read_to_end(&mut complaint).context("reading")?;
        }
        let status = self.doctor.wait().context("waiting")?;
        let has_looked = status
            .code()
            .is_some_and(|it| it == 0 || it == i32::from(LOST));
        let page = serde_json::from_slice::<PrintedFindings>(&said);
        let Some(page) = page.ok().filter(|_| has_looked) else {
            let complaint = String::from_utf8_lossy(&complaint);
            let complaint = harmless_text(complaint.trim());
            bail!("looking as user {}: {status}: {complaint}", self.name);
        };
        page.findings.into_iter().map(|it| self.own(it)).collect()
    }

    fn own(&self, mut told: PrintedFinding) -> Result<Finding> {
        let Self { name: user, .. } = self;
        // The caller will run this command, so `$(id -g)` would be the caller's group instead of
        // the user's.
        told.fix = told.fix.replace("$(id -g)", &self.user.group);
        let name = harmless_text(&told.name);
        let mut finding = told
            .own(&NAMES)
            .with_context(|| format!("looking as user {user}: no finding has the name {name:?}"))?;
        let source = format!("printed by a process of user {user}: read it before you run it");
        finding.fix = format!("{}    # {source}", finding.fix);
        Ok(finding)
    }
}

/// Whether a doctor needs this variable. A doctor needs settings and variables with similar names,
/// the dynamic linker's variables, and variables that locate programs.
fn is_passed_on(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let starts = ["PCAP_", "PFQ_", "FANPCAP_", "LD_", "LC_"];
    ["PATH", "LANG"].contains(&&*name) || starts.iter().any(|it| name.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_doctor_needs_is_passed_on() {
        for name in [
            "PCAP_GROUP",
            "Pcap_Group",
            "PFQ_GROUP",
            "FANPCAP_LIB_DIR",
            "LD_LIBRARY_PATH",
            "PATH",
            "LC_ALL",
        ] {
            assert!(is_passed_on(name), "{name}");
        }
        for name in [
            "HOME",
            "AWS_SECRET_ACCESS_KEY",
            "SSH_AUTH_SOCK",
            "PATHS",
            "MYPCAP_KEY",
            "",
        ] {
            assert!(!is_passed_on(name), "{name}");
        }
    }

    /// Findings of a user's process that prints `text` and ends with `status`.
    fn said(text: &str, status: u8) -> Result<Vec<Finding>> {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            r#"printf %s "$1"; printf '\033[2Jno' >&2; exit $2"#,
            "sh",
        ]);
        command.arg(text).arg(status.to_string());
        let doctor = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let user = User {
            id: "1000".to_owned(),
            group: "100".to_owned(),
            home: "/home/ada".to_owned(),
        };
        let as_user = AsUser {
            name: "ada".to_owned(),
            user,
            doctor: doctor?,
        };
        as_user.findings()
    }

    /// The JSON of a `fanpcap doctor` with one finding.
    fn page(name: &str, fix: &str) -> String {
        let (effect, place) = ("costs", "\u{1b}[2Jhere");
        serde_json::json!({"findings": [
            {"name": name, "effect": effect, "place": place, "what": "", "why": "", "fix": fix}
        ]})
        .to_string()
    }

    #[test]
    fn what_a_users_process_says_is_named_as_such() {
        let found = said(&page("no-cap-bpf", "reboot\nsetpriv --regid=$(id -g)"), 3).unwrap();
        assert_eq!((found.len(), found[0].name), (1, "no-cap-bpf"));
        assert_eq!(found[0].place, "?[2Jhere");
        let fix = "reboot?setpriv --regid=100    # printed by a process of user ada: read it";
        assert!(found[0].fix.starts_with(fix), "{found:?}");
        assert_eq!(said(r#"{"findings":[]}"#, 0).unwrap(), []);
    }

    #[test]
    fn what_no_doctor_says_is_refused() {
        let error = |text: &str, status| said(text, status).unwrap_err().to_string();
        let unknown = error(&page("down", "reboot"), 3);
        assert!(
            unknown.contains("no finding has the name \"down\""),
            "{unknown}"
        );
        let failed = error(r#"{"findings":[]}"#, 1);
        assert!(failed.ends_with("exit status: 1: ?[2Jno"), "{failed}");
        assert!(error("", 0).starts_with("looking as user ada: "));
    }

    #[test]
    fn a_text_without_an_end_is_not_read_to_its_end() {
        let doctor = Command::new("yes").stdout(Stdio::piped()).spawn().unwrap();
        let as_user = AsUser {
            name: "ada".to_owned(),
            user: User {
                id: "1000".to_owned(),
                group: "100".to_owned(),
                home: "/home/ada".to_owned(),
            },
            doctor,
        };
        assert!(as_user.findings().is_err());
    }
}
