//! Reads the workspace's members in the order of Cargo.toml, and checks their dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

/// A member of the workspace.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Its folder below the root.
    folder: String,
    /// The root files of its library and its commands.
    pub(crate) entries: Vec<PathBuf>,
    /// Members that its code depends on.
    needs: Vec<String>,
    /// Further members that its tests depend on.
    tests_need: Vec<String>,
}

/// The members, in the order of Cargo.toml.
pub(crate) fn members() -> Result<Vec<Member>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()?;
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let metadata = cargo
        .current_dir(&root)
        .output()
        .context("cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&metadata.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().context("packages")?;
    let mut members = packages
        .iter()
        .map(|package| {
            let manifest = PathBuf::from(package["manifest_path"].as_str().context("a path")?);
            let folder = manifest
                .parent()
                .and_then(|dir| dir.strip_prefix(&root).ok());
            let folder = folder.context("a folder")?.to_string_lossy().into_owned();
            Ok(member(package, folder))
        })
        .collect::<Result<Vec<_>>>()?;
    let listed = fs::read_to_string(root.join("Cargo.toml")).context("reading Cargo.toml")?;
    members.sort_by_key(|member| listed.find(&format!("\"{}\"", member.folder)));
    Ok(members)
}

fn member(package: &Value, folder: String) -> Member {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = |key: &str| package[key].as_array().into_iter().flatten();
    let is_program = |target: &&Value| {
        let kinds = target["kind"].as_array().into_iter().flatten();
        kinds
            .filter_map(Value::as_str)
            .any(|kind| !["test", "bench", "example"].contains(&kind))
    };
    let needs = |is_dev: bool| {
        let dependencies = all("dependencies").filter(|dependency| dependency["path"].is_string());
        let chosen = dependencies.filter(|dependency| (dependency["kind"] == "dev") == is_dev);
        chosen.map(|dependency| text(&dependency["name"])).collect()
    };
    Member {
        name: text(&package["name"]),
        folder,
        entries: all("targets")
            .filter(is_program)
            .map(|target| text(&target["src_path"]).into())
            .collect(),
        needs: needs(false),
        tests_need: needs(true),
    }
}

/// The dependencies on members that Cargo.toml lists later (backward arrows). Code may have none.
/// Tests may depend on a later member, if that member does not depend on the tests' own member.
pub(crate) fn backward(members: &[Member]) -> BTreeSet<String> {
    let places = members.iter().enumerate();
    let places: BTreeMap<&str, usize> = places
        .map(|(place, member)| (member.name.as_str(), place))
        .collect();
    let mut found = BTreeSet::new();
    for (place, member) in members.iter().enumerate() {
        let name = &member.name;
        let later = member
            .needs
            .iter()
            .filter(|needed| places[needed.as_str()] >= place);
        found.extend(later.map(|needed| format!("{name} -> {needed}")));
        let is_circle = |needed: &&String| reaches(members, &places, needed, name);
        let circles = member.tests_need.iter().filter(is_circle);
        found.extend(circles.map(|needed| format!("{name} (tests) -> {needed}")));
    }
    found
}

/// The engines. Cargo.toml lists them between `fanpcap-engine` and `fanpcap-engines`.
fn engines(members: &[Member]) -> Vec<&str> {
    let names = members.iter().map(|member| member.name.as_str());
    let after = names.skip_while(|name| *name != "fanpcap-engine").skip(1);
    after
        .take_while(|name| *name != "fanpcap-engines")
        .collect()
}

/// The other crates that may depend on an engine: `fanpcap-engines`, which lists the engines, and
/// `fanpcap-clusterd`, because a cluster's selection runs at XDP. An engine may depend on another
/// engine, because members on every engine also have a packet socket.
const OF_AN_ENGINE: [&str; 2] = ["fanpcap-engines", "fanpcap-clusterd"];

/// Members whose code depends on an engine, although they serve every engine. Their tests may
/// depend on engines.
pub(crate) fn bound_to_an_engine(members: &[Member]) -> Vec<String> {
    let engines = engines(members);
    let may_name = |name: &str| engines.contains(&name) || OF_AN_ENGINE.contains(&name);
    let serve_all = members.iter().filter(|member| !may_name(&member.name));
    let named = serve_all.flat_map(|member| {
        let needs = member.needs.iter();
        let engines = needs.filter(|needed| engines.contains(&needed.as_str()));
        engines.map(|engine| format!("{} -> {engine}", member.name))
    });
    named.collect()
}

/// Whether the code of `from` depends on `to`, directly or through other members.
fn reaches(members: &[Member], places: &BTreeMap<&str, usize>, from: &str, to: &str) -> bool {
    from != to
        && members[places[from]]
            .needs
            .iter()
            .any(|next| next == to || reaches(members, places, next, to))
}
