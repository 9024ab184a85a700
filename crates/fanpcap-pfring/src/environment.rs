//! Variables that PF_RING's library obeys in every process.

use fanpcap_linux::process::environment::variables;
use std::os::unix::ffi::OsStrExt;

/// The name of a variable that the library may read by getenv(3), if the process must not trust its
/// environment (`is_secure`). The library loads files that such variables name, such as
/// `PF_RING_FT_CONF`, and connects to a server (`PF_RING_RUNTIME_MANAGER`).
pub(crate) fn obeyed(is_secure: bool) -> Option<String> {
    let found = variables(|name| is_secure && name.as_bytes().starts_with(PREFIX));
    let (name, _) = found.into_iter().next()?;
    Some(name.to_string_lossy().into_owned())
}

/// The beginning of the names of all variables of the library.
const PREFIX: &[u8] = b"PF_RING";

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::process::Command;

    /// Marks the process that runs the test again with variables of the library's.
    const AGAIN: &str = "PF_RING_OF_A_TEST";

    #[test]
    fn only_a_process_with_raised_privileges_must_not_have_such_variables() {
        if env::var_os(AGAIN).is_some() {
            assert_eq!(obeyed(true).as_deref(), Some(AGAIN));
            assert_eq!(obeyed(false), None);
            return;
        }
        assert_eq!(obeyed(true), None);
        let name = "environment::tests::only_a_process_with_raised_privileges_must_not_have_such_variables";
        let again = Command::new(env::current_exe().unwrap())
            .args([name, "--exact"])
            .env(AGAIN, "")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(
            again.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }
}
