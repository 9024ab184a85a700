//! The pictures of the README: a plot of the table in docs/benchmarks.md, and a screen of `fanpcap
//! top`.

mod plot;
mod scene;
mod screen;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Draws the plot from the table.
pub(crate) fn run() -> Result<()> {
    write("reader.svg", &plot::reader(&benchmarks()?)?)
}

/// Makes the scene, runs `fanpcap top` on it and draws the terminal. Needs root, tmux, tcpdump, p0f
/// and the staged library.
pub(crate) fn top() -> Result<()> {
    write("top.svg", &screen::svg(&scene::look()?))
}

fn write(name: &str, svg: &str) -> Result<()> {
    let path = directory().join(name);
    fs::write(&path, svg).with_context(|| format!("writing {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// A path below the root of the source tree.
fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn directory() -> PathBuf {
    source("docs/pictures")
}

fn benchmarks() -> Result<String> {
    let path = source("docs/benchmarks.md");
    fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
}

/// Escapes a text for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plot_is_of_the_table() {
        let drawn = plot::reader(&benchmarks().unwrap()).unwrap();
        let path = directory().join("reader.svg");
        let there = fs::read_to_string(path).unwrap();
        assert!(drawn == there, "run: cargo run -p fanpcap-demo -- pictures");
    }

    #[test]
    fn the_readmes_pictures_are_there() {
        let readme = fs::read_to_string(source("README.md")).unwrap();
        for name in ["top.svg", "reader.svg"] {
            assert!(
                readme.contains(&format!("(docs/pictures/{name})")),
                "{name}"
            );
            assert!(directory().join(name).exists(), "{name}");
        }
    }
}
