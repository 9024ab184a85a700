//! Finds limits of the calling process that are too low for its captures (setrlimit(2)).

use std::fs;
use std::path::Path;

use fanpcap_linux::process::memory;

use super::finding::{Effect, Finding, MACHINE};

/// Limits of the calling process; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of memory that the process may lock.
    locked: Option<u64>,
    /// Largest file that the process may write, in bytes.
    file: Option<u64>,
    /// Number of descriptors that the process may open.
    open: Option<u64>,
    /// The kernel counts BPF programs and maps as locked memory.
    counts_programs: bool,
    /// Bytes of memory that the process's cgroup allows.
    memory: Option<u64>,
}

/// The first kernel that counts BPF programs and maps as memory of the cgroup, not as locked
/// memory.
const COUNTS_BY_CGROUP: (u32, u32) = (5, 11);
/// The most bytes that a group's BPF programs and maps need without `+sticky`.
const LOCKED_LEAST: u64 = 1 << 20;
/// The least sufficient limit for the length of files, in bytes. Every member page and every other
/// file in `/run/fanpcap` is shorter.
const FILE_LEAST: u64 = 1 << 20;
/// The least sufficient number of descriptors. A handle in a group has about twenty, and needs more
/// while it joins.
const OPEN_LEAST: u64 = 64;

/// Bytes of memory that a handle on the XDP engine and its application need together by default.
const MEMORY_LEAST: u64 = 96 << 20;

impl Limits {
    /// The limits of this process.
    pub(super) fn read(root: &Path, kernel: (u32, u32)) -> Self {
        let text = fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
        // `unlimited` is no number, so the result is `None`, as for a missing value.
        let soft = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        let memory = memory::limits(root).into_iter().map(|limit| limit.bytes);
        Self {
            locked: soft("Max locked memory"),
            file: soft("Max file size"),
            open: soft("Max open files"),
            counts_programs: kernel != (0, 0) && kernel < COUNTS_BY_CGROUP,
            memory: memory.min(),
        }
    }

    /// The limits that are too low. `wants_xdp` says whether the settings ask for the XDP engine.
    pub(super) fn findings(self, wants_xdp: bool) -> Vec<Finding> {
        let all = [
            self.descriptors(),
            self.locked_memory(),
            self.file_size(),
            self.memory().filter(|_| wants_xdp),
        ];
        all.into_iter().flatten().collect()
    }

    fn descriptors(self) -> Option<Finding> {
        let open = self.open.filter(|it| *it < OPEN_LEAST)?;
        let told = [
            format!("applications started from here may open {open} descriptors"),
            "a handle in a group needs about twenty, and a handle that lacks one gets an error"
                .to_owned(),
            "ulimit -n 1024    # LimitNOFILE= in a unit".to_owned(),
        ];
        Some(Finding::new(
            "few-descriptors",
            Effect::Refuses,
            MACHINE,
            told,
        ))
    }

    fn locked_memory(self) -> Option<Finding> {
        let locked = self.locked.filter(|it| *it < LOCKED_LEAST)?;
        let told = [
            format!("applications started from here may lock {locked} bytes of memory"),
            "before Linux 5.11 BPF programs and their maps are locked memory, for root too: a group gets mode \
                  hash instead of flow, and steering programs are refused".to_owned(),
            "ulimit -l unlimited    # LimitMEMLOCK=infinity in a unit, --ulimit memlock=-1 of docker".to_owned(),
        ];
        self.counts_programs
            .then(|| Finding::new("locked-memory", Effect::Distorts, MACHINE, told))
    }

    fn memory(self) -> Option<Finding> {
        let memory = self.memory.filter(|it| *it < MEMORY_LEAST)? >> 20;
        let told = [
            format!("applications started from here may have {memory} MiB of memory"),
            "on the XDP engine, which the settings ask for, each handle has a ring of 64 MiB if it sets no size; \
                  if the ring doesn't fit, the handle reads a packet socket or can't join the group".to_owned(),
            "echo 'ring@DEVICE = 16M' >> /etc/pcap.conf    # or 96 MiB a handle: \
                  MemoryMax= in a unit, --memory of docker, resources.limits.memory of a pod".to_owned(),
        ];
        Some(Finding::new("memory-limit", Effect::Refuses, MACHINE, told))
    }

    fn file_size(self) -> Option<Finding> {
        let file = self.file.filter(|it| *it < FILE_LEAST)?;
        let told = [
            format!("applications started from here may write files of {file} bytes"),
            "a member whose page would be larger has no page: if it is the first member of a group with a steering \
                  program, other processes can't join, and when it joins or crashes, such a group can't keep flows \
                  at their members".to_owned(),
            "ulimit -f unlimited    # LimitFSIZE=infinity in a unit".to_owned(),
        ];
        Some(Finding::new("file-size", Effect::Distorts, MACHINE, told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;

    fn names(limits: Limits) -> Vec<&'static str> {
        limits.findings(true).iter().map(|it| it.name).collect()
    }

    #[test]
    fn limits_are_found_that_captures_run_into() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("proc/self/limits");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max file size             0                    unlimited            bytes     \n\
                    Max open files            20                   4096                 files     \n\
                    Max locked memory         65536                65536                bytes     \n";
        fs::write(path, text).unwrap();
        let read = |kernel| Limits::read(&scratch.file(""), kernel);
        assert_eq!(
            names(read((5, 10))),
            ["few-descriptors", "locked-memory", "file-size"]
        );
        assert!(read((5, 10)).findings(true)[1].what.contains("65536 bytes"));
        for kernel in [(5, 11), (0, 0)] {
            assert_eq!(names(read(kernel)), ["few-descriptors", "file-size"]);
        }
    }

    #[test]
    fn a_memory_limit_is_found_that_rings_of_the_xdp_engine_do_not_fit_into() {
        let scratch = Scratch::new().unwrap();
        let limits = |bytes: &str| {
            for (path, text) in [
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", bytes),
            ] {
                let path = scratch.file(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Limits::read(&scratch.file(""), (6, 1))
        };
        let low = limits("83886080\n");
        assert_eq!(names(low), ["memory-limit"]);
        let found = &low.findings(true)[0];
        assert!(found.what.contains("80 MiB"));
        assert!(found.fix.contains("ring@DEVICE"));
        assert!(low.findings(false).is_empty());
        assert_eq!(names(limits("100663296\n")), [""; 0]);
        assert_eq!(names(limits("max\n")), [""; 0]);
    }

    #[test]
    fn nothing_is_said_of_limits_that_do_or_are_not_known() {
        let nowhere = Scratch::new().unwrap();
        assert_eq!(names(Limits::read(&nowhere.file(""), (5, 10))), [""; 0]);
        let own = Limits::read(Path::new("/"), (5, 10));
        assert!(own.open.is_some_and(|it| it > 0));
    }
}
