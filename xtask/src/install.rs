//! Installs what was staged: library, header, manual pages.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::{stage, tree};

/// Installs below `prefix`, inside the directory that DESTDIR names, if any.
pub(crate) fn run(prefix: &str) -> Result<()> {
    ensure!(
        prefix.starts_with('/'),
        "PREFIX must be an absolute path, not {prefix:?}"
    );
    let target = below(&env::var("DESTDIR").unwrap_or_default(), prefix);
    let (staged, libraries) = (tree::staged()?, target.join("lib/fanpcap"));
    stage::place_library(&staged.join("lib").join(stage::LIBRARY), &libraries)?;
    let header = staged.join("include").join(stage::HEADER);
    stage::place(&header, &target.join("include").join(stage::HEADER))?;
    let pages = install_pages(&target.join("share/man"))?;
    println!("installed: {}/{}", libraries.display(), stage::LIBRARY);
    println!(
        "           {}",
        target.join("include").join(stage::HEADER).display()
    );
    println!(
        "           {pages} manual pages in {}",
        target.join("share/man").display()
    );
    println!("Programs share an interface, each its part, when started like this:");
    println!("  LD_LIBRARY_PATH={prefix}/lib/fanpcap PCAP_GROUP=5 tcpdump -ni eth0");
    println!("For every program of this machine, with settings in /etc/pcap.conf:");
    println!("  echo {prefix}/lib/fanpcap >/etc/ld.so.conf.d/00-fanpcap.conf && ldconfig");
    Ok(())
}

/// A path below DESTDIR, which packagers set and which is no part of the installed paths.
fn below(destdir: &str, prefix: &str) -> PathBuf {
    match destdir {
        "" => PathBuf::from(prefix),
        _ => Path::new(destdir).join(prefix.trim_start_matches('/')),
    }
}

/// docs/man/NAME.SECTION goes to man<first letter of SECTION>/NAME.SECTION.
fn install_pages(target: &Path) -> Result<usize> {
    let dir = tree::root()?.join("docs/man");
    let mut pages = 0;
    for entry in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destdir_comes_before_an_absolute_prefix() {
        assert_eq!(below("", "/usr"), Path::new("/usr"));
        assert_eq!(below("/tmp/root", "/usr"), Path::new("/tmp/root/usr"));
    }
}
