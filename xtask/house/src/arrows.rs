//! Finds the modules that a module's code names. An arrow is such a use: it goes from the module
//! that uses to the module that is used. Finds the arrows to modules that are declared later
//! (backward arrows).

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemMod, Macro, UseTree};

use super::modules::{Module, Tree, is_test};

/// The arrows to a module that is declared after the module that uses it, as `a::b -> c`. Arrows
/// between a module and its descendants are allowed in both directions.
pub(crate) fn backward(tree: &Tree) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for module in &tree.0 {
        for names in named(module) {
            let used = tree.deepest(&names);
            if is_later(&module.place, &used.place) {
                let [from, to] = [module, used].map(|module| module.path.join("::"));
                found.insert(format!("{from} -> {to}"));
            }
        }
    }
    found
}

/// Whether the module at `used` is declared after the module at `place`, where their paths diverge.
fn is_later(place: &[usize], used: &[usize]) -> bool {
    let parting = place.iter().zip(used).find(|(own, other)| own != other);
    parting.is_some_and(|(own, other)| other > own)
}

/// The paths that a module's code names, each from the crate's root on.
fn named(module: &Module) -> Vec<Vec<String>> {
    let mut names = Names {
        scope: module.path.clone(),
        found: Vec::new(),
    };
    names.visit_file(&module.code);
    names.found
}

struct Names {
    /// The path of the module that is visited now; it may be an inline module.
    scope: Vec<String>,
    found: Vec<Vec<String>>,
}

impl Names {
    /// Adds a path from the source to the found paths, if the path leads to another module.
    fn keep(&mut self, written: &[String]) {
        let ups = written.iter().take_while(|name| *name == "super").count();
        match written.first().map(String::as_str) {
            Some("crate") => self.found.push(written[1..].to_vec()),
            Some("super") if ups <= self.scope.len() => {
                let above = &self.scope[..self.scope.len() - ups];
                self.found.push([above, &written[ups..]].concat());
            }
            _ => {}
        }
    }

    fn keep_tree(&mut self, before: &[String], tree: &UseTree) {
        let joined = |name: String| [before, &[name]].concat();
        match tree {
            UseTree::Path(path) => self.keep_tree(&joined(path.ident.to_string()), &path.tree),
            UseTree::Name(name) => self.keep(&joined(name.ident.to_string())),
            UseTree::Rename(rename) => self.keep(&joined(rename.ident.to_string())),
            UseTree::Group(group) => {
                group
                    .items
                    .iter()
                    .for_each(|item| self.keep_tree(before, item));
            }
            UseTree::Glob(_) => self.keep(before),
        }
    }

    /// Adds the paths in a macro's arguments. The arguments are tokens; a sequence of names with
    /// two colons between them is a path.
    fn keep_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.keep(&std::mem::take(&mut path));
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Group(group) => self.keep_tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {
                    self.keep(&std::mem::take(&mut path));
                }
            }
        }
        self.keep(&path);
    }
}

impl<'a> Visit<'a> for Names {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        self.scope.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.scope.pop();
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.keep_tree(&[], &item.tree);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        self.keep(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        self.keep_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "syn may add kinds of items")]
fn attributes(item: &Item) -> &[syn::Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Const(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths that a source text names if it is the text of the module `b::own`.
    fn named_in(text: &str) -> Vec<String> {
        let module = Module {
            path: vec!["b".to_owned(), "own".to_owned()],
            place: vec![1, 0],
            code: syn::parse_file(text).unwrap(),
        };
        named(&module)
            .iter()
            .map(|names| names.join("::"))
            .collect()
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        assert_eq!(
            named_in("use crate::c::{D, e::F as G, h::*};"),
            ["c::D", "c::e::F", "c::h"]
        );
        assert_eq!(
            named_in("use super::other; use super::super::a;"),
            ["b::other", "a"]
        );
        assert_eq!(
            named_in("fn f(x: crate::c::D) { super::g(); }"),
            ["c::D", "b::g"]
        );
        assert_eq!(
            named_in("fn f() { println!(\"{}\", crate::c::D); }"),
            ["c::D"]
        );
        assert_eq!(named_in("mod inner { use super::x; }"), ["b::own::x"]);
        assert!(named_in("use std::fmt; #[cfg(test)] mod tests { use crate::c; }").is_empty());
    }

    #[test]
    fn an_arrow_goes_backward_where_the_ways_part() {
        assert!(is_later(&[0], &[1]) && is_later(&[0, 5], &[1, 2]));
        assert!(!is_later(&[1], &[0]) && !is_later(&[1, 0], &[1]) && !is_later(&[1], &[1, 3]));
    }
}
