//! Checks whether applications load fanpcap's libpcap. Settings have no effect on applications that
//! load another libpcap.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use fanpcap_install::mapped::{Build, Mapped};
use fanpcap_install::{library, system};
use fanpcap_linux::file::privileged;
use fanpcap_snapshot::Snapshot;

use super::finding::{Effect, Finding, MACHINE, word};
use super::settings::GroupSetting;

/// Facts of the library.
#[derive(Clone, Debug, Default)]
pub(super) struct Library {
    /// The libpcap that an application started from here loads; `None` if it finds no libpcap.
    pub(super) from_here: Option<Loaded>,
    /// The libpcap that every program of the machine loads.
    pub(super) by_all: Option<Loaded>,
    /// The program that --program names.
    pub(super) program: Option<Program>,
    /// AppArmor's profile of tcpdump denies what members need.
    pub(super) apparmor_hinders: bool,
    /// Applications that capture on a device without being in its group.
    pub(super) outsiders: Vec<Outsider>,
}

/// A libpcap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loaded {
    pub(super) path: PathBuf,
    /// The library is one of fanpcap's.
    pub(super) is_ours: bool,
}

/// A program's file.
#[derive(Clone, Debug, Default)]
pub(super) struct Program {
    pub(super) path: PathBuf,
    /// The libpcap that the program loads when it starts.
    pub(super) loads: Loads,
    /// The program is set-user-ID or has file capabilities. So the loader ignores LD_LIBRARY_PATH
    /// for it, and the library ignores all variables in it.
    pub(super) is_privileged: bool,
}

/// The libpcap that a program loads when it starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Loads {
    /// ldd(1) can't say.
    #[default]
    Unknown,
    /// No libpcap.
    Nothing,
    /// A libpcap of this name, which the loader does not find.
    Missing(String),
    Library(Loaded),
}

/// An application that is in no group, although the settings name a group for its device.
#[derive(Clone, Debug, Default)]
pub(super) struct Outsider {
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) device: String,
    pub(super) group: u16,
    /// The process has loaded fanpcap's library.
    pub(super) has_ours: bool,
}

impl Loaded {
    fn of(path: PathBuf) -> Self {
        Self {
            is_ours: Build::of(&path).is_some_and(|build| build.is_ours()),
            path,
        }
    }
}

impl Loads {
    /// Asks ldd(1), which asks the loader and does not run the program.
    fn of(program: &Path, is_privileged: bool) -> Self {
        let mut command = Command::new("ldd");
        command.arg(program).env("LC_ALL", "C");
        if is_privileged {
            command
                .env_remove("LD_LIBRARY_PATH")
                .env_remove("LD_PRELOAD");
        }
        let Ok(done) = command.output() else {
            return Self::Unknown;
        };
        let is_static = String::from_utf8_lossy(&done.stderr).contains("not a dynamic");
        match done.status.success() || is_static {
            true => Self::listed(&String::from_utf8_lossy(&done.stdout)),
            false => Self::Unknown,
        }
    }

    /// The libpcap in the output of ldd(1). A line is `libpcap.so.0.8 => /lib/libpcap.so.0.8
    /// (0x7f00)`, `libpcap.so.0.8 => not found`, or only the path and the address.
    fn listed(list: &str) -> Self {
        let is_libpcap = |path: &Path| {
            let name = path.file_name().and_then(OsStr::to_str);
            name.is_some_and(|name| name.starts_with("libpcap.so"))
        };
        let of_line = |line: &str| {
            let line = line.trim();
            if let Some(name) = line.strip_suffix(" => not found") {
                return is_libpcap(name.as_ref()).then(|| Self::Missing(name.to_owned()));
            }
            let (line, _) = line.rsplit_once(" (")?;
            let path = PathBuf::from(line.rsplit(" => ").next()?);
            is_libpcap(&path).then(|| Self::Library(Loaded::of(path)))
        };
        list.lines().find_map(of_line).unwrap_or(Self::Nothing)
    }
}

impl Program {
    fn of(path: &Path) -> Self {
        let is_privileged = privileged::is_privileged(path).unwrap_or(false);
        Self {
            loads: Loads::of(path, is_privileged),
            is_privileged,
            path: path.to_owned(),
        }
    }

    /// What the program loads, in words.
    pub(super) fn sentence(&self) -> String {
        let program = self.path.display();
        match &self.loads {
            Loads::Library(Loaded { path, is_ours }) => {
                let whose = if *is_ours {
                    "fanpcap's"
                } else {
                    "not fanpcap's"
                };
                format!("{program} would load {}, {whose}.", path.display())
            }
            Loads::Nothing => format!(
                "{program} loads no libpcap at its start; it may load one later, or start another program that captures."
            ),
            Loads::Missing(name) => {
                format!("{program} needs {name}, which the loader does not find: it can't start.")
            }
            Loads::Unknown => {
                format!("{program}: ldd(1) does not say which libpcap it would load.")
            }
        }
    }
}

/// The libpcap that an application started from here loads, if it is not fanpcap's: the path, or
/// `none`.
pub fn other_library() -> Option<String> {
    let loaded = loaded_from_here().or_else(loaded_by_all);
    let is_ours = loaded.as_ref().is_some_and(|it| it.is_ours);
    (!is_ours).then(|| path_or_none(loaded.as_ref()))
}

fn path_or_none(loaded: Option<&Loaded>) -> String {
    loaded.map_or_else(|| "none".to_owned(), |it| it.path.display().to_string())
}

/// The libpcap that every program of the machine loads.
fn loaded_by_all() -> Option<Loaded> {
    system::loaded_by_all().ok().flatten().map(Loaded::of)
}

/// The libpcap that the environment gives to applications.
fn loaded_from_here() -> Option<Loaded> {
    let named = |name: &str| env::var_os(name).unwrap_or_default();
    let preloaded = named("LD_PRELOAD").to_string_lossy().into_owned();
    let mut preloaded = preloaded
        .split([':', ' '])
        .filter(|it| it.contains("libpcap"));
    let path = named("LD_LIBRARY_PATH");
    let mut in_path = env::split_paths(&path).map(|it| it.join(library::NAME));
    let first = preloaded.next().map(PathBuf::from);
    let first = first.or_else(|| in_path.find(|it| it.exists()));
    first.map(Loaded::of)
}

impl Library {
    /// The facts for an application started from here. `program` is the value of --program.
    pub(super) fn read(program: Option<&Path>, now: &Snapshot, wanted: &[GroupSetting]) -> Self {
        let by_all = loaded_by_all();
        Self {
            from_here: loaded_from_here().or_else(|| by_all.clone()),
            by_all,
            program: program.map(Program::of),
            apparmor_hinders: system::apparmor_hinders(),
            outsiders: outsiders(now, wanted),
        }
    }

    /// Running applications that are not in the group that the settings name for their device.
    pub(super) fn findings_of_others(&self) -> impl Iterator<Item = Finding> {
        self.outsiders.iter().map(outsider)
    }

    /// The problems of applications that the caller starts. `is_needed` says whether settings name
    /// a group or an engine, so that applications need the library.
    pub(super) fn findings(&self, is_needed: bool) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        if is_needed {
            findings.extend(self.not_loaded());
            findings.extend(self.apparmor());
        }
        findings.extend(self.privileged());
        findings
    }

    fn not_loaded(&self) -> Option<Finding> {
        let is_ours = |it: &Option<Loaded>| it.as_ref().is_some_and(|it| it.is_ours);
        if is_ours(&self.from_here) {
            return None;
        }
        let other = path_or_none(self.from_here.as_ref());
        let told = [
            format!("applications started from here load another libpcap: {other}"),
            "the settings have no effect on them: each copy captures every packet".to_owned(),
            "eval \"$(fanpcap enable)\"    # this shell; every program: fanpcap enable --system"
                .to_owned(),
        ];
        Some(Finding::new(
            "library-not-loaded",
            Effect::Distorts,
            MACHINE,
            told,
        ))
    }

    fn privileged(&self) -> Option<Finding> {
        let program = self.program.as_ref().filter(|it| it.is_privileged)?;
        if self.by_all.as_ref().is_some_and(|it| it.is_ours) {
            return None;
        }
        let told = [
            "it is set-user-ID or has file capabilities, so the loader ignores LD_LIBRARY_PATH".to_owned(),
            "the settings have no effect on it: it captures every packet; with fanpcap's library it would ignore variables, but read /etc/pcap.conf".to_owned(),
            "fanpcap enable --system".to_owned(),
        ];
        Some(Finding::new(
            "privileged-program",
            Effect::Distorts,
            &program.path.display().to_string(),
            told,
        ))
    }

    fn apparmor(&self) -> Option<Finding> {
        let told = [
            "AppArmor's profile of tcpdump does not allow what members of a group need".to_owned(),
            "tcpdump has no member page, or can't load the library, and then does not join the group".to_owned(),
            "fanpcap enable --apparmor".to_owned(),
        ];
        self.apparmor_hinders
            .then(|| Finding::new("apparmor", Effect::Distorts, MACHINE, told))
    }
}

fn outsider(found: &Outsider) -> Finding {
    let Outsider {
        pid,
        program,
        device,
        group,
        has_ours,
    } = found;
    let since = match has_ours {
        true => "was started before the settings named the group, or with other settings",
        false => "has not loaded fanpcap's library",
    };
    let told = [
        format!("{program} (pid {pid}) captures outside group {group}: it {since}"),
        "it captures every packet, including the packets that the group's members share".to_owned(),
        format!(
            "kill {pid}    # then start it by: fanpcap run -n 1 -- {} ...",
            word(program)
        ),
    ];
    Finding::new("not-in-group", Effect::Distorts, device, told)
}

fn outsiders(now: &Snapshot, wanted: &[GroupSetting]) -> Vec<Outsider> {
    let mut found: Vec<Outsider> = Vec::new();
    for socket in now
        .sockets
        .iter()
        .filter(|it| it.group.is_none() && it.ring_bytes.is_some())
    {
        let Some(wanted) = wanted.iter().find(|it| it.ifindex == socket.ifindex) else {
            continue;
        };
        let Some((pid, process)) = socket.process.as_ref().and_then(|it| Some((it.pid?, it)))
        else {
            continue;
        };
        let Some(has_ours) = has_ours(pid) else {
            continue;
        };
        if found.iter().all(|it| it.pid != pid) {
            found.push(Outsider {
                pid,
                program: process.program.clone(),
                device: wanted.device.clone(),
                group: wanted.group,
                has_ours,
            });
        }
    }
    found
}

/// Whether the process has loaded our library; `None` if it has no libpcap or can't be read.
fn has_ours(pid: u32) -> Option<bool> {
    let mapped = Mapped::of(pid);
    let builds = mapped.iter().filter_map(Mapped::build);
    builds.map(|build| build.is_ours()).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(is_ours: bool) -> Option<Loaded> {
        Some(Loaded {
            path: "/lib/libpcap.so.0.8".into(),
            is_ours,
        })
    }

    fn names(library: &Library, is_needed: bool) -> Vec<&'static str> {
        let findings = library.findings(is_needed);
        findings.iter().map(|it| it.name).collect()
    }

    #[test]
    fn another_library_is_found_where_settings_need_ours() {
        let mut library = Library {
            from_here: loaded(false),
            apparmor_hinders: true,
            ..Library::default()
        };
        assert!(names(&library, false).is_empty());
        assert_eq!(names(&library, true), ["library-not-loaded", "apparmor"]);
        library.from_here = loaded(true);
        assert_eq!(names(&library, true), ["apparmor"]);
        library.from_here = None;
        assert_eq!(names(&library, true), ["library-not-loaded", "apparmor"]);
    }

    #[test]
    fn a_privileged_program_needs_the_library_of_the_whole_machine() {
        let mut library = Library {
            from_here: loaded(true),
            by_all: loaded(false),
            program: Some(Program {
                path: "/usr/bin/dumpcap".into(),
                is_privileged: true,
                loads: Loads::Unknown,
            }),
            ..Library::default()
        };
        assert_eq!(names(&library, true), ["privileged-program"]);
        library.by_all = loaded(true);
        assert!(names(&library, true).is_empty());
    }

    #[test]
    fn what_ldd_lists_is_read() {
        let path = |list: &str| match Loads::listed(list) {
            Loads::Library(it) => Some(it.path.display().to_string()),
            Loads::Nothing | Loads::Missing(_) | Loads::Unknown => None,
        };
        let list =
            "\tlinux-vdso.so.1 (0x7ff0)\n\tlibpcap.so.0.8 => /opt/a b/libpcap.so.0.8 (0x7f00)\n";
        assert_eq!(path(list).as_deref(), Some("/opt/a b/libpcap.so.0.8"));
        let preloaded = "\t/opt/libpcap.so.0.8 (0x7f00)\n\tlibpcap.so.0.8 => /lib/x.so (0x7f01)\n";
        assert_eq!(path(preloaded).as_deref(), Some("/opt/libpcap.so.0.8"));
        assert_eq!(path("\tlibc.so.6 => /lib/libc.so.6 (0x7f00)\n"), None);
        let missing = Loads::listed("\tlinux-vdso.so.1 (0x7ff0)\n\tlibpcap.so.0.8 => not found\n");
        assert_eq!(missing, Loads::Missing("libpcap.so.0.8".to_owned()));
        let program = Program {
            path: "/opt/capture".into(),
            loads: missing,
            is_privileged: false,
        };
        assert_eq!(
            program.sentence(),
            "/opt/capture needs libpcap.so.0.8, which the loader does not find: it can't start."
        );
        assert_eq!(Loads::listed("\tlibfoo.so => not found\n"), Loads::Nothing);
        let own = Program::of(&env::current_exe().unwrap());
        assert_eq!(own.loads, Loads::Nothing);
        assert!(own.sentence().contains(" loads no libpcap at its start"));
    }

    #[test]
    fn who_captures_beside_the_group_is_found() {
        let outsider = Outsider {
            pid: 7,
            program: "tcpdump".to_owned(),
            device: "eth0".to_owned(),
            group: 5,
            has_ours: false,
        };
        let library = Library {
            outsiders: vec![outsider],
            ..Library::default()
        };
        let found = library.findings_of_others().next().unwrap();
        assert_eq!(
            (found.name, found.effect),
            ("not-in-group", Effect::Distorts)
        );
        assert!(found.what.contains("has not loaded"), "{found:?}");
    }
}
