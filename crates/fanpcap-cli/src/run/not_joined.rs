//! The likely reason why a copy has not joined the group, from /proc.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fanpcap_config::report::harmless_text;
use fanpcap_group::root;
use fanpcap_linux::process::{child::is_lack_of_descriptors, netns};

/// Examines a process that has no page in the group, and returns the likely reason. `captures` says
/// that the process has a packet socket nevertheless.
pub(crate) fn reason(pid: u32, library: &Path, group: u16, captures: bool) -> String {
    let of_process = PathBuf::from(format!("/proc/{pid}"));
    let program = fs::read_link(of_process.join("exe"));
    let name = program.as_ref().map_or("the program".to_owned(), |path| {
        harmless_text(&path.display().to_string())
    });
    let own_netns = netns::inode().ok();
    let its_netns = fs::metadata(of_process.join("ns/net"))
        .map(|found| found.ino())
        .ok();
    if let (Some(own), Some(its)) = (own_netns, its_netns) {
        if own != its {
            return "it is in another network namespace, of which nothing is seen here; start this command there, as in: ip netns exec NAME fanpcap run ...".to_owned();
        }
    }
    let maps = fs::read_to_string(of_process.join("maps"));
    if is_raised(&of_process) {
        return format!("{name} {RAISED}");
    }
    let maps = match maps {
        Ok(maps) => maps,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return format!("{name} can't be looked at; most likely it {RAISED}");
        }
        Err(error) if is_lack_of_descriptors(&error) => {
            return format!("it can't be looked at ({error}): allow more open files (ulimit -n)");
        }
        Err(error) => return format!("it can't be looked at ({error})"),
    };
    of_libraries(&name, libraries(&maps, library), library, (group, captures))
}

/// The reason that the libraries of a process suggest.
fn of_libraries(
    name: &str,
    loaded: Loaded,
    library: &Path,
    (group, captures): (u16, bool),
) -> String {
    match loaded {
        Loaded::Libpcap(path) if captures && path.starts_with(library) => {
            format!("{name} reads a packet socket of its own, past libpcap")
        }
        Loaded::Others if captures => {
            format!("{name} reads a packet socket of its own, or has a libpcap built in")
        }
        Loaded::Libpcap(path) if path.starts_with(library) => format!(
            "{name} has loaded {}, but has no handle in group {group}, or could not publish its page in {} (then its counters are unknown)",
            path.display(),
            root::root().map_or_else(
                |error| format!("memory: {error}"),
                |root| root.display().to_string()
            )
        ),
        Loaded::Libpcap(path) => format!(
            "{name} has loaded {} instead of ours, perhaps by a path of its own (rpath) or LD_PRELOAD",
            harmless_text(&path.display().to_string())
        ),
        Loaded::Others => format!(
            "{name} has not loaded libpcap: it has one built in, loads it later, or does not capture by it"
        ),
        Loaded::Gone => "it is ending, or has just begun".to_owned(),
        Loaded::Nothing => format!(
            "{name} is linked statically, so it can't load our libpcap; a dynamically linked build can"
        ),
    }
}

const RAISED: &str = "is setuid or has file capabilities, so LD_LIBRARY_PATH was ignored; start this command as root, or let the whole system load the library: fanpcap enable --system";

/// What a process has loaded.
#[derive(Debug, PartialEq, Eq)]
enum Loaded {
    /// A libpcap.
    Libpcap(PathBuf),
    /// Shared libraries, but no libpcap.
    Others,
    /// No shared library, only the executable.
    Nothing,
    /// Nothing: the process has ended and has no memory.
    Gone,
}

/// Reads `/proc/PID/maps`: address, rights, offset, device, inode, path. Our library loads the
/// system's libpcap too; so a libpcap in `own`, our directory, has precedence.
fn libraries(maps: &str, own: &Path) -> Loaded {
    let path = |line: &str| {
        let at = line.find('/')?;
        Some(PathBuf::from(line.get(at..)?))
    };
    let mut loaded = Loaded::Gone;
    for path in maps.lines().filter_map(path) {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        if name.starts_with("libpcap.") {
            if path.starts_with(own) {
                return Loaded::Libpcap(path);
            }
            if !matches!(loaded, Loaded::Libpcap(_)) {
                loaded = Loaded::Libpcap(path);
            }
        } else if name.contains(".so") && matches!(loaded, Loaded::Nothing | Loaded::Gone) {
            loaded = Loaded::Others;
        } else if loaded == Loaded::Gone {
            loaded = Loaded::Nothing;
        }
    }
    loaded
}

/// Whether the kernel told the loader to ignore the environment: `AT_SECURE` (23) in the auxiliary
/// vector, pairs of words (getauxval(3)).
fn is_raised(of_process: &Path) -> bool {
    let vector = fs::read(of_process.join("auxv")).unwrap_or_default();
    let mut words = vector
        .chunks_exact(8)
        .filter_map(|word| word.try_into().ok());
    std::iter::from_fn(|| Some((words.next()?, words.next()?)))
        .map(|(kind, value): ([u8; 8], [u8; 8])| (u64::from_ne_bytes(kind), value))
        .any(|(kind, value)| kind == AT_SECURE && value != [0; 8])
}

const AT_SECURE: u64 = 23;

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::await_for::{LIMIT, await_for};
    use std::process::Command;

    #[test]
    fn maps_tell_which_libpcap() {
        let line = |path: &str| format!("7f00-7f01 r-xp 00001000 fe:00 1234      {path}\n");
        let libc = line("/lib/libc.so.6");
        let libraries = |maps: &str| libraries(maps, Path::new("/ours"));
        assert_eq!(libraries(""), Loaded::Gone);
        let program = line("/bin/static") + &line("[stack]");
        assert_eq!(libraries(&program), Loaded::Nothing);
        assert_eq!(libraries(&libc), Loaded::Others);
        let system = libc.clone() + &line("/a b/libpcap.so.1.10.3") + &libc;
        let found = libraries(&system);
        assert_eq!(found, Loaded::Libpcap("/a b/libpcap.so.1.10.3".into()));
        let both = system + &line("/ours/libpcap.so.0.8");
        assert_eq!(
            libraries(&both),
            Loaded::Libpcap("/ours/libpcap.so.0.8".into())
        );
    }

    #[test]
    fn a_program_without_libpcap_is_told() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        // Until the child has called execve(2) and loaded its libraries, it is a copy of this
        // process.
        let said = await_for("sleep to be known", LIMIT, || {
            let said = reason(child.id(), Path::new("/ours"), 7, false);
            Ok(said.contains("sleep has not loaded libpcap").then_some(()))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        said.unwrap();
    }
}
