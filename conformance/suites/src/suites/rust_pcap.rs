//! The tests of the Rust crate pcap: with a mocked library, on files, on a tap device, and in its
//! documentation.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::{self, BUILD};
use crate::fetch;
use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;
use crate::suite::{Built, Suite, Traffic};

const VERSION: &str = "2.5.0";

pub(crate) static SUITE: Suite = Suite {
    name: "rust-pcap",
    what: "Rust's pcap",
    traffic: Traffic::Constant,
    prepare,
    run,
};

fn prepare(place: &Place) -> Result<Built> {
    let log = place.log("fetch.rust-pcap")?;
    let fetched = place.made(&format!("rust-pcap-{VERSION}/fetch"), |dir| {
        let manifest = format!(
            "[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
             [lib]\npath = \"lib.rs\"\n[dependencies]\npcap = \"={VERSION}\"\n[workspace]\n"
        );
        fs::write(dir.join("Cargo.toml"), manifest)?;
        fs::write(dir.join("lib.rs"), "")?;
        command::step(cargo(dir, place)?.arg("fetch"), &log).map(drop)
    })?;
    let dir = place.made(&format!("rust-pcap-{VERSION}/source"), |dir| {
        let packed = packed_source(&fetched, place, &log)?;
        // Work on a copy: registries' copies are shared and read-only, but the tests write files
        // beside the sources.
        let mut copy = command::bounded("cp", BUILD);
        command::step(copy.arg("-r").arg(packed.join(".")).arg(dir), &log)?;
        // The crate must not become part of a workspace in a parent directory.
        let manifest = dir.join("Cargo.toml");
        let text = fs::read_to_string(&manifest)? + "\n[workspace]\n";
        fs::write(&manifest, text).context("the crate's manifest")
    })?;
    let mut build = cargo(&dir, place)?;
    command::step(
        build.args(["test", "--no-run"]),
        &place.log("build.rust-pcap")?,
    )?;
    let cargo = fetch::first_line("cargo", &["--version"])?;
    let version = format!("{VERSION}, {cargo}");
    Ok(Built { dir, version })
}

/// The directory in which cargo has unpacked the crate.
fn packed_source(fetched: &Path, place: &Place, log: &Path) -> Result<PathBuf> {
    let mut metadata = cargo(fetched, place)?;
    metadata.args(["metadata", "--format-version=1", "--offline"]);
    // Parse no JSON, because the code needs only one string of it.
    let said = command::step(&mut metadata, log)?;
    let end = format!("/pcap-{VERSION}/Cargo.toml");
    said.split('"')
        .find(|text| text.ends_with(&end))
        .and_then(|text| Path::new(text).parent().map(Path::to_owned))
        .context("no place of the crate in cargo's metadata")
}

fn cargo(dir: &Path, place: &Place) -> Result<Command> {
    let mut command = command::bounded(program(), BUILD);
    command
        .current_dir(dir)
        .env("CARGO_TARGET_DIR", target(place)?);
    Ok(command)
}

fn target(place: &Place) -> Result<PathBuf> {
    place.dir(&format!("rust-pcap-{VERSION}/target"))
}

/// The cargo that runs this program.
fn program() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn run(built: &Built, session: &Session) -> Result<Outcome> {
    let mut tests = session.program(program(), LIMIT);
    let beside = built.dir.with_file_name("target");
    tests
        .args([
            "test",
            "--offline",
            "--no-fail-fast",
            "--",
            "--include-ignored",
        ])
        .env("CARGO_TARGET_DIR", beside)
        .current_dir(&built.dir);
    parse(&session.run("", &mut tests)?.said)
}

/// Parses the output: a line for each test, and a line at the end of each test program.
fn parse(said: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for line in said.lines() {
        let Some((name, verdict)) = line
            .strip_prefix("test ")
            .and_then(|l| l.rsplit_once(" ... "))
        else {
            continue;
        };
        match verdict {
            "ok" => outcome.passed += 1,
            "FAILED" => outcome.fail(name),
            _ => outcome.skipped += 1,
        }
    }
    let closing = said
        .lines()
        .filter_map(|line| line.strip_prefix("test result: "));
    let mut passed = 0;
    for line in closing {
        let number = line
            .split(". ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        passed += number.context("a closing line")?.parse::<usize>()?;
    }
    ensure!(
        passed == outcome.passed,
        "{passed} passed, not {}",
        outcome.passed
    );
    Ok(outcome)
}

const LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_add_up() {
        let said = "running 2 tests\ntest a::b ... ok\ntest c ... FAILED\n\n\
            test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured\n\
            running 2 tests\ntest src/lib.rs - (line 3) - compile ... ok\ntest d ... ignored, why\n\
            test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured\n";
        let outcome = parse(said).unwrap();
        assert_eq!(outcome.to_string(), "2 passed, 1 failed, 1 skipped");
        assert!(outcome.failing.contains("c"));
        assert!(parse(&said.replace("ok. 1 passed", "ok. 2 passed")).is_err());
    }
}
