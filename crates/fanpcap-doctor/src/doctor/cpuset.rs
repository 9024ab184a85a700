//! The cpuset of a process: the CPUs that its cgroup allows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fanpcap_linux::process::cpu;

use super::finding::word;

/// A cpuset below the root of its hierarchy (cpuset(7), the kernel's admin-guide/cgroup-v2.rst).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cpuset {
    /// The cpuset's path in the hierarchy.
    pub(super) name: String,
    /// The file that sets the cpuset's CPUs.
    file: PathBuf,
    /// The CPUs that the cpuset's processes may run on.
    pub(super) cpus: Vec<usize>,
}

/// Where hierarchies with cpusets are mounted.
const MOUNTS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/cpuset"];
/// The file with the CPUs of a cpuset: in cgroup v2, v1, and v1 before Linux 3.17.
const EFFECTIVE: [&str; 3] = [
    "cpuset.cpus.effective",
    "cpuset.effective_cpus",
    "cpuset.cpus",
];

impl Cpuset {
    /// The cpuset of a process; `None` if the cpuset contains the whole machine, or is unknown.
    pub(super) fn of(root: &Path, pid: u32) -> Option<Self> {
        let name = fs::read_to_string(root.join(format!("proc/{pid}/cpuset"))).ok()?;
        let name = name.trim_end_matches('\n');
        // A process outside our cgroup namespace has a path with `..`, which no mount of ours has.
        let below = name
            .strip_prefix('/')
            .filter(|it| !it.is_empty() && !it.contains(".."))?;
        MOUNTS.iter().find_map(|mount| {
            let file = Path::new(mount).join(below).join("cpuset.cpus");
            let directory = root.join(mount).join(below);
            let read = |name| fs::read_to_string(directory.join(name)).ok();
            let cpus = cpu::list(EFFECTIVE.into_iter().find_map(read)?.trim())?;
            (!cpus.is_empty()).then(|| Self {
                name: name.to_owned(),
                file: Path::new("/").join(file),
                cpus,
            })
        })
    }

    /// The shell command that adds these CPUs to the cpuset. The command keeps the cpuset's present
    /// CPUs, which other processes need.
    pub(super) fn add(&self, cpus: &[usize]) -> String {
        let all: BTreeSet<usize> = self.cpus.iter().chain(cpus).copied().collect();
        let all: Vec<usize> = all.into_iter().collect();
        let file = word(&self.file.display().to_string());
        format!("echo {} > {file}", cpu::list_text(&all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;

    #[test]
    fn cpusets_of_both_versions_are_read_and_the_machines_is_none() {
        let scratch = Scratch::new().unwrap();
        let write = |path: &str, text: &str| {
            let path = scratch.file(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let of = |name: &str| {
            write("proc/7/cpuset", name);
            Cpuset::of(&scratch.file(""), 7)
        };
        write("sys/fs/cgroup/a b/cpuset.cpus.effective", "2-3\n");
        let found = of("/a b\n").unwrap();
        assert_eq!(
            (found.name.as_str(), &found.cpus[..]),
            ("/a b", &[2, 3][..])
        );
        assert_eq!(
            found.add(&[0, 3]),
            "echo 0,2-3 > '/sys/fs/cgroup/a b/cpuset.cpus'"
        );
        write("sys/fs/cgroup/cpuset/x/y/cpuset.effective_cpus", "5\n");
        let found = of("/x/y\n").unwrap();
        assert_eq!(
            found.add(&[1]),
            "echo 1,5 > /sys/fs/cgroup/cpuset/x/y/cpuset.cpus"
        );
        for none in ["/\n", "/../z\n", "/gone\n", ""] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }
}
