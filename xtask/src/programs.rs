//! The test programs that cargo builds: the package of each program, and how to start it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::tree;

/// A built test program: the tests of a library or executable, or one of a package's `tests`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) package: String,
    /// The target's name.
    pub(crate) name: String,
    path: PathBuf,
    /// The directory of the package, where cargo would start it.
    dir: PathBuf,
}

impl Program {
    /// The path of the executable.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The program's name in the results.
    pub(crate) fn label(&self) -> String {
        let package = self.package.trim_start_matches("fanpcap-");
        if self.name.replace('_', "-") == self.package {
            return package.to_owned();
        }
        format!("{package} {}", self.name)
    }
}

/// Builds test programs by `cargo test --no-run` with these arguments, and returns the programs.
pub(crate) fn build(arguments: &[&str]) -> Result<Vec<Program>> {
    let mut cargo = tree::cargo(&["test", "--no-run"])?;
    cargo.arg("--message-format=json-render-diagnostics");
    // The compiler's errors and warnings go to the terminal.
    cargo.args(arguments).stderr(Stdio::inherit());
    read(&tree::output(&mut cargo)?)
}

/// The test programs among cargo's messages, a line of JSON each.
fn read(messages: &str) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for line in messages.lines() {
        let said = || format!("cargo says {line}");
        let message: Value = serde_json::from_str(line).with_context(said)?;
        // Only the message of a built test program has an executable and this profile.
        let is_test = message["profile"]["test"] == true;
        let Some(path) = message["executable"].as_str().filter(|_| is_test) else {
            continue;
        };
        let text = |value: &Value| value.as_str().map(str::to_owned).with_context(said);
        let manifest = PathBuf::from(text(&message["manifest_path"])?);
        let id = text(&message["package_id"])?;
        programs.push(Program {
            package: package(&id).with_context(said)?.to_owned(),
            name: text(&message["target"]["name"])?,
            path: path.into(),
            dir: manifest.parent().with_context(said)?.to_owned(),
        });
    }
    Ok(programs)
}

/// The name in `path+file:///DIR#NAME@VERSION`, or in `path+file:///DIR/NAME#VERSION`.
fn package(id: &str) -> Option<&str> {
    let (place, rest) = id.rsplit_once('#')?;
    match rest.split_once('@') {
        Some((name, _)) => Some(name),
        None => place.rsplit('/').next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_found_among_all_that_cargo_built() {
        let messages = r##"{"reason":"compiler-artifact","package_id":"path+file:///s/crates/fanpcap-ring#0.1.0","manifest_path":"/s/crates/fanpcap-ring/Cargo.toml","target":{"name":"fanpcap_ring"},"profile":{"test":true},"executable":"/t/ring-1"}
{"reason":"compiler-artifact","package_id":"path+file:///s/tests/netns#fanpcap-netns@0.1.0","manifest_path":"/s/tests/netns/Cargo.toml","target":{"name":"suite"},"profile":{"test":true},"executable":"/t/suite-1"}
{"reason":"compiler-artifact","package_id":"path+file:///s/crates/fanpcap-cli#0.1.0","manifest_path":"/s/crates/fanpcap-cli/Cargo.toml","target":{"name":"fanpcap"},"profile":{"test":false},"executable":"/t/fanpcap"}
{"reason":"build-finished","success":true}"##;
        let programs = read(messages).unwrap();
        let labels: Vec<String> = programs.iter().map(Program::label).collect();
        assert_eq!(labels, ["ring", "netns suite"]);
        assert_eq!(programs[1].dir(), Path::new("/s/tests/netns"));
    }
}
