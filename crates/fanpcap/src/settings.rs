//! Settings: environment over config file, read whole and checked before anything is done.

pub mod environment;
pub mod file;
mod keys;
mod plan;

use crate::report::{Fault, Report, shorten};
pub use environment::Environment;
pub use keys::{Entry, Key, Target, Value};
pub use plan::{Call, Group, Membership, Plan};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// All settings of a process, checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    environment: Vec<Entry>,
    file: Vec<Entry>,
}

impl Settings {
    /// Reads the environment and the config file that it or the machine names.
    pub fn load(environment: &Environment) -> Result<Settings, Report> {
        let entries = environment::parse(environment)?;
        let file = match config_path(environment) {
            Some(path) => {
                let text = read(&path).map_err(|fault| unreadable(fault, environment))?;
                file::parse(&text, &path.to_string_lossy())?
            }
            None => Vec::new(),
        };
        Ok(Settings {
            environment: entries,
            file,
        })
    }

    /// Nothing is set: every handle is the system library's own.
    pub fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.file.is_empty()
    }

    /// What the environment, else the file, sets for `key` and every handle.
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

/// PCAP_CONFIG, else the first that exists of /etc/pcap.conf and $HOME/.pcap.conf.
fn config_path(environment: &Environment) -> Option<PathBuf> {
    if let Some(path) = environment.value(CONFIG) {
        return Some(PathBuf::from(path));
    }
    let home = environment
        .value("HOME")
        .map(|home| Path::new(home).join(".pcap.conf"));
    let paths = [Some(environment.system_config.clone()), home];
    paths.into_iter().flatten().find(|path| path.exists())
}

/// The file's text. Only a regular file gives the same settings at every handle's opening, so
/// pipes and terminals are refused; /dev/null says "no file".
fn read(path: &Path) -> Result<String, Fault> {
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
    let file = File::open(path).map_err(failed)?;
    file.take(CONFIG_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > CONFIG_MAX {
        let message = format!("config file '{name}' is longer than {CONFIG_MAX} bytes");
        return Err(Fault::new("config-too-long", message));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Says where the path came from and what to do about it.
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
