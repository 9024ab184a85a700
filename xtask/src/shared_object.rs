//! Reads a shared object's dynamic symbols and dynamic section with readelf.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::tree;

/// A symbol that the object exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbol {
    /// FUNC, OBJECT ...
    pub(crate) kind: String,
    /// GLOBAL, WEAK ...
    pub(crate) binding: String,
    /// Size in bytes. The size of data matters, because applications may copy data.
    pub(crate) size: u64,
    /// The symbol's version, if it has one.
    pub(crate) version: Option<String>,
}

/// The parts of a shared object that the loader uses.
#[derive(Debug)]
pub(crate) struct SharedObject {
    /// Exported symbols by name.
    pub(crate) exports: BTreeMap<String, Symbol>,
    /// Entries of the dynamic section: tag and value.
    pub(crate) dynamic: Vec<(String, String)>,
    /// Symbols of functions and data that the object refers to through slots. The loader may bind a
    /// slot to another object.
    pub(crate) references: Vec<String>,
}

impl SharedObject {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let readelf = |what: &str| {
            let mut command = Command::new("readelf");
            command.env("LC_ALL", "C").args(["--wide", what]).arg(path);
            tree::output(&mut command).with_context(|| format!("reading {}", path.display()))
        };
        let [symbols, dynamic, relocations] = [
            readelf("--dyn-syms")?,
            readelf("--dynamic")?,
            readelf("--relocs")?,
        ];
        Ok(Self {
            exports: symbols.lines().filter_map(export).collect(),
            dynamic: dynamic.lines().filter_map(dynamic_entry).collect(),
            references: relocations.lines().filter_map(reference).collect(),
        })
    }
}

/// Parses `  Num: Value Size Type Bind Vis Ndx Name` of a symbol that is defined and visible.
fn export(line: &str) -> Option<(String, Symbol)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [number, _, size, kind, binding, visibility, index, name, ..] = fields[..] else {
        return None;
    };
    let visible = matches!(visibility, "DEFAULT" | "PROTECTED");
    if !number.ends_with(':') || index == "UND" || binding == "LOCAL" || !visible {
        return None;
    }
    let (name, version) = match name.split_once('@') {
        Some((name, version)) => (name, Some(version.trim_start_matches('@').to_owned())),
        None => (name, None),
    };
    let size = size.strip_prefix("0x").map_or_else(
        || size.parse().ok(),
        |digits| u64::from_str_radix(digits, 16).ok(),
    )?;
    let symbol = Symbol {
        kind: kind.to_owned(),
        binding: binding.to_owned(),
        size,
        version,
    };
    Some((name.to_owned(), symbol))
}

/// Parses `0000000000089d70  0000000100000006 R_X86_64_GLOB_DAT  0000000000000000 free@GLIBC_2.2.5
/// + 0`.
fn reference(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, _, kind, _, name, ..] = fields[..] else {
        return None;
    };
    let name = name.split('@').next()?;
    kind.starts_with("R_").then(|| name.to_owned())
}

/// Parses ` 0x0...1 (NEEDED)  Shared library: [libc.so.6]`: NEEDED and libc.so.6.
fn dynamic_entry(line: &str) -> Option<(String, String)> {
    let (tag, value) = line
        .trim()
        .strip_prefix("0x")?
        .split_once('(')?
        .1
        .split_once(')')?;
    let value = value.trim();
    let inner = value
        .split_once('[')
        .and_then(|(_, rest)| rest.strip_suffix(']'));
    Some((tag.to_owned(), inner.unwrap_or(value).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_line_is_read() {
        let line = "   167: 000000000004b1c0   208 OBJECT  GLOBAL DEFAULT   25 eproto_db";
        let (name, symbol) = export(line).unwrap();
        assert_eq!(
            (name.as_str(), symbol.kind.as_str(), symbol.size),
            ("eproto_db", "OBJECT", 208)
        );
        assert_eq!(symbol.version, None);
        assert_eq!(
            export("     1: 0 0 FUNC GLOBAL DEFAULT  UND free@GLIBC_2.2.5 (4)"),
            None
        );
        assert_eq!(
            export("   Num:    Value  Size Type Bind Vis Ndx Name"),
            None
        );
    }

    #[test]
    fn a_relocation_line_is_read() {
        let line =
            "000000089d70  000100000006 R_X86_64_GLOB_DAT 0000000000000000 free@GLIBC_2.2.5 + 0";
        assert_eq!(reference(line).as_deref(), Some("free"));
        assert_eq!(
            reference("000000087b20  000000000008 R_X86_64_RELATIVE 8cb0"),
            None
        );
    }

    #[test]
    fn a_dynamic_line_is_read() {
        let line = " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]";
        assert_eq!(
            dynamic_entry(line),
            Some(("NEEDED".into(), "libc.so.6".into()))
        );
        let flags = " 0x000000006ffffffb (FLAGS_1)            Flags: NOW NODELETE";
        assert_eq!(
            dynamic_entry(flags),
            Some(("FLAGS_1".into(), "Flags: NOW NODELETE".into()))
        );
    }
}
