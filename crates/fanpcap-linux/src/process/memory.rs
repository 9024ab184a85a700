//! How much memory the calling process may have: the limits of its cgroup and of those above it
//! (the kernel's admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst).

use std::fs;
use std::path::Path;

/// A hierarchy below `/sys/fs/cgroup`, what its line in /proc/PID/cgroup has between the colons,
/// and the file of its limit.
const HIERARCHIES: [(&str, &str, &str); 2] = [
    ("", "", "memory.max"),
    ("memory", "memory", "memory.limit_in_bytes"),
];

/// In version 1 a limit like this is none.
const NONE: u64 = 1 << 60;

/// The least of the limits, in bytes; `None` where there is none, or it is not known. `root` is `/`
/// but in tests.
pub fn limit(root: &Path) -> Option<u64> {
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = HIERARCHIES.iter().filter_map(|(mount, controller, file)| {
        let own = cgroups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            controllers
                .split(',')
                .any(|it| it == *controller)
                .then_some(path)
        })?;
        let mount = root.join("sys/fs/cgroup").join(mount);
        // In a container the path may be one of the host: then the mount is the container's own.
        let mut below = Path::new(own.trim_start_matches('/'));
        let mut least = None;
        loop {
            let text = fs::read_to_string(mount.join(below).join(file));
            let found: Option<u64> = text.ok().and_then(|it| it.trim().parse().ok());
            least = least.into_iter().chain(found).min();
            match below.parent() {
                Some(parent) => below = parent,
                None => return least,
            }
        }
    });
    limits.min().filter(|&limit| limit < NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit_of(files: &[(&str, &str)]) -> Option<u64> {
        let name = format!("fanpcap-memory-{:?}", std::thread::current().id());
        let root = std::env::temp_dir().join(name);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = limit(&root);
        let _ = fs::remove_dir_all(&root);
        found
    }

    #[test]
    fn the_least_limit_of_a_cgroup_and_those_above_it_counts() {
        let cgroup = ("proc/self/cgroup", "0::/kube/pod\n");
        let pod = ("sys/fs/cgroup/kube/pod/memory.max", "max\n");
        let above = ("sys/fs/cgroup/kube/memory.max", "134217728\n");
        assert_eq!(limit_of(&[cgroup, pod, above]), Some(134_217_728));
        let pod = ("sys/fs/cgroup/kube/pod/memory.max", "1000000\n");
        assert_eq!(limit_of(&[cgroup, pod, above]), Some(1_000_000));
        assert_eq!(limit_of(&[cgroup]), None);
        assert_eq!(limit_of(&[]), None);
    }

    #[test]
    fn version_1_is_read_also_where_the_path_is_the_hosts() {
        let cgroup = ("proc/self/cgroup", "4:memory:/docker/abc\n1:cpu:/\n0::/\n");
        let own = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n");
        assert_eq!(limit_of(&[cgroup, own]), Some(67_108_864));
        let none = (own.0, "9223372036854771712\n");
        assert_eq!(limit_of(&[cgroup, none]), None);
    }
}
