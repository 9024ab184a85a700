//! The libpcap that a running process has mapped: whether it is ours, its version, and whether its
//! file was replaced since.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The text before the version, which only fanpcap's library has (its `pcap_lib_version()`).
const MARK: &[u8] = b" + fanpcap ";

/// A length in bytes that no libpcap exceeds.
const LONGEST: u64 = 64 << 20;

/// A libpcap in a process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapped {
    /// The file's path, in the process's root directory.
    pub path: String,
    /// The file no longer has this path: it was replaced or removed after the process had loaded
    /// it.
    pub is_replaced: bool,
    /// The device and the inode of the file, as in the kernel's list.
    pub file: String,
    /// The paths in /proc from which the mapped file can be read, perhaps only by root.
    readable: Vec<PathBuf>,
}

impl Mapped {
    /// The libpcaps that process `pid` has mapped; empty if it has none, or if this user may not
    /// know.
    pub fn of(pid: u32) -> Vec<Self> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        let mut found: Vec<Self> = Vec::new();
        for line in String::from_utf8_lossy(&maps).lines() {
            let mapped = Self::parse(&process, line);
            found.extend(mapped.filter(|it| found.iter().all(|known| known.file != it.file)));
        }
        found
    }

    /// A line of /proc/PID/maps, if it is about a libpcap (proc(5)).
    fn parse(process: &Path, line: &str) -> Option<Self> {
        let name = line.find('/').map(|at| &line[at..])?;
        let path = name.strip_suffix(" (deleted)");
        let (path, is_replaced) = (path.unwrap_or(name), path.is_some());
        let last = path.rsplit('/').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let (range, device, inode) = (words.next()?, words.nth(2)?, words.next()?);
        // The mapped file itself: its name may now belong to another file. Only root may read it.
        let mut readable = vec![process.join("map_files").join(range)];
        if !is_replaced {
            readable.push(process.join("root").join(&path[1..]));
        }
        last.starts_with("libpcap.so").then(|| Self {
            path: path.to_owned(),
            is_replaced,
            file: format!("{device} {inode}"),
            readable,
        })
    }

    /// Whether the library is fanpcap's, and its version; `None` if the file can't be read.
    pub fn build(&self) -> Option<Build> {
        self.readable.iter().find_map(|path| Build::of(path))
    }
}

/// What a libpcap is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Build {
    /// fanpcap's, with its version.
    Ours(String),
    /// Another.
    Other,
}

impl Build {
    /// What the libpcap in this file is; `None` if the file can't be read.
    pub fn of(path: &Path) -> Option<Self> {
        // Read only regular files: reading something else, such as a pipe, may never end.
        fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let mut bytes = Vec::new();
        let file = File::open(path).ok()?;
        file.take(LONGEST).read_to_end(&mut bytes).ok()?;
        let found = bytes.windows(MARK.len()).position(|it| it == MARK);
        let version = found.map(|at| {
            let rest = bytes[at + MARK.len()..].iter();
            let is_part = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
            rest.take_while(is_part)
                .map(|&byte| char::from(byte))
                .collect()
        });
        Some(version.map_or(Self::Other, Self::Ours))
    }

    /// Whether it is fanpcap's.
    pub fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }
}

#[cfg(test)]
mod tests {
    use fanpcap_testkit::Scratch;

    use super::*;

    #[test]
    fn our_library_is_known_by_its_version() {
        let scratch = Scratch::new().unwrap();
        let of = |name: &str, text: &str| Build::of(&scratch.write(name, text).unwrap());
        let ours = of("ours", "\0 + fanpcap 0.1.0\0x");
        assert_eq!(ours, Some(Build::Ours("0.1.0".to_owned())));
        assert_eq!(of("other", "\0pcap_open_live\0"), Some(Build::Other));
        assert_eq!(Build::of(Path::new("/dev/zero")), None);
    }

    #[test]
    fn a_replaced_file_is_seen_in_the_kernels_list() {
        let parse = |line: &str| Mapped::parse(Path::new("/proc/7"), line);
        let line = "7f00-7f10 r-xp 00000000 fe:01 1234    /usr/lib/fanpcap/libpcap.so.0.8";
        let mapped = parse(line).unwrap();
        assert_eq!(mapped.path, "/usr/lib/fanpcap/libpcap.so.0.8");
        assert_eq!((mapped.is_replaced, &*mapped.file), (false, "fe:01 1234"));
        let replaced = parse(&format!("{line} (deleted)")).unwrap();
        assert!(replaced.is_replaced && replaced.path == mapped.path);
        for other in [
            "7f00-7f10 r-xp 0 fe:01 12 /usr/lib/libc.so.6",
            "7f00-7f10 rw-p 0 00:00 0",
            "",
        ] {
            assert_eq!(parse(other), None);
        }
    }
}
