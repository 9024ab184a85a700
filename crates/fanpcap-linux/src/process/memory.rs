//! How much memory the calling process may use: the limits of its cgroup and of the cgroups above
//! it (the kernel's admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).

use std::fs;
use std::path::Path;

/// The names of a cgroup hierarchy and of its files, in one version of cgroups.
struct Hierarchy {
    /// Directory below `/sys/fs/cgroup`.
    mount: &'static str,
    /// The text between the colons in a line of /proc/PID/cgroup.
    controller: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// The keys in `memory.stat` for memory that the kernel can write back and reclaim.
    cache: [&'static str; 2],
}

const HIERARCHIES: [Hierarchy; 2] = [
    Hierarchy {
        mount: "",
        controller: "",
        limit: "memory.max",
        usage: "memory.current",
        cache: ["inactive_file ", "active_file "],
    },
    Hierarchy {
        mount: "memory",
        controller: "memory",
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        cache: ["total_inactive_file ", "total_active_file "],
    },
];

/// In version 1 of cgroups, a limit this high means that there is no limit.
const NONE: u64 = 1 << 60;

/// The limit of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The limit in bytes.
    pub bytes: u64,
    /// Bytes that the cgroup's processes use, without the memory that the kernel can reclaim.
    pub used: u64,
}

impl Limit {
    /// Bytes that the cgroup may still use.
    pub fn left(self) -> u64 {
        self.bytes.saturating_sub(self.used)
    }
}

/// Returns the limits of the process's cgroup and of the cgroups above it. Leaves out limits that
/// can't be read. `root` is `/`, except in tests.
pub fn limits(root: &Path) -> Vec<Limit> {
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let in_hierarchy = |hierarchy: &Hierarchy| {
        let own = cgroups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let mut controllers = controllers.split(',');
            controllers
                .any(|it| it == hierarchy.controller)
                .then_some(path)
        });
        let mount = root.join("sys/fs/cgroup").join(hierarchy.mount);
        // In a container, the path may be that of the host, while the mount shows only the
        // container's cgroups. In this case, only the last of the path's ancestors exists: the root
        // of the mount.
        let below = own.map(|own| Path::new(own.trim_start_matches('/')));
        let levels = below.into_iter().flat_map(Path::ancestors);
        let limits = levels.filter_map(|level| hierarchy.limit_of(&mount.join(level)));
        limits.collect::<Vec<_>>()
    };
    HIERARCHIES.iter().flat_map(in_hierarchy).collect()
}

impl Hierarchy {
    fn limit_of(&self, cgroup: &Path) -> Option<Limit> {
        let text = |name| fs::read_to_string(cgroup.join(name)).ok();
        let number = |name| text(name)?.trim().parse().ok();
        let bytes = number(self.limit).filter(|&bytes| bytes < NONE)?;
        let stat = text("memory.stat").unwrap_or_default();
        let cached = |line: &str| {
            let bytes = self.cache.iter().find_map(|key| line.strip_prefix(key))?;
            bytes.parse::<u64>().ok()
        };
        let cache: u64 = stat.lines().filter_map(cached).sum();
        let used: u64 = number(self.usage).unwrap_or(0);
        Some(Limit {
            bytes,
            used: used.saturating_sub(cache),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits_of(files: &[(&str, &str)]) -> Vec<Limit> {
        let name = format!("fanpcap-memory-{:?}", std::thread::current().id());
        let root = std::env::temp_dir().join(name);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = limits(&root);
        let _ = fs::remove_dir_all(&root);
        found
    }

    fn unused(bytes: u64) -> Limit {
        Limit { bytes, used: 0 }
    }

    #[test]
    fn a_cgroup_and_those_above_it_have_limits() {
        let cgroup = ("proc/self/cgroup", "0::/kube/pod\n");
        let pod = ("sys/fs/cgroup/kube/pod/memory.max", "max\n");
        let above = ("sys/fs/cgroup/kube/memory.max", "134217728\n");
        assert_eq!(limits_of(&[cgroup, pod, above]), [unused(134_217_728)]);
        let pod = (pod.0, "1000000\n");
        let both = [unused(1_000_000), unused(134_217_728)];
        assert_eq!(limits_of(&[cgroup, pod, above]), both);
        assert_eq!(limits_of(&[cgroup]), []);
        assert_eq!(limits_of(&[]), []);
    }

    #[test]
    fn what_others_use_is_not_left_but_for_what_the_kernel_can_take_away() {
        let files = [
            ("proc/self/cgroup", "0::/pod\n"),
            ("sys/fs/cgroup/pod/memory.max", "1000000\n"),
            ("sys/fs/cgroup/pod/memory.current", "700000\n"),
            (
                "sys/fs/cgroup/pod/memory.stat",
                "anon 500000\ninactive_file 150000\nactive_file 50000\n",
            ),
        ];
        let found = limits_of(&files);
        let used = 500_000;
        assert_eq!(
            found,
            [Limit {
                bytes: 1_000_000,
                used
            }]
        );
        assert_eq!(found[0].left(), 500_000);
    }

    #[test]
    fn version_1_is_read_also_where_the_path_is_the_hosts() {
        let cgroup = ("proc/self/cgroup", "4:memory:/docker/abc\n1:cpu:/\n0::/\n");
        let own = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
        let usage = ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
        let stat = (
            "sys/fs/cgroup/memory/memory.stat",
            "total_inactive_file 1000\n",
        );
        let found = limits_of(&[cgroup, own, usage, stat]);
        let bytes = 67_108_864;
        assert_eq!(found, [Limit { bytes, used: 4000 }]);
        let none = (own.0, "9223372036854771712\n");
        assert_eq!(limits_of(&[cgroup, none]), []);
    }
}
