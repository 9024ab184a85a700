//! Settings: the environment takes precedence over the config file. Both are read and checked
//! before they take effect.

mod on_engine;
mod value;
mod keys;
mod entry;
pub mod environment;
pub mod file;
mod group_choice;
mod asked;
mod placement;
mod plan;

use crate::report::{Fault, Report, shorten};
pub use entry::{Entry, Target};
pub use environment::Environment;
pub use environment::shell_name;
use fanpcap_linux::file::directory::{self, is_roots_or_own};
pub use group_choice::{FanoutCall, Group, GroupChoice};
pub use keys::Key;
pub use on_engine::{OnEngine, Polled, Steal};
pub use placement::{Ask, Kind, Placement, What};
pub use plan::{Compile, Explained, Ignored, Origins, Plan, Reason};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
pub use value::{Value, number};

/// All settings of a process, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    environment: Vec<Entry>,
    file: Vec<Entry>,
}

impl Settings {
    /// Reads the environment, and the config file: the one that the environment names, or else the
    /// machine's, or else the user's.
    pub fn load(environment: &Environment) -> Result<Settings, Report> {
        let Some(path) = config_path(environment) else {
            return Settings::parse(environment, "", "");
        };
        let is_machines = environment.value(CONFIG).is_none() && path == environment.system_config;
        let read = read(&path, is_machines);
        let (text, is_shown) = read.map_err(|fault| unreadable(fault, environment))?;
        let environment = environment::parse(environment)?;
        let file = file::parse_shown(&text, &path.to_string_lossy(), is_shown)?;
        Ok(Settings { environment, file })
    }

    /// Reads the environment and `config`, the text of the config file `source`.
    pub fn parse(
        environment: &Environment,
        config: &str,
        source: &str,
    ) -> Result<Settings, Report> {
        let environment = environment::parse(environment)?;
        let file = file::parse(config, source)?;
        Ok(Settings { environment, file })
    }

    /// The config file that [`Settings::load`] reads; `None` if it reads none.
    pub fn config_file(environment: &Environment) -> Option<PathBuf> {
        config_path(environment)
    }

    /// Whether nothing is set. If so, the system's library serves all handles.
    pub fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.file.is_empty()
    }

    /// The group of the handles on devices for which no group is set.
    pub fn default_group(&self) -> Option<u16> {
        self.for_all(Key::Group)
            .and_then(|entry| entry.value.group())
    }

    /// The entry for `key` and every handle: from the environment, or else from the file.
    fn for_all(&self, key: Key) -> Option<&Entry> {
        let lists = [&self.environment, &self.file];
        lists
            .into_iter()
            .find_map(|list| find(list, key, &Target::All))
    }
}

fn find<'a>(list: &'a [Entry], key: Key, target: &Target) -> Option<&'a Entry> {
    list.iter()
        .find(|entry| entry.key == key && entry.target == *target)
}

/// The path in PCAP_CONFIG. If PCAP_CONFIG is not set, the first of /etc/pcap.conf and
/// $HOME/.pcap.conf that exists.
fn config_path(environment: &Environment) -> Option<PathBuf> {
    if let Some(path) = environment.value(CONFIG) {
        return Some(PathBuf::from(path));
    }
    if environment.system_config.exists() {
        return Some(environment.system_config.clone());
    }
    let home = Path::new(environment.value("HOME")?);
    let path = home.join(".pcap.conf");
    (path.exists() && is_own_home(home, &path)).then_some(path)
}

/// Whether root or the process's effective user owns the config file in a home. A process may run
/// with another user's HOME, which sudo can keep. That user must not control the process. The user
/// also must not be able to read a file through a symbolic link and our error messages.
fn is_own_home(home: &Path, file: &Path) -> bool {
    let is_safe = |it: fs::Metadata| is_roots_or_own(&it) && it.mode() & WORLD_WRITES == 0;
    fs::metadata(home).is_ok_and(is_safe)
        && fs::symlink_metadata(file).is_ok_and(|link| is_roots_or_own(&link))
        && fs::metadata(file).is_ok_and(is_safe)
}

/// The bit of a mode that lets every user write.
const WORLD_WRITES: u32 = 0o002;
/// The bit of a mode that lets the file's group write.
const GROUP_WRITES: u32 = 0o020;

/// The reason why the machine's config file is not trusted; `None` if it is trusted. Only root,
/// members of root's group and the process's effective user may be able to change a trusted file.
fn distrust(about: &fs::Metadata) -> Option<String> {
    let mode = about.mode() & 0o7777;
    let writes = match about.gid() {
        0 => WORLD_WRITES,
        _ => WORLD_WRITES | GROUP_WRITES,
    };
    match is_roots_or_own(about) {
        true => (mode & writes != 0).then(|| format!("can be written by others (mode {mode:o})")),
        false => Some(format!("belongs to user {}", about.uid())),
    }
}

/// Reads the config file. Refuses pipes and terminals, whose content would differ each time a
/// handle is opened. /dev/null means that there is no file. Also returns whether messages may show
/// the file's lines. `is_machines` says that the file is the machine's config file: all users'
/// processes read it, so it must be trusted.
fn read(path: &Path, is_machines: bool) -> Result<(String, bool), Fault> {
    let name = shorten(&path.to_string_lossy());
    let failed = |error: io::Error| {
        Fault::new(
            "config-unreadable",
            format!("cannot read config file '{name}': {error}"),
        )
    };
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() && path != Path::new("/dev/null") {
        let message = format!("config file '{name}' is not a regular file");
        return Err(Fault::new("config-not-a-file", message));
    }
    let mut bytes = Vec::new();
    let file = directory::open_to_read(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if let Some(why) = Some(&about).filter(|_| is_machines).and_then(distrust) {
        let message = format!("config file '{name}' {why}");
        return Err(Fault::new("config-not-trusted", message));
    }
    file.take(CONFIG_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > CONFIG_MAX {
        let message = format!("config file '{name}' is longer than {CONFIG_MAX} bytes");
        return Err(Fault::new("config-too-long", message));
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok((text, directory::is_for_caller(&about)))
}

/// Makes the report for a config file that can't be read, with the origin of its path and a hint.
fn unreadable(fault: Fault, environment: &Environment) -> Report {
    match environment.value(CONFIG) {
        Some(path) => fault
            .hint("correct or unset PCAP_CONFIG")
            .report(environment::place_of_value(CONFIG, path)),
        None => fault
            .hint("correct or remove it, or set PCAP_CONFIG=/dev/null")
            .unplaced(),
    }
}

const CONFIG: &str = "PCAP_CONFIG";
const CONFIG_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::fanout::{Fanout, Script};
    use crate::source::Source;
    use crate::steering::Steering;
    use std::ffi::OsString;

    /// A directory with an `etc.conf` that sets group 1 and a `.pcap.conf` that sets group 2.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Machine {
            let id = std::process::id();
            let directory = std::env::temp_dir().join(format!("fanpcap-{name}-{id}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("etc.conf"), "group = 1\n").unwrap();
            fs::write(directory.join(".pcap.conf"), "group = 2\n").unwrap();
            Machine(directory)
        }

        fn environment(&self, config: &str) -> Environment {
            let variable = |name: &str, value: OsString| (name.into(), value);
            let variables = vec![
                variable("HOME", self.0.clone().into()),
                variable(CONFIG, config.into()),
            ];
            let system_config = self.0.join("etc.conf");
            Environment {
                variables,
                secure: false,
                system_config,
            }
        }

        fn group(&self, environment: &Environment) -> Option<u16> {
            Settings::load(environment).unwrap().default_group()
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn the_machines_file_comes_before_the_users() {
        let machine = Machine::new("order");
        let mut environment = machine.environment("");
        assert_eq!(machine.group(&environment), Some(1));
        environment.system_config = machine.0.join("absent.conf");
        assert_eq!(machine.group(&environment), Some(2));
        environment.secure = true;
        assert_eq!(machine.group(&environment), None);
    }

    #[test]
    #[ignore = "needs root: gives files to another user"]
    fn another_users_file_is_ignored() {
        use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
        let machine = Machine::new("another");
        let mut environment = machine.environment("");
        environment.system_config = machine.0.join("absent.conf");
        let (home, file) = (&machine.0, machine.0.join(".pcap.conf"));
        let group = || machine.group(&environment);
        for path in [home, &file] {
            chown(path, Some(65_534), None).unwrap();
            assert_eq!(group(), None, "{}", path.display());
            chown(path, Some(0), None).unwrap();
            assert_eq!(group(), Some(2));
        }
        fs::rename(&file, home.join("root-only")).unwrap();
        symlink("root-only", &file).unwrap();
        assert_eq!(group(), Some(2), "a link of root's");
        lchown(&file, Some(65_534), None).unwrap();
        assert_eq!(group(), None, "a link of another's");
        lchown(&file, Some(0), None).unwrap();
        fs::set_permissions(home, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(group(), None, "where everybody makes names");
    }

    #[test]
    #[ignore = "needs root: gives files to another user"]
    fn the_machines_file_is_believed_only_if_others_cant_change_it() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let machine = Machine::new("machines");
        let (environment, file) = (machine.environment(""), machine.0.join("etc.conf"));
        let ids = |user, group, mode| {
            chown(&file, Some(user), Some(group)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            Settings::load(&environment).map_err(|report| report.to_string())
        };
        for (user, group, mode) in [(0, 0, 0o644), (0, 0, 0o664), (0, 5, 0o640)] {
            assert_eq!(ids(user, group, mode).unwrap().default_group(), Some(1));
        }
        for (user, group, mode) in [(65_534, 0, 0o644), (0, 0, 0o666), (0, 5, 0o664)] {
            let error = ids(user, group, mode).unwrap_err();
            let expected = match user {
                0 => format!("can be written by others (mode {mode:o}); "),
                _ => format!("belongs to user {user}; "),
            };
            assert!(error.contains(&expected), "{error}");
        }
        // A user who names the file in PCAP_CONFIG may see its lines.
        let named = machine.environment(file.to_str().unwrap());
        assert_eq!(machine.group(&named), Some(1));
    }

    /// The errors of the file at `path`: first as the config file of `machine`, then as a steering
    /// program.
    fn errors(machine: &Machine, path: &Path) -> [String; 2] {
        let path = path.to_str().unwrap().to_owned();
        let environment = machine.environment(&path);
        let as_program = move || {
            let source = Source::new("test", &format!("file:{path}"));
            let Fanout::Program(script) = Fanout::parse(source).unwrap() else {
                panic!("a mode")
            };
            Steering::compile(&script, &|_| Err(String::new())).map(drop)
        };
        let as_config = move || Settings::load(&environment).map(drop);
        [error_in_time(as_config), error_in_time(as_program)]
    }

    fn error_in_time(load: impl FnOnce() -> Result<(), Report> + Send + 'static) -> String {
        let (done, result) = std::sync::mpsc::channel();
        // Do not join the thread, because it may wait for ever.
        std::thread::spawn(move || done.send(load()));
        let limit = std::time::Duration::from_secs(60);
        let result = result.recv_timeout(limit).expect("it waits");
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_pipe_is_an_error_before_it_has_a_writer() {
        let machine = Machine::new("pipe");
        let pipe = machine.0.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        for error in errors(&machine, &pipe) {
            assert!(error.contains("is not a regular file"), "{error}");
        }
    }

    #[test]
    #[ignore = "needs root: reads the kernel's log"]
    fn a_regular_file_that_blocks_is_an_error() {
        // A read of /proc/kmsg waits for the kernel's next message, if the caller may read this
        // file.
        for error in errors(&Machine::new("blocks"), Path::new("/proc/kmsg")) {
            assert!(error.contains("cannot read "), "{error}");
            assert!(error.contains("(os error 11)"), "{error}");
        }
    }

    #[test]
    #[ignore = "needs root: gives files to another user"]
    fn a_line_of_a_file_that_the_caller_may_not_read_is_not_shown() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let machine = Machine::new("withheld");
        let path = machine.0.join("file");
        fs::write(&path, "root:secret:0\n").unwrap();
        let shown = |mode, owner| {
            chown(&path, Some(owner), None).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            errors(&machine, &path).map(|error| {
                assert!(error.contains("/file:1:"), "{error}");
                error.contains("root") || error.contains("secret")
            })
        };
        assert_eq!(shown(0o644, 65_534), [true; 2]);
        assert_eq!(shown(0o640, 65_534), [false; 2]);
        assert_eq!(shown(0o600, fanpcap_linux::process::caller()), [true; 2]);
        // The steering program is compiled after the file was read. The compiler's error, too, must
        // show the program's line only if `is_shown`.
        fs::write(&path, "group = 5\n> main = secret\n").unwrap();
        for (mode, is_shown) in [(0o644, true), (0o640, false)] {
            chown(&path, Some(65_534), None).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let environment = machine.environment(path.to_str().unwrap());
            let settings = Settings::load(&environment).unwrap();
            let device = Device::classify("eth0", |_| true);
            let compile = |script: &Script| {
                let steering = Steering::compile(script, &|_| Err(String::new()));
                steering.map(std::sync::Arc::new)
            };
            let error = settings.plan(&device, None, &[], &compile).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("/file:2:"), "{error}");
            assert_eq!(error.contains("secret"), is_shown, "{error}");
        }
    }

    #[test]
    fn pcap_config_comes_before_both() {
        let machine = Machine::new("config");
        let file = machine.0.join(".pcap.conf").display().to_string();
        assert_eq!(machine.group(&machine.environment(&file)), Some(2));
        assert!(
            Settings::load(&machine.environment("/dev/null"))
                .unwrap()
                .is_empty()
        );
        let secure = Environment {
            secure: true,
            ..machine.environment(&file)
        };
        assert_eq!(machine.group(&secure), Some(1));
    }

    #[test]
    fn bytes_that_are_no_utf8_harm_nothing() {
        let machine = Machine::new("bytes");
        fs::write(machine.0.join("etc.conf"), b"# \xff\xfe\ngroup = 1\n").unwrap();
        assert_eq!(machine.group(&machine.environment("")), Some(1));
    }
}
