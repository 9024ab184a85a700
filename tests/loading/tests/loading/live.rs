//! A live handle of our library behaves like a handle of the system's library, both without
//! settings and as the only member of a group.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use fanpcap_loading::{compile, on_ours, on_system, run, skip};
use fanpcap_testkit::{Scratch, netns};

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn without_settings_as_on_the_system() -> Result<()> {
    compare(&[], |program| on_ours(program))
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn alone_in_a_group_as_on_the_system() -> Result<()> {
    compare(&[], |program| Ok(in_group(on_ours(program)?)))
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn alone_in_a_group_under_the_address_sanitizer() -> Result<()> {
    compare(&["-fsanitize=address"], |program| {
        Ok(in_group(on_ours(program)?))
    })
}

#[test]
#[ignore = "needs root: a live handle in a network namespace"]
fn alone_in_a_group_under_valgrind() -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        skip("no valgrind here");
        return Ok(());
    }
    compare(&[], |program| {
        let mut command = in_group(on_ours("valgrind")?);
        command.args(["--quiet", "--error-exitcode=9"]).arg(program);
        Ok(command)
    })
}

fn in_group(mut command: Command) -> Command {
    command
        .env("PCAP_GROUP", "7")
        .env("PCAP_FANOUT", "hash+defrag");
    command
}

fn compare(flags: &[&str], how: impl Fn(&Path) -> Result<Command> + Send + Sync) -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "live.c", flags)?;
    netns::within_new(|| {
        let system = run(&scratch, &mut on_system(&program))?.success()?;
        let ours = run(&scratch, &mut how(&program)?)?.success()?;
        ensure!(
            ours.contains("threads: 0") && ours.contains("read 20"),
            "{ours}"
        );
        assert_eq!(ours, system);
        Ok(())
    })
}
