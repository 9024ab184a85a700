//! `--user`: what another user's applications run into, found by a doctor that runs as that user.

use std::env;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::finding::{Effect, Finding};

/// A user by the system's database (getent(1)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct User {
    id: String,
    group: String,
    home: String,
}

/// A doctor that runs as another user.
#[derive(Debug)]
pub(super) struct AsUser {
    name: String,
    user: User,
    doctor: Child,
}

/// A finding of that doctor.
#[derive(Deserialize)]
struct Told {
    name: String,
    effect: Effect,
    place: String,
    what: String,
    why: String,
    fix: String,
}

/// What that doctor prints.
#[derive(Deserialize)]
struct Page {
    findings: Vec<Told>,
}

impl User {
    /// The user of this name or number.
    fn find(name: &str) -> Result<Self> {
        // getent(1) would take it for an option.
        ensure!(!name.starts_with('-'), "no user {name:?}");
        let found = Command::new("getent").args(["passwd", name]).output();
        let found = found.context("running getent")?;
        let line = String::from_utf8_lossy(&found.stdout).into_owned();
        Self::parse(&line).with_context(|| format!("no user {name:?}"))
    }

    /// A line of passwd(5).
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.trim_end().split(':').skip(2).map(str::to_owned);
        let (id, group) = (fields.next()?, fields.next()?);
        let home = fields.nth(1)?;
        Some(Self { id, group, home })
    }
}

impl AsUser {
    /// Starts a doctor as this user, with the caller's variables and the user's home.
    pub(super) fn start(name: &str, device: Option<&str>, program: Option<&Path>) -> Result<Self> {
        let user = User::find(name)?;
        let own = env::current_exe().context("this program's file")?;
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &user.id, "--regid", &user.group, "--init-groups"])
            .arg(own)
            .args(["doctor", "--caller", "--json"])
            .env("HOME", &user.home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(program) = program {
            command.arg("--program").arg(program);
        }
        command.arg("--").args(device);
        let doctor = command.spawn().context("running setpriv")?;
        Ok(Self {
            name: name.to_owned(),
            user,
            doctor,
        })
    }

    /// What that doctor has found.
    pub(super) fn findings(mut self) -> Result<Vec<Finding>> {
        let (mut said, mut complaint) = (String::new(), String::new());
        if let (Some(out), Some(err)) = (&mut self.doctor.stdout, &mut self.doctor.stderr) {
            // A complaint is shorter than the room in its pipe.
            out.read_to_string(&mut said).context("reading")?;
            err.read_to_string(&mut complaint).context("reading")?;
        }
        self.doctor.wait().context("waiting")?;
        let Ok(page) = serde_json::from_str::<Page>(&said) else {
            bail!("looking as user {}: {}", self.name, complaint.trim());
        };
        Ok(page.findings.into_iter().map(|it| self.own(it)).collect())
    }

    fn own(&self, told: Told) -> Finding {
        Finding {
            // Names are few, and this process ends soon.
            name: told.name.leak(),
            effect: told.effect,
            place: told.place,
            what: told.what,
            why: told.why,
            // The caller runs the command, and has another group.
            fix: told.fix.replace("$(id -g)", &self.user.group),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_passwd_are_read() {
        let found = User::parse("ada:x:1000:100:Ada L,,:/home/ada:/bin/sh\n").unwrap();
        assert_eq!((found.id.as_str(), found.group.as_str()), ("1000", "100"));
        assert_eq!(found.home, "/home/ada");
        for wrong in ["", "ada:x:1000\n"] {
            assert_eq!(User::parse(wrong), None);
        }
    }

    #[test]
    fn a_user_that_is_none_is_refused() {
        for none in ["--service=x", "no such user"] {
            let error = User::find(none).unwrap_err().to_string();
            assert!(error.starts_with("no user"), "{error}");
        }
        assert_eq!(User::find("root").unwrap().id, "0");
    }
}
