//! Collects the licences of the linked crates: copyright notices and texts, each text once.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::tree;

/// Beginnings of the names of files with licences and notices.
const FILES: [&str; 5] = ["LICEN", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];

/// A crate of another project.
#[derive(Debug)]
struct Crate {
    /// Name and version, `libc 0.2.1`.
    name: String,
    license: String,
    authors: String,
    directory: PathBuf,
}

/// The texts in the form of Debian's copyright files: a paragraph for each, with its crates.
/// `crates` are the names and versions of the linked crates, such as `libc 0.2.1`.
pub(super) fn paragraphs(crates: &[String]) -> Result<String> {
    let packages = packages()?;
    let mut texts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in crates {
        let package = packages.iter().find(|package| package.name == *name);
        let package = package.with_context(|| format!("cargo metadata has no {name}"))?;
        for text in package.texts()? {
            texts.entry(text).or_default().push(name);
        }
    }
    let mut texts: Vec<(Vec<&str>, String)> = texts.into_iter().map(|(t, c)| (c, t)).collect();
    texts.sort();
    let numbered = (1..).zip(&texts);
    let paragraphs = numbered.map(|(number, (crates, text))| paragraph(number, crates, text));
    Ok(paragraphs.collect::<Vec<_>>().join("\n\n"))
}

/// The packages that cargo lists for the architecture of the build.
fn packages() -> Result<Vec<Crate>> {
    let rustc = tree::output(Command::new("rustc").arg("-vV"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: "));
    let host = tree::foreign().or_else(|| host.map(str::to_owned));
    let host = host.context("rustc -vV names no host")?;
    let mut cargo = tree::cargo(&["metadata", "--format-version", "1", "--filter-platform"])?;
    let metadata: Value = serde_json::from_str(&tree::output(cargo.arg(host))?)?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    packages.iter().map(Crate::of).collect()
}

impl Crate {
    /// A crate from its entry in the output of `cargo metadata`.
    fn of(package: &Value) -> Result<Self> {
        let of = || format!("cargo metadata says {package}");
        let text = |name: &str| package[name].as_str().with_context(of);
        let authors = package["authors"].as_array().with_context(of)?;
        let authors: Vec<&str> = authors.iter().filter_map(Value::as_str).collect();
        Ok(Self {
            name: format!("{} {}", text("name")?, text("version")?),
            license: package["license"].as_str().unwrap_or_default().to_owned(),
            authors: authors.join(", "),
            directory: Path::new(text("manifest_path")?).with_file_name(""),
        })
    }

    /// The texts that the licence requires us to distribute. If there are alternative licences, MIT
    /// is preferred.
    fn texts(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let directory = &self.directory;
        let reading = || format!("reading {}", directory.display());
        for entry in fs::read_dir(directory).with_context(reading)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let upper = name.to_uppercase();
            if entry.path().is_file() && FILES.iter().any(|begin| upper.starts_with(begin)) {
                names.push(name);
            }
        }
        names.sort();
        let choice = self.license.contains(" OR ") || self.license.contains('/');
        if choice && names.iter().any(|name| name.starts_with("LICENSE-MIT")) {
            let others = ["COPYRIGHT", "NOTICE", "LICENSE-MIT"];
            names.retain(|name| others.iter().any(|begin| name.starts_with(begin)));
        }
        if names.is_empty() {
            return Ok(vec![self.without_file()?]);
        }
        let read = |name: &String| {
            let text = fs::read(directory.join(name)).with_context(reading)?;
            let text = String::from_utf8_lossy(&text).replace('\r', "");
            Ok(text.trim().to_owned())
        };
        names.iter().map(read).collect()
    }

    /// The text for a crate without a licence file: its authors, and the terms of the MIT licence.
    /// Fails if the crate's manifest does not name this licence.
    fn without_file(&self) -> Result<String> {
        let mit = self.license.split(['/', ' ']).any(|word| word == "MIT");
        ensure!(
            mit && !self.authors.is_empty(),
            "{} ({}) has no licence file, and packaging/debian has no text for it",
            self.name,
            self.license
        );
        Ok(format!("Copyright (c) {}\n\n{}", self.authors, MIT.trim()))
    }
}

/// The MIT licence's terms (<https://spdx.org/licenses/MIT>).
const MIT: &str = include_str!("../../../packaging/debian/mit");

fn paragraph(number: usize, crates: &[&str], text: &str) -> String {
    let files: Vec<String> = crates
        .iter()
        .map(|name| format!("{}/*", name.replace(' ', "-")))
        .collect();
    let is_notice = |line: &&str| line.to_lowercase().starts_with("copyright ");
    let notices: Vec<&str> = text.lines().map(str::trim).filter(is_notice).collect();
    let holders = if notices.is_empty() {
        "see the licence".to_owned()
    } else {
        notices.join("\n ")
    };
    format!(
        "Files: {}\nCopyright: {holders}\nLicense: of-crates-{number}\n{}",
        files.join("\n "),
        indented(text)
    )
}

/// A text as the continuation of a field. Lines begin with a space; an empty line becomes a dot.
pub(super) fn indented(text: &str) -> String {
    let line = |line: &str| match line.trim_end() {
        "" => " .".to_owned(),
        line => format!(" {line}"),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paragraph_names_crates_and_holders() {
        let text = "The MIT License\n\nCopyright (c) 2014 A\n\nPermission";
        assert_eq!(
            paragraph(3, &["a 1.0.0", "b-c 2.1.0"], text),
            "Files: a-1.0.0/*\n b-c-2.1.0/*\nCopyright: Copyright (c) 2014 A\n\
             License: of-crates-3\n The MIT License\n .\n Copyright (c) 2014 A\n .\n Permission"
        );
    }

    #[test]
    fn a_crate_without_a_text_is_an_error_unless_its_terms_are_known() {
        let mut package = Crate {
            name: "x 1.0.0".to_owned(),
            license: "MIT OR Apache-2.0".to_owned(),
            authors: "A".to_owned(),
            directory: tree::root().unwrap().join("xtask/src"),
        };
        let texts = package.texts().unwrap();
        assert!(texts[0].starts_with("Copyright (c) A\n\nPermission is hereby granted"));
        package.license = "Zlib".to_owned();
        package.texts().unwrap_err();
    }
}
