//! Files of sysfs and /proc that several parts read.

use std::fs;
use std::path::{Path, PathBuf};

use fanpcap_linux::netlink::link::Link;

/// The directory of a device in sysfs; `None` where that shows another network namespace.
pub(super) fn directory(root: &Path, link: &Link) -> Option<PathBuf> {
    let directory = root.join("sys/class/net").join(&link.name);
    let index = fs::read_to_string(directory.join("ifindex")).ok()?;
    (index.trim().parse() == Ok(link.index)).then_some(directory)
}

/// The kernel's version; zeros if it is not known.
pub(super) fn kernel(root: &Path) -> (u32, u32) {
    let text = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|it| it.parse().ok()).unwrap_or(0);
    (next(), next())
}

/// Whether irqbalance(1) runs.
pub(super) fn has_irqbalance(root: &Path) -> bool {
    let processes = fs::read_dir(root.join("proc"))
        .into_iter()
        .flatten()
        .flatten();
    let is_it = |path: PathBuf| fs::read(path.join("comm")).is_ok_and(|it| it == b"irqbalance\n");
    processes.into_iter().any(|it| is_it(it.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;

    #[test]
    fn the_kernels_version_and_irqbalance_are_read() {
        let scratch = Scratch::new().unwrap();
        let root = scratch.file("");
        assert_eq!((kernel(&root), has_irqbalance(&root)), ((0, 0), false));
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "6.1.0-56-amd64\n"),
            ("proc/77/comm", "irqbalance\n"),
        ] {
            let path = scratch.file(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert_eq!((kernel(&root), has_irqbalance(&root)), ((6, 1), true));
    }
}
