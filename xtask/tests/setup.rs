//! Tests of scripts/setup. The script names all missing tools at once. It installs packages only
//! for root, and only if this is not forbidden.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use fanpcap_testkit::Scratch;

const TOOLS: [&str; 10] = [
    "sh", "sed", "sort", "tr", "head", "tail", "ls", "grep", "chmod", "rm",
];

/// The file that keeps services from starting during an installation. Tests use a file of their
/// own, because this file belongs to the machine.
const POLICY: &str = "policy=/usr/sbin/policy-rc.d";

/// Runs scripts/setup for the user id `user`, with no tools but [`TOOLS`] and no compiler. Returns
/// its output, which shows whether the given command ran.
fn setup(user: u32, environment: &[(&str, &str)]) -> Result<String> {
    let scratch = Scratch::new()?;
    let bin = scratch.file("bin");
    fs::create_dir(&bin)?;
    for tool in TOOLS {
        let places = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(tool));
        let found = places.into_iter().find(|place| place.exists());
        symlink(found.context(tool)?, bin.join(tool))?;
    }
    let program = |name: &str, text: &str| -> Result<()> {
        fs::write(bin.join(name), format!("#!/bin/sh\n{text}\n"))?;
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755))?;
        Ok(())
    };
    program("id", &format!("echo {user}"))?;
    let policy = scratch.file("policy-rc.d");
    let shown = policy.display();
    let apt = format!("test ! -x {shown} || echo \"{SEES_POLICY}\"; echo \"called apt-get $*\"");
    program("apt-get", &apt)?;
    // This apt-cache has a suitable version of every package.
    program("apt-cache", "echo '  Candidate: 1.85.0'")?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/setup");
    let text = fs::read_to_string(script)?;
    assert!(text.contains(POLICY), "setup has no {POLICY}");
    let script = scratch.file("setup");
    fs::write(&script, text.replace(POLICY, &format!("policy={shown}")))?;
    let mut command = Command::new("/bin/sh");
    command
        .arg(script)
        .args(["build", "echo", "the command ran"]);
    command.env_clear().env("HOME", &bin).env("PATH", &bin);
    let done = command.envs(environment.iter().copied()).output()?;
    assert!(!policy.exists(), "setup did not remove {shown}");
    let said = [done.stdout, done.stderr].concat();
    Ok(String::from_utf8_lossy(&said).into_owned())
}

const SEES_POLICY: &str = "no service starts";
const ALL: &str = "binutils build-essential";
const COMMAND: &str = "apt-get install --no-install-recommends";

#[test]
fn a_user_learns_of_all_that_is_missing_and_of_the_command() -> Result<()> {
    let said = setup(1000, &[])?;
    assert!(said.contains(COMMAND), "{said}");
    assert!(said.contains(ALL) && said.contains("rustc cargo"), "{said}");
    assert!(said.contains("Rust 1.85 or newer"), "{said}");
    assert!(!said.contains("called apt-get"), "{said}");
    Ok(())
}

#[test]
fn root_can_forbid_that_anything_is_installed() -> Result<()> {
    let said = setup(0, &[("FANPCAP_NO_INSTALL", "1")])?;
    assert!(said.contains(COMMAND) && said.contains(ALL), "{said}");
    assert!(!said.contains("called apt-get"), "{said}");
    Ok(())
}

#[test]
fn root_sees_the_command_before_it_runs() -> Result<()> {
    let said = setup(0, &[])?;
    assert!(said.contains(&format!("installing: {COMMAND}")), "{said}");
    assert!(said.contains("called apt-get install"), "{said}");
    assert!(said.contains(SEES_POLICY), "{said}");
    Ok(())
}
