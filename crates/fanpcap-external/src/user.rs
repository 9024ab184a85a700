//! Users and groups of the system, for programs that `fanpcap` starts as another user, and for the
//! users of its sockets.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A user from the system's database (getent(1)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub id: String,
    /// The number of the user's first group.
    pub group: String,
    /// The user's home directory.
    pub home: String,
}

impl User {
    /// The user of this name or number.
    ///
    /// # Errors
    /// There is no such user, or getent(1) can't be run.
    pub fn find(name: &str) -> Result<Self> {
        // getent(1) would read a name with this beginning as an option.
        ensure!(!name.starts_with('-'), "no user {name:?}");
        let found = Command::new("getent").args(["passwd", name]).output();
        let found = found.context("running getent")?;
        let line = String::from_utf8_lossy(&found.stdout).into_owned();
        Self::parse(&line).with_context(|| format!("no user {name:?}: 'getent passwd' lists them"))
    }

    /// The user in a line of passwd(5).
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.trim_end().split(':').skip(2).map(str::to_owned);
        let (id, group) = (fields.next()?, fields.next()?);
        let home = fields.nth(1)?;
        Some(Self { id, group, home })
    }
}

/// The number of the group of users with this name or number.
///
/// # Errors
/// There is no such group, or getent(1) can't be run.
pub fn group_of_users(name: &str) -> Result<u32> {
    // getent(1) would read a name with this beginning as an option.
    ensure!(!name.starts_with('-'), "no group {name:?}");
    let found = Command::new("getent").args(["group", name]).output();
    let line = found.context("running getent")?.stdout;
    let line = String::from_utf8_lossy(&line).into_owned();
    let number = line.split(':').nth(2).and_then(|it| it.parse().ok());
    number.with_context(|| format!("no group {name:?}: 'getent group' lists them"))
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
            let error = group_of_users(none).unwrap_err().to_string();
            assert!(error.starts_with("no group"), "{error}");
        }
        assert_eq!(group_of_users("root").unwrap(), 0);
        assert_eq!(User::find("root").unwrap().id, "0");
    }
}
