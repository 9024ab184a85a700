//! Derives package sources of another release from this machine's own package sources. Unpacks
//! packages without installing them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::tree;

/// A line of sources.list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) uri: String,
    pub(crate) suite: String,
    pub(crate) component: String,
}

impl Source {
    pub(crate) fn line(&self) -> String {
        format!("deb {} {} {}\n", self.uri, self.suite, self.component)
    }
}

/// The machine's own package sources, changed to another release of the same distribution. Empty on
/// a machine of another distribution.
pub(crate) fn sources(origin: &str, suite: &str) -> Result<Vec<Source>> {
    let format = "$(ORIGIN) $(RELEASE) $(COMPONENT) $(REPO_URI)";
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", format, "Created-By: Packages"]);
    let own =
        fs::read_to_string("/etc/os-release").context("reading this machine's distribution")?;
    let codename = own
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.context("no VERSION_CODENAME in /etc/os-release")?;
    Ok(rewritten(&tree::output(&mut apt)?, codename, origin, suite))
}

/// The distribution's components `main` and `universe` in apt's listing, with the name of the
/// release replaced by `suite`.
fn rewritten(listing: &str, codename: &str, origin: &str, suite: &str) -> Vec<Source> {
    let source = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let [its_origin, release, component, uri] = words[..] else {
            return None;
        };
        let pocket = release.strip_prefix(codename)?;
        let wanted = component == "main" || component == "universe";
        (its_origin == origin && wanted).then(|| Source {
            uri: uri.to_owned(),
            suite: format!("{suite}{pocket}"),
            component: component.to_owned(),
        })
    };
    let mut sources: Vec<Source> = Vec::new();
    for found in listing.lines().filter_map(source) {
        if !sources.contains(&found) {
            sources.push(found);
        }
    }
    sources
}

/// The Debian packages in a directory.
pub(crate) fn packages(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Unpacks the packages in a directory, and removes them.
pub(crate) fn unpack(directory: &Path, to: &Path) -> Result<()> {
    for package in packages(directory)? {
        tree::output(Command::new("dpkg-deb").arg("-x").arg(&package).arg(to))?;
        fs::remove_file(package)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_sources_serve_another_release() {
        let listing = "Debian bookworm main http://m/debian/\n\
                       Debian bookworm main http://m/debian/\n\
                       Debian bookworm-security main http://m/security/\n\
                       Debian bookworm contrib http://m/debian/\n\
                       Other bookworm main http://other/\n";
        let lines: String = rewritten(listing, "bookworm", "Debian", "trixie")
            .iter()
            .map(Source::line)
            .collect();
        assert_eq!(
            lines,
            "deb http://m/debian/ trixie main\ndeb http://m/security/ trixie-security main\n"
        );
    }
}
