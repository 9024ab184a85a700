//! Reads the policy file of `fanpcap poller`.

use anyhow::{Context, Result, ensure};
use fanpcap_external::{User, group_of_users};
use fanpcap_linux::file::directory::{is_trusted, open_regular, read_at_most};
use fanpcap_poller::access::file::{PolicyFile, Resolved};
use std::path::Path;

/// The most bytes of a policy file.
const LONGEST: u64 = 1 << 20;

/// Reads a file, and finds the numbers of its users and groups.
///
/// # Errors
/// The file can't be read, or other users may write to it; its first mistake.
pub(super) fn read(path: &Path) -> Result<Resolved> {
    let shown = path.display();
    let failed = || format!("the policy file {shown}");
    let file = open_regular(path).with_context(failed)?;
    ensure!(
        is_trusted(&file.metadata().with_context(failed)?),
        "the policy file {shown} is not trusted: make it root's ('chown root {shown}'), and let no \
         other user write to it ('chmod go-w {shown}')"
    );
    let bytes = read_at_most(file, LONGEST).with_context(failed)?;
    // Bytes that are not UTF-8 become U+FFFD, which is in no key and in no user's name.
    let text = String::from_utf8_lossy(&bytes);
    let file = PolicyFile::parse(&text, &shown.to_string())?;
    Ok(file.resolve(user, group)?)
}

/// A number need not be in the system's database.
fn user(name: &str) -> Option<u32> {
    let found = || User::find(name).ok()?.id.parse().ok();
    name.parse().ok().or_else(found)
}

fn group(name: &str) -> Option<u32> {
    let found = || group_of_users(name).ok();
    name.parse().ok().or_else(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_read_if_no_other_user_can_write_to_it() {
        let name = format!("fanpcap-policy-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let set = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            read(&path).map_err(|error| format!("{error:#}"))
        };
        let text = "[user root]\n[user 4294]\n[group root]";
        let read = set(text, 0o644);
        let trusted = set(text, 0o664).unwrap_err();
        let unknown = set("[user no-such-user]", 0o600).unwrap_err();
        let _ = fs::remove_file(&path);
        assert!(read.is_ok(), "{read:?}");
        assert!(trusted.contains("'chmod go-w"), "{trusted}");
        let expected = ":1:1: no user 'no-such-user'";
        assert!(unknown.contains(expected), "{unknown}");
    }
}
