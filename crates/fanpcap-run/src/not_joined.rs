//! Finds in /proc the likely reason why a copy has not joined the group.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fanpcap::request::Request;
use fanpcap_config::report::harmless_text;
use fanpcap_config::settings::{Environment, Group, Settings};
use fanpcap_engine::root;
use fanpcap_install::system;
use fanpcap_linux::process::{child::is_lack_of_descriptors, netns};
use fanpcap_pcap::compile_expression;

/// The group that a copy was expected to join, and the library with which it should join.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    /// The directory of our library.
    pub(crate) library: &'a Path,
    pub(crate) group: u16,
    /// The device of the group, if known.
    pub(crate) device: Option<&'a str>,
}

/// Examines a process that has no page in the group, and returns the likely reason why the page is
/// missing. `captures` says that the process has a packet socket.
pub(crate) fn reason(pid: u32, wanted: &Expected<'_>, captures: bool) -> String {
    let (library, group) = (wanted.library, wanted.group);
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
            return "it is in another network namespace, whose sockets this command can't list; start this command in that namespace, as in: ip netns exec NAME fanpcap run ...".to_owned();
        }
    }
    let maps = fs::read_to_string(of_process.join("maps"));
    if is_raised(&of_process) {
        return format!("{name} {}", wanted.raised());
    }
    let maps = match maps {
        Ok(maps) => maps,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return format!(
                "{name} can't be examined; most likely it {}",
                wanted.raised()
            );
        }
        Err(error) if is_lack_of_descriptors(&error) => {
            return format!("it can't be examined ({error}): allow more open files (ulimit -n)");
        }
        Err(error) => return format!("it can't be examined ({error})"),
    };
    let mut loaded = libraries(&maps, library);
    // An ending process keeps its executable for a moment longer than its libraries, so a process
    // without libraries is not always linked statically.
    if loaded == Loaded::Nothing && !is_static(&of_process.join("exe")) {
        loaded = Loaded::Gone;
    }
    of_libraries(&name, loaded, library, (group, captures))
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
            format!("{name} reads a packet socket of its own, without libpcap")
        }
        Loaded::Others if captures => {
            format!("{name} reads a packet socket of its own, or has a built-in libpcap")
        }
        Loaded::Libpcap(path) if path.starts_with(library) => format!(
            "{name} has loaded {}, but {}",
            path.display(),
            without_page(group)
        ),
        Loaded::Libpcap(path) => format!(
            "{name} has loaded {} instead of fanpcap's library, perhaps because of a library path in the executable (rpath) or of LD_PRELOAD",
            harmless_text(&path.display().to_string())
        ),
        Loaded::Others => format!(
            "{name} has not loaded libpcap: it has a built-in libpcap, loads libpcap later, or captures without libpcap"
        ),
        Loaded::Gone => "it is ending, or has just started".to_owned(),
        Loaded::Nothing => format!(
            "{name} is linked statically, so it can't load fanpcap's libpcap; use a dynamically linked build"
        ),
    }
}

/// Reasons why a process that has loaded our library may have no page in the group.
fn without_page(group: u16) -> String {
    format!(
        "has no handle in group {group}, or could not publish its page in {} (then its counters are unknown)",
        root::root().map_or_else(
            |error| format!("memory: {error}"),
            |root| root.display().to_string()
        )
    )
}

impl Expected<'_> {
    /// The message about a program with raised privileges, with the remedy.
    fn raised(&self) -> String {
        let is_everybodys = system::loaded_by_all().is_ok_and(|found| {
            let directory = found.as_deref().and_then(Path::parent);
            directory.is_some_and(|it| it.canonicalize().is_ok_and(|it| it == self.library))
        });
        self.of_raised(is_everybodys, self.configured())
    }

    /// The message of [`Self::raised`]. `is_everybodys` says whether the whole system loads our
    /// library. `configured` is the group that the system's config file sets for the device.
    fn of_raised(&self, is_everybodys: bool, configured: Option<u16>) -> String {
        let (group, device) = (self.group, self.device.unwrap_or("DEVICE"));
        let is = "is setuid or has file capabilities, so that LD_LIBRARY_PATH and PCAP_GROUP are ignored";
        let line = format!("'group_{device} = {group}' into /etc/pcap.conf");
        let remedy = match (is_everybodys, configured) {
            (true, Some(own)) if own == group => {
                format!(
                    "/etc/pcap.conf sets group {own} for the device, but the process {}",
                    without_page(group)
                )
            }
            (true, Some(own)) => {
                format!("/etc/pcap.conf sets group {own} for the device: give --group {own}")
            }
            (true, None) => format!("write {line}, and give --group {group}"),
            (false, _) => format!(
                "start this command as root, or let the whole system load the library (fanpcap enable --system), write {line}, and give --group {group}"
            ),
        };
        format!("{is}; {remedy}")
    }

    /// The group that the system's config file sets for the device. Programs with raised privileges
    /// read no other settings.
    fn configured(&self) -> Option<u16> {
        let environment = Environment {
            variables: Vec::new(),
            ..Environment::of_process(true)
        };
        let request = Request::of(self.device?, Settings::load(&environment));
        let explained = request
            .explain(&compile_expression)
            .ok()?
            .into_iter()
            .next()?;
        match explained.plan.ok()?.choice?.group {
            Group::Number(number) => Some(number),
            Group::New => None,
        }
    }
}

/// The libraries that a process has loaded.
#[derive(Debug, PartialEq, Eq)]
enum Loaded {
    Libpcap(PathBuf),
    /// Shared libraries, but no libpcap.
    Others,
    /// No shared library, only the executable.
    Nothing,
    /// Not even the executable: the process has ended, and the kernel has freed its memory.
    Gone,
}

/// Finds the libraries in the text of `/proc/PID/maps`, whose columns are address, rights, offset,
/// device, inode and path. Our library also loads the system's libpcap. So if a process has loaded
/// both, the result is the libpcap in our directory `own`.
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
        if is_libpcap(&name) {
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

/// Whether a file is a libpcap by its name: `libpcap.so.0.8`, or `libpcap-b1c2d3e4.so.1.10.4`, the
/// name of the libpcap in Python packages.
fn is_libpcap(name: &str) -> bool {
    let rest = name.strip_prefix("libpcap");
    rest.is_some_and(|rest| {
        rest.starts_with('.') || (rest.starts_with('-') && rest.contains(".so"))
    })
}

/// Whether an executable names no loader (elf(5): a program header `PT_INTERP`).
fn is_static(executable: &Path) -> bool {
    let head = fs::File::open(executable).and_then(|file| {
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head).map(|_| head)
    });
    head.is_ok_and(|head| has_no_loader(&head).unwrap_or(false))
}

/// Bytes of the executable to read: the ELF header, and the program headers that directly follow.
const HEAD: u64 = 8192;

/// Whether an executable that starts with these bytes names no loader; `None` if it is not an ELF
/// file of this machine.
fn has_no_loader(head: &[u8]) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let half = |at: usize| Some(u16::from_ne_bytes(head.get(at..at + 2)?.try_into().ok()?));
    let word = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
    if !head.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let (first, len, count) = (word(32)?, half(54)?, half(56)?);
    let at =
        |number: u16| Some(usize::try_from(first).ok()? + usize::from(number) * usize::from(len));
    let kinds: Option<Vec<u32>> = (0..count).map(|number| word(at(number)?)).collect();
    Some(!kinds?.contains(&PT_INTERP))
}

/// Whether the kernel told the loader to ignore the environment: it did if `AT_SECURE` (23) is set
/// in the auxiliary vector, which consists of pairs of words (getauxval(3)).
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
    fn a_libpcap_in_a_python_package_is_named() {
        let wheel = "/usr/lib/python3/pcapy_ng.libs/libpcap-5ff3b1a0.so.1.9.1";
        let maps = format!("7f00-7f01 r-xp 00001000 fe:00 1234 {wheel}\n");
        let loaded = libraries(&maps, Path::new("/ours"));
        assert_eq!(loaded, Loaded::Libpcap(wheel.into()));
        let said = of_libraries("python3", loaded, Path::new("/ours"), (7, true));
        assert!(said.contains(wheel), "{said}");
        assert!(!is_libpcap("libpcapy.so") && !is_libpcap("libpcap-notes.txt"));
    }

    #[test]
    fn the_remedy_for_raised_programs_is_one_that_works_there() {
        let wanted = wanted(Path::new("/ours"));
        let said = wanted.of_raised(true, None);
        let line = "write 'group_eth0 = 7' into /etc/pcap.conf, and give --group 7";
        assert!(said.contains(line) && !said.contains("enable"), "{said}");
        let said = wanted.of_raised(true, Some(5));
        let end = "/etc/pcap.conf sets group 5 for the device: give --group 5";
        assert!(said.ends_with(end), "{said}");
        // The config file already sets group 7, so the message must name another reason.
        let said = wanted.of_raised(true, Some(7));
        assert!(said.contains("could not publish its page"), "{said}");
        assert!(!said.contains("give --group"), "{said}");
        let said = wanted.of_raised(false, None);
        assert!(
            said.contains("enable --system") && said.contains(line),
            "{said}"
        );
    }

    fn wanted(library: &Path) -> Expected<'_> {
        Expected {
            library,
            group: 7,
            device: Some("eth0"),
        }
    }

    #[test]
    fn an_ending_program_is_not_taken_for_a_static_one() {
        let own = std::env::current_exe().unwrap();
        assert!(!is_static(&own) && !is_static(Path::new("/etc/passwd")));
        let mut head = vec![0; 64 + 56];
        head[..5].copy_from_slice(b"\x7fELF\x02");
        head[32] = 64;
        head[54] = 56;
        head[56] = 1;
        assert_eq!(has_no_loader(&head), Some(true));
        head[64] = 3;
        assert_eq!(has_no_loader(&head), Some(false));
        assert_eq!(has_no_loader(&head[..64]), None);
    }

    #[test]
    fn a_program_without_libpcap_is_told() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        // The child is first a copy of this process. It calls execve(2) and loads its libraries
        // some time later, so the test asks until the answer is about sleep(1).
        let said = await_for("sleep to be known", LIMIT, || {
            let said = reason(child.id(), &wanted(Path::new("/ours")), false);
            Ok(said.contains("sleep has not loaded libpcap").then_some(()))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        said.unwrap();
    }
}
