//! The caches of the two CPUs of the bench, read from sysfs.

use std::fs;
use std::path::Path;

use fanpcap_linux::process::cpu;

use crate::topology::Pair;

/// The kernel's files about CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

/// The data caches of a CPU pair in words, such as `L1 32K, L2 1024K, L3 32768K for both`. Empty if
/// the kernel names no cache.
pub(crate) fn describe(pair: Pair) -> String {
    described(Path::new(CPUS), pair)
}

fn described(cpus: &Path, pair: Pair) -> String {
    let caches = cpus.join(format!("cpu{}/cache", pair.generator));
    let cache = |index: u32| cache(&caches.join(format!("index{index}")), pair.reader);
    let found: Vec<String> = (0..).map_while(cache).flatten().collect();
    found.join(", ")
}

/// The outer `None` if there is no such cache, the inner for a cache of instructions.
fn cache(directory: &Path, reader: usize) -> Option<Option<String>> {
    let read = |name| fs::read_to_string(directory.join(name)).ok();
    let (level, size, kind) = (read("level")?, read("size")?, read("type")?);
    let cpus = cpu::list(read("shared_cpu_list")?.trim()).unwrap_or_default();
    let is_shared = cpus.contains(&reader);
    let users = if is_shared { " for both" } else { "" };
    let text = format!("L{} {}{users}", level.trim(), size.trim());
    Some((kind.trim() != "Instruction").then_some(text))
}

#[cfg(test)]
mod tests {
    use fanpcap_testbed::Scratch;

    use super::*;

    /// Writes the files of a cache of CPU 0.
    fn write(scratch: &Scratch, index: u32, [level, kind, size, cpus]: [&str; 4]) {
        let directory = scratch.file(&format!("cpu0/cache/index{index}"));
        fs::create_dir_all(&directory).unwrap();
        let files = ["level", "type", "size", "shared_cpu_list"];
        for (name, text) in files.into_iter().zip([level, kind, size, cpus]) {
            fs::write(directory.join(name), format!("{text}\n")).unwrap();
        }
    }

    #[test]
    fn data_caches_are_named_and_whether_both_cpus_have_them() {
        let scratch = Scratch::new().unwrap();
        write(&scratch, 0, ["1", "Data", "48K", "0"]);
        write(&scratch, 1, ["1", "Instruction", "32K", "0"]);
        write(&scratch, 2, ["2", "Unified", "2048K", "0"]);
        write(&scratch, 3, ["3", "Unified", "32768K", "0-3,8"]);
        let pair = |reader| Pair {
            generator: 0,
            reader,
        };
        let root = scratch.file("");
        let told = described(&root, pair(2));
        assert_eq!(told, "L1 48K, L2 2048K, L3 32768K for both");
        assert_eq!(described(&root, pair(4)), "L1 48K, L2 2048K, L3 32768K");
        assert_eq!(described(&root.join("cpu0"), pair(2)), "");
    }
}
