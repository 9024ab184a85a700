//! The users that count as one for the limits: a user may run processes as many others, its
//! subordinate users (subuid(5)), and would otherwise get as much as all of them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

/// The user for whom a user counts in the limits. It may be another user, so it says nothing about
/// what a user may see or change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(pub u32);

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who counts for whom, by a file such as `/etc/subuid`.
#[derive(Debug, Default)]
pub struct Accounts {
    path: Option<PathBuf>,
    /// The file of users, such as `/etc/passwd`.
    users: Option<PathBuf>,
    /// When the file was changed last, and its length.
    read: Option<(SystemTime, u64)>,
    entries: Vec<Entry>,
}

/// Subordinate users, and the user for whom they count.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    first: u32,
    count: u32,
    account: Account,
}

impl Accounts {
    /// By the machine's file of subordinate users.
    pub fn of_machine() -> Self {
        Self::of_file("/etc/subuid".into()).with_users("/etc/passwd".into())
    }

    /// The file of subordinate users has owners by name and by number, and this file of the format
    /// of passwd(5) has the numbers of names.
    #[must_use]
    pub fn with_users(self, path: PathBuf) -> Self {
        Self {
            users: Some(path),
            ..self
        }
    }

    /// By a file of the format of subuid(5).
    pub fn of_file(path: PathBuf) -> Self {
        Self {
            path: Some(path),
            ..Self::default()
        }
    }

    /// The user for whom a user counts: for subordinate users the first one of their owner.
    pub fn account(&mut self, user: u32) -> Account {
        self.read();
        let mut entries = self.entries.iter();
        let entry = entries.find(|it| user.checked_sub(it.first).is_some_and(|at| at < it.count));
        entry.map_or(Account(user), |it| it.account)
    }

    /// Reads the file again if it has changed. Without the file there are no subordinate users.
    fn read(&mut self) {
        let Some(path) = &self.path else { return };
        let about = fs::metadata(path).ok();
        let about = about.and_then(|it| Some((it.modified().ok()?, it.len())));
        if about != self.read {
            self.read = about;
            let users = self.users.as_ref().map(fs::read_to_string);
            let users = users.and_then(Result::ok).unwrap_or_default();
            self.entries = entries(&fs::read_to_string(path).unwrap_or_default(), &users);
        }
    }
}

/// The entries of a file. Its lines have the owner, the first subordinate user, and their number.
/// The owner is a number, or a name. If it is among the `users`, both are the same owner.
fn entries(text: &str, users: &str) -> Vec<Entry> {
    let numbers: BTreeMap<&str, &str> = users.lines().filter_map(user).collect();
    let mut all: Vec<(&str, Entry)> = Vec::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        let (Some(owner), Some(first), Some(count)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (Ok(first), Ok(count)) = (first.trim().parse(), count.trim().parse()) else {
            continue;
        };
        let owner = numbers.get(owner).copied().unwrap_or(owner);
        // Root gives its subordinate users to containers of others.
        let is_roots = owner == "root" || owner == "0";
        let same = all.iter().find(|it| it.0 == owner && !is_roots);
        let account = same.map_or(Account(first), |(_, entry)| entry.account);
        all.push((
            owner,
            Entry {
                first,
                count,
                account,
            },
        ));
    }
    all.into_iter().map(|(_, entry)| entry).collect()
}

/// The name and the number of a user in a line of passwd(5).
fn user(line: &str) -> Option<(&str, &str)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|it| !it.is_empty())?;
    Some((name, fields.nth(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;

    #[test]
    fn the_subordinate_users_of_a_user_count_as_one() {
        let text = "alice:100000:65536\nbob:165536:65536\n# a remark\n\nalice:300000:10\n\
                    root:400000:10\nroot:500000:10\nbroken:x:3\nshort:3\nlast:4294967290:65536\n";
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("subuid");
        fs::write(&path, text).unwrap();
        let mut accounts = Accounts::of_file(path.clone());
        for (user, expected) in [
            (0, 0),
            (1000, 1000),
            (99_999, 99_999),
            (100_000, 100_000),
            (165_535, 100_000),
            (165_536, 165_536),
            (300_009, 100_000),
            (300_010, 300_010),
            (400_005, 400_000),
            (500_005, 500_000),
            (u32::MAX, 4_294_967_290),
        ] {
            assert_eq!(accounts.account(user), Account(expected), "{user}");
        }
        fs::write(&path, "carol:100:5000\n").unwrap();
        assert_eq!(accounts.account(1000), Account(100), "the file has changed");
        fs::remove_file(&path).unwrap();
        assert_eq!(accounts.account(1000), Account(1000));
        assert_eq!(Accounts::default().account(100_001), Account(100_001));
    }

    #[test]
    fn an_owner_by_name_and_by_number_is_one() {
        let text = "alice:100000:10\n1000:200000:10\nbob:300000:10\n1001:400000:10\n\
                    toor:500000:10\n0:600000:10\n";
        let users = "root:x:0:0::/root:/bin/sh\ntoor:x:0:0\nbroken\n:x:1001\n\
                     alice:x:1000:1000:Alice:/home/alice:/bin/sh\n";
        let scratch = Scratch::new().unwrap();
        let path = |name, text| scratch.write(name, text).unwrap();
        let accounts = Accounts::of_file(path("subuid", text));
        let mut accounts = accounts.with_users(path("passwd", users));
        for (user, expected) in [
            (100_005, 100_000),
            (200_005, 100_000),
            (300_005, 300_000),
            (400_005, 400_000),
            (500_005, 500_000),
            (600_005, 600_000),
            (1000, 1000),
        ] {
            assert_eq!(accounts.account(user), Account(expected), "{user}");
        }
    }
}
