//! Installs what was staged: library, command, header, manual pages, completions, pkg-config file.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};

use crate::{stage, tree};

/// What users read of docs, beside the manual pages.
const DOCUMENTS: [&str; 8] = [
    "guide.md",
    "peers.md",
    "benchmarks.md",
    "programs.md",
    "steering.md",
    "top-json.md",
    "config-json.md",
    "errors.md",
];

/// Where things go below a prefix, which differs between distributions.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The directory of libraries, without ours in it.
    pub(crate) libraries: String,
    /// zsh's completions.
    pub(crate) zsh: &'static str,
    /// The user guide and the examples.
    pub(crate) documents: &'static str,
}

impl Layout {
    /// The usual one below /usr/local.
    fn local() -> Self {
        Self {
            libraries: "lib".to_owned(),
            zsh: "share/zsh/site-functions",
            documents: "share/doc/fanpcap",
        }
    }

    /// Our library's own directory: only those find it who name it.
    pub(crate) fn own(&self) -> String {
        format!("{}/fanpcap", self.libraries)
    }
}

/// Installs below `prefix`, inside the directory that DESTDIR names, if any.
pub(crate) fn run(prefix: &str) -> Result<()> {
    ensure!(
        prefix.starts_with('/'),
        "PREFIX must be an absolute path, not {prefix:?}"
    );
    let target = below(&env::var("DESTDIR").unwrap_or_default(), prefix);
    let layout = Layout::local();
    let installed = place_all(&target, prefix, &layout)?;
    println!("installed in {}:", target.display());
    for path in installed {
        println!("  {path}");
    }
    println!("Programs share an interface, each its part, when started like this:");
    println!("  {prefix}/bin/fanpcap run -n 2 -- tcpdump -ni eth0");
    println!(
        "  LD_LIBRARY_PATH={prefix}/{} PCAP_GROUP=5 tcpdump -ni eth0",
        layout.own()
    );
    println!("For every program of this machine, with settings in /etc/pcap.conf:");
    println!("  {prefix}/bin/fanpcap enable --system");
    Ok(())
}

/// Puts everything below `target`, which will be `prefix`; says what, relative to it.
pub(crate) fn place_all(target: &Path, prefix: &str, layout: &Layout) -> Result<Vec<String>> {
    let (staged, root) = (tree::staged()?, tree::root()?);
    let own = layout.own();
    stage::place_library(&staged.join("lib").join(stage::LIBRARY), &target.join(&own))?;
    let files = [
        (
            staged.join("bin").join(stage::COMMAND),
            "bin/fanpcap".to_owned(),
        ),
        (
            staged.join("include").join(stage::HEADER),
            format!("include/{}", stage::HEADER),
        ),
        (
            root.join("packaging/apparmor/fanpcap"),
            "share/fanpcap/apparmor".to_owned(),
        ),
    ];
    let documents = DOCUMENTS.iter().map(|name| {
        let to = format!("{}/{name}", layout.documents);
        (root.join("docs").join(name), to)
    });
    let examples = examples(&root.join("packaging/examples"), layout)?;
    let mut installed = vec![format!("{own}/{}", stage::LIBRARY)];
    for (from, to) in files.into_iter().chain(documents).chain(examples) {
        stage::place(&from, &target.join(&to))?;
        installed.push(to);
    }
    let pkgconfig = format!("{}/pkgconfig/fanpcap.pc", layout.libraries);
    stage::place_text(&pkg_config(prefix, &own)?, &target.join(&pkgconfig))?;
    installed.push(pkgconfig);
    let pages = install_pages(&root.join("docs/man"), &target.join("share/man"))?
        + install_pages(&staged.join("share/man/man1"), &target.join("share/man"))?
        + install_pages(&staged.join("share/man/man7"), &target.join("share/man"))?;
    installed.push(format!("share/man ({pages} manual pages)"));
    installed.extend(install_completions(&staged.join("share"), target, layout)?);
    Ok(installed)
}

/// A path below DESTDIR, which packagers set and which is no part of the installed paths.
fn below(destdir: &str, prefix: &str) -> PathBuf {
    match destdir {
        "" => PathBuf::from(prefix),
        _ => Path::new(destdir).join(prefix.trim_start_matches('/')),
    }
}

/// Every file in the directory of examples, with its place below the prefix.
fn examples(dir: &Path, layout: &Layout) -> Result<Vec<(PathBuf, String)>> {
    let place = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|name| anyhow!("{} is no text", name.to_string_lossy()))?;
        let to = format!("{}/examples/{name}", layout.documents);
        Ok((entry.path(), to))
    };
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    let mut files = entries.map(place).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

fn pkg_config(prefix: &str, own: &str) -> Result<String> {
    let path = tree::root()?.join("packaging/pkgconfig/fanpcap.pc.in");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    Ok(text
        .replace("@PREFIX@", prefix)
        .replace("@LIBRARIES@", own)
        .replace("@VERSION@", env!("CARGO_PKG_VERSION")))
}

/// NAME.SECTION goes to man<first letter of SECTION>/NAME.SECTION.
fn install_pages(dir: &Path, target: &Path) -> Result<usize> {
    let mut pages = 0;
    for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
        let path = entry?.path();
        let section = path
            .extension()
            .and_then(|section| section.to_str()?.chars().next());
        let Some(section) = section.filter(char::is_ascii_digit) else {
            continue;
        };
        let name = path.file_name().context("a page's name")?;
        stage::place(&path, &target.join(format!("man{section}")).join(name))?;
        pages += 1;
    }
    Ok(pages)
}

fn install_completions(share: &Path, target: &Path, layout: &Layout) -> Result<Vec<String>> {
    let completions = [
        (
            "bash-completion/completions/fanpcap",
            "share/bash-completion/completions/fanpcap".to_owned(),
        ),
        (
            "zsh/site-functions/_fanpcap",
            format!("{}/_fanpcap", layout.zsh),
        ),
        (
            "fish/vendor_completions.d/fanpcap.fish",
            "share/fish/vendor_completions.d/fanpcap.fish".to_owned(),
        ),
    ];
    let mut installed = Vec::new();
    for (from, to) in completions {
        stage::place(&share.join(from), &target.join(&to))?;
        installed.push(to);
    }
    Ok(installed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destdir_comes_before_an_absolute_prefix() {
        assert_eq!(below("", "/usr"), Path::new("/usr"));
        assert_eq!(below("/tmp/root", "/usr"), Path::new("/tmp/root/usr"));
    }

    #[test]
    fn the_pkg_config_file_has_no_place_left_open() {
        let text = pkg_config("/usr", "lib/fanpcap").unwrap();
        assert!(text.contains("\nprefix=/usr\n"), "{text}");
        assert!(text.contains("\nlibdir=${prefix}/lib/fanpcap\n"), "{text}");
        assert!(!text.contains('@'), "{text}");
    }
}
