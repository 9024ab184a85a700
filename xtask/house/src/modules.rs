//! The modules of one crate: the order of their declarations, and the code of each.

use std::fs;
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context, Result};
use syn::{Attribute, Item};

/// A module that has a file of its own.
pub(crate) struct Module {
    /// The module's names below the crate. Empty for the crate's root.
    pub(crate) path: Vec<String>,
    /// The places of its ancestors, then its own place. A place is the module's number in the order
    /// of its parent's declarations.
    pub(crate) place: Vec<usize>,
    pub(crate) code: syn::File,
}

/// The modules of a crate, the root first.
pub(crate) struct Tree(pub(crate) Vec<Module>);

impl Tree {
    /// Reads the root file of a crate and all modules below it, but no modules of tests.
    pub(crate) fn read(entry: &Path) -> Result<Self> {
        let mut tree = Self(Vec::new());
        let folder = entry.parent().context("a root file's folder")?;
        tree.add(entry, folder, Vec::new(), Vec::new())?;
        Ok(tree)
    }

    fn add(
        &mut self,
        file: &Path,
        folder: &Path,
        path: Vec<String>,
        place: Vec<usize>,
    ) -> Result<()> {
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let code = syn::parse_file(&text).with_context(|| format!("in {}", file.display()))?;
        let children: Vec<String> = code.items.iter().filter_map(declared).collect();
        self.0.push(Module {
            path: path.clone(),
            place: place.clone(),
            code,
        });
        for (order, name) in children.into_iter().enumerate() {
            let below = |names: &[String], name: &String| [names, slice::from_ref(name)].concat();
            let places = [place.as_slice(), &[order]].concat();
            self.add(
                &found(folder, &name),
                &folder.join(&name),
                below(&path, &name),
                places,
            )?;
        }
        Ok(())
    }

    /// The module to which a path of names leads, or the last module on the path if the rest names
    /// items.
    pub(crate) fn deepest(&self, names: &[String]) -> &Module {
        let on_the_way = self
            .0
            .iter()
            .filter(|module| names.starts_with(&module.path));
        on_the_way
            .max_by_key(|module| module.path.len())
            .unwrap_or(&self.0[0])
    }
}

/// The name of the module, if this item declares a module in a file of its own in this crate.
fn declared(item: &Item) -> Option<String> {
    let Item::Mod(module) = item else {
        return None;
    };
    let is_elsewhere = module.attrs.iter().any(|it| it.path().is_ident("path"));
    let has_file = module.content.is_none() && !is_test(&module.attrs);
    (has_file && !is_elsewhere).then(|| module.ident.to_string())
}

fn found(folder: &Path, name: &str) -> PathBuf {
    let flat = folder.join(format!("{name}.rs"));
    if flat.exists() {
        flat
    } else {
        folder.join(name).join("mod.rs")
    }
}

/// Whether an item is compiled for tests only.
pub(crate) fn is_test(attributes: &[Attribute]) -> bool {
    let mut lists = attributes
        .iter()
        .filter_map(|attribute| attribute.meta.require_list().ok());
    lists.any(|list| list.path.is_ident("cfg") && list.tokens.to_string() == "test")
}
