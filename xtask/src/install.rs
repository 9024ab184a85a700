//! Installs the staged files: library, command, header, manual pages, completions, pkg-config file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{stage, tree, uninstall};

/// The directories of the documents for users, and their places below the installed documents.
const DOCUMENTS: [(&str, &str); 3] = [
    ("docs", ""),
    ("docs/decisions", "/decisions"),
    ("docs/pictures", "/pictures"),
];

/// Directories below a prefix that differ between distributions.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The directory of libraries. Our library has a subdirectory in it.
    pub(crate) libraries: String,
    /// zsh's completions.
    pub(crate) zsh: &'static str,
    /// The user guide and the examples.
    pub(crate) documents: &'static str,
}

impl Layout {
    /// The usual layout below /usr/local.
    fn local() -> Self {
        Self {
            libraries: "lib".to_owned(),
            zsh: "share/zsh/site-functions",
            documents: "share/doc/fanpcap",
        }
    }

    /// Our library's own directory. The loader does not search it, so a user must name it.
    pub(crate) fn own(&self) -> String {
        format!("{}/fanpcap", self.libraries)
    }
}

/// Installs below `prefix`. If DESTDIR is set, `prefix` is below the directory that DESTDIR names.
pub(crate) fn run(prefix: &str) -> Result<()> {
    let target = tree::destination(prefix)?;
    let layout = Layout::local();
    let mut plan = plan(prefix, &layout)?;
    plan.extend(plugin()?);
    uninstall::record(&target, &paths(&plan))?;
    place(&target, &plan)?;
    println!("installed in {}:", target.display());
    let is_page = |path: &&str| path.starts_with(PAGES);
    let (pages, others): (Vec<&str>, Vec<&str>) =
        plan.iter().map(|(_, to)| to.as_str()).partition(is_page);
    for path in others {
        println!("  {path}");
    }
    println!("  {PAGES} ({} manual pages)", pages.len());
    println!("To share an interface among several copies of a program, start them like this:");
    println!("  {prefix}/bin/fanpcap run -n 2 -- tcpdump -ni eth0");
    println!(
        "  LD_LIBRARY_PATH={prefix}/{} PCAP_GROUP=5 tcpdump -ni eth0",
        layout.own()
    );
    println!("To load the library in every program of this machine (settings: /etc/pcap.conf):");
    println!("  {prefix}/bin/fanpcap enable --system");
    Ok(())
}

/// Installs all files below `target`, which is `prefix` itself or, for a packager, `prefix` below
/// DESTDIR.
pub(crate) fn place_all(target: &Path, prefix: &str, layout: &Layout) -> Result<()> {
    place(target, &plan(prefix, layout)?)
}

/// Origin of a file.
#[derive(Debug)]
enum Source {
    /// A copy of this file.
    File(PathBuf),
    /// A copy of the library, and links with its other names.
    Library(PathBuf),
    Text(String),
}

/// Directory of the manual pages below a prefix.
const PAGES: &str = "share/man";

/// The plugin for DPDK, below a prefix. The command looks for it there.
pub(crate) const PLUGIN: &str = "libexec/fanpcap/fanpcap-dpdk.so";

/// Every file, with its path below the prefix.
type Plan = Vec<(Source, String)>;

fn plan(prefix: &str, layout: &Layout) -> Result<Plan> {
    let (staged, root) = (tree::staged()?, tree::root()?);
    let own = layout.own();
    let header = format!("include/{}", stage::HEADER);
    let examples = format!("{}/examples", layout.documents);
    let mut files = vec![
        (
            staged.join("bin").join(stage::COMMAND),
            "bin/fanpcap".into(),
        ),
        (staged.join("include").join(stage::HEADER), header),
        (
            root.join("packaging/apparmor/fanpcap"),
            "share/fanpcap/apparmor".into(),
        ),
    ];
    // These programs exist only after `make all`.
    let further = [stage::BENCH, stage::CLUSTER]
        .map(|it| (staged.join("libexec").join(it), format!("libexec/{it}")));
    files.extend(further.into_iter().filter(|(from, _)| from.exists()));
    // The documents link to each other, to the decisions and to the pictures.
    for (dir, to) in DOCUMENTS {
        let mut found = all_of(&root.join(dir), &format!("{}{to}", layout.documents))?;
        found.retain(|(from, _)| from.is_file());
        files.extend(found);
    }
    files.extend(all_of(&root.join("packaging/examples"), &examples)?);
    for dir in [
        root.join("docs/man"),
        staged.join("share/man/man1"),
        staged.join("share/man/man7"),
    ] {
        files.extend(pages(&dir)?);
    }
    files.extend(completions(&root.join("packaging/completions"), layout));
    let library = staged.join("lib").join(stage::LIBRARY);
    let pkg_config = Source::Text(pkg_config(prefix, &own)?);
    let mut plan = vec![
        (
            Source::Library(library),
            format!("{own}/{}", stage::LIBRARY),
        ),
        (
            pkg_config,
            format!("{}/pkgconfig/fanpcap.pc", layout.libraries),
        ),
    ];
    plan.extend(files.into_iter().map(|(from, to)| (Source::File(from), to)));
    Ok(plan)
}

/// The plugin for DPDK, after `make dpdk`. It has a Debian package of its own.
fn plugin() -> Result<Option<(Source, String)>> {
    let from = tree::staged()?.join(PLUGIN);
    let is_built = from.exists();
    Ok(is_built.then(|| (Source::File(from), PLUGIN.to_owned())))
}

fn place(target: &Path, plan: &Plan) -> Result<()> {
    for (source, to) in plan {
        let to = target.join(to);
        match source {
            Source::File(from) => stage::place(from, &to)?,
            Source::Text(text) => stage::place_text(text, &to)?,
            Source::Library(from) => {
                stage::place_library(from, to.parent().context("a directory")?)?;
            }
        }
    }
    Ok(())
}

/// The paths of all files and links, below the prefix.
fn paths(plan: &Plan) -> Vec<String> {
    let mut paths = Vec::new();
    for (source, to) in plan {
        if let (Source::Library(_), Some((dir, _))) = (source, to.rsplit_once('/')) {
            paths.extend(stage::LINKS.map(|link| format!("{dir}/{link}")));
        }
        paths.push(to.clone());
    }
    paths
}

/// Every file of a directory, with its path below the prefix.
fn all_of(dir: &Path, to: &str) -> Result<Vec<(PathBuf, String)>> {
    let place = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry?.path();
        let to = format!("{to}/{}", name(&path)?);
        Ok((path, to))
    };
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut files = entries.map(place).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

fn name(path: &Path) -> Result<&str> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.with_context(|| format!("the name of {} is not UTF-8", path.display()))
}

fn pkg_config(prefix: &str, own: &str) -> Result<String> {
    let text = tree::read(&tree::root()?.join("packaging/pkgconfig/fanpcap.pc.in"))?;
    Ok(text
        .replace("@PREFIX@", prefix)
        .replace("@LIBRARIES@", own)
        .replace("@VERSION@", env!("CARGO_PKG_VERSION")))
}

/// The manual pages of a directory. NAME.SECTION is installed as man<first digit of
/// SECTION>/NAME.SECTION.
fn pages(dir: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut pages = all_of(dir, "")?;
    pages.retain_mut(|(path, to)| {
        let section = path.extension().and_then(|it| it.to_str()?.chars().next());
        let section = section.filter(char::is_ascii_digit);
        *to = section.map_or_else(String::new, |section| format!("{PAGES}/man{section}{to}"));
        section.is_some()
    });
    Ok(pages)
}

fn completions(scripts: &Path, layout: &Layout) -> [(PathBuf, String); 3] {
    [
        (
            "bash",
            "share/bash-completion/completions/fanpcap".to_owned(),
        ),
        ("zsh", format!("{}/_fanpcap", layout.zsh)),
        (
            "fish",
            "share/fish/vendor_completions.d/fanpcap.fish".to_owned(),
        ),
    ]
    .map(|(shell, to)| (scripts.join(format!("fanpcap.{shell}")), to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pkg_config_file_has_no_place_left_open() {
        let text = pkg_config("/usr", "lib/fanpcap").unwrap();
        assert!(text.contains("\nprefix=/usr\n"), "{text}");
        assert!(text.contains("\nlibdir=${prefix}/lib/fanpcap\n"), "{text}");
        assert!(!text.contains('@'), "{text}");
    }
}
