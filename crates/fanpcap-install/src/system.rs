//! `fanpcap enable` and `fanpcap disable`: switches the library on or off. It does so for a shell,
//! or for every application of this machine.

mod loader;
mod apparmor;

use std::env;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use fanpcap_terminal::streams;

use crate::library;
use apparmor::{Change, Profile};
use loader::Loader;

/// Lets programs load fanpcap's libpcap: those of this shell, or all
///
/// Without options it prints the line that makes a shell's programs load the library, and changes
/// nothing.
#[derive(Args, Debug)]
pub struct Enable {
    /// Every program of this machine, from now on, until `fanpcap disable --system`
    #[arg(long)]
    system: bool,
    /// Let AppArmor's profile of tcpdump allow the access that members of a group need; --system
    /// does so too
    #[arg(long)]
    apparmor: bool,
    /// The root directory of another system than the running one
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Undoes what `enable` has done
///
/// Without options it prints the line that undoes `enable` in a shell, and changes nothing.
#[derive(Args, Debug)]
pub struct Disable {
    /// For every program of this machine
    #[arg(long)]
    system: bool,
    /// Only the addition to AppArmor's profile of tcpdump
    #[arg(long)]
    apparmor: bool,
    /// The root directory of another system than the running one
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Runs `fanpcap enable`.
///
/// # Errors
/// The library is not installed, or a file can't be written.
pub fn enable(arguments: &Enable) -> Result<ExitCode> {
    let root = existing(&arguments.root)?;
    let directory = seen_from(&root, library::directory()?);
    if arguments.system || arguments.apparmor {
        return told(|said| {
            if arguments.system {
                enable_system(&root, &directory, said)?;
            }
            enable_apparmor(&root, &directory, arguments.apparmor, said)
        });
    }
    let own = own_path(Some(directory.as_path()));
    let line = exported(Some(directory.as_path()), &own);
    let notes = "Nothing is changed: programs load the library when they are started with this variable.\n\
                 In a shell: eval \"$(fanpcap enable)\". For one command: fanpcap run -- COMMAND.\n\
                 For every program of this machine: fanpcap enable --system.\n";
    for_shell(&line, notes)
}

/// Runs `fanpcap disable`.
///
/// # Errors
/// A file can't be removed, or ldconfig can't be run.
pub fn disable(arguments: &Disable) -> Result<ExitCode> {
    let root = existing(&arguments.root)?;
    // This must work without the library too: the user may disable the library because it is
    // missing.
    let directory = library::directory().ok();
    let directory = directory.map(|directory| seen_from(&root, directory));
    if arguments.system || arguments.apparmor {
        return told(|said| {
            if arguments.system {
                disable_system(&root, directory.as_deref(), said)?;
            }
            disable_apparmor(&root, arguments.apparmor, said)
        });
    }
    let line = exported(None, &own_path(directory.as_deref()));
    let notes = "Nothing is changed. In a shell: eval \"$(fanpcap disable)\".\n\
                 For every program of this machine: fanpcap disable --system.\n";
    for_shell(&line, notes)
}

/// The libpcap that the loader gives to every program of this machine.
///
/// # Errors
/// ldconfig can't be run.
pub fn loaded_by_all() -> Result<Option<PathBuf>> {
    let directory = library::directory().unwrap_or_default();
    let found = Loader::new(Path::new("/")).found(&directory)?;
    Ok(found.into_iter().next())
}

/// Whether the running kernel has AppArmor's profile of tcpdump, and the profile denies what
/// members of a group need.
pub fn apparmor_hinders() -> bool {
    Profile::find(Path::new("/")).is_some_and(|profile| profile.hinders())
}

/// Does the work, then prints its messages, also if the work has failed. A closed standard output
/// does not stop the work.
fn told(work: impl FnOnce(&mut String) -> Result<()>) -> Result<ExitCode> {
    let mut said = String::new();
    let done = work(&mut said);
    let printed = streams::print(&said);
    done?;
    printed?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the line for the shell. The notes are for a user at a terminal.
fn for_shell(line: &str, notes: &str) -> Result<ExitCode> {
    streams::print(&format!("{line}\n"))?;
    if io::stdout().is_terminal() {
        streams::note(notes);
    }
    Ok(ExitCode::SUCCESS)
}

fn enable_system(root: &Path, directory: &Path, said: &mut String) -> Result<()> {
    let loader = Loader::new(root);
    let outcome = loader.enable(directory)?;
    let file = loader.file().display().to_string();
    *said += &if outcome.changed {
        format!("Wrote {file} and ran ldconfig.\n")
    } else {
        format!("Already enabled by {file}; ran ldconfig.\n")
    };
    let ours = directory.join(library::NAME);
    *said += &format!("{} is now {}\n", library::NAME, ours.display());
    for other in outcome.found.iter().skip(1) {
        *said += &format!("  before {}\n", other.display());
    }
    *said += "\
Every program that is started from now on and uses libpcap loads this library. Running programs keep
the library that they have loaded. Programs that are linked statically, or that name a directory of
libpcap themselves, do not load this library.
Without settings, programs work as before. Settings are in /etc/pcap.conf or the environment, see
pcap.conf(5).
To undo this: fanpcap disable --system
";
    Ok(())
}

fn disable_system(root: &Path, directory: Option<&Path>, said: &mut String) -> Result<()> {
    let loader = Loader::new(root);
    let outcome = loader.disable(directory)?;
    let file = loader.file().display().to_string();
    *said += &if outcome.changed {
        format!("Removed {file} and ran ldconfig.\n")
    } else {
        format!("Not enabled: there is no {file}.\n")
    };
    let name = library::NAME;
    *said += &match outcome.found.first() {
        Some(first) => format!("{name} is now {}\n", first.display()),
        None => format!("The loader has no {name} now.\n"),
    };
    *said += "Running programs keep the library that they have loaded.\n";
    Ok(())
}

/// Adds our block to AppArmor's profile. `asked` says whether the user asked for this change, so
/// that the command must report even that nothing changed.
fn enable_apparmor(root: &Path, directory: &Path, asked: bool, said: &mut String) -> Result<()> {
    let Some(profile) = Profile::find(root) else {
        if asked {
            *said += "AppArmor has no profile of tcpdump here: nothing to allow.\n";
        }
        return Ok(());
    };
    let rules = rules(root, directory)?;
    let change = profile.enable(directory, &rules)?;
    let file = profile.file().display().to_string();
    if change != Change::None {
        *said += &format!("AppArmor: a block in {file} allows tcpdump what members need.\n");
    } else if asked {
        *said += &format!("AppArmor: {file} already allows tcpdump what members need.\n");
    }
    warn(&change);
    Ok(())
}

fn disable_apparmor(root: &Path, asked: bool, said: &mut String) -> Result<()> {
    let Some(profile) = Profile::find(root) else {
        if asked {
            *said += "AppArmor: there is no block of fanpcap.\n";
        }
        return Ok(());
    };
    let change = profile.disable()?;
    if change != Change::None {
        let file = profile.file().display().to_string();
        *said += &format!("AppArmor: removed the block in {file}.\n");
    } else if asked {
        *said += "AppArmor: there is no block of fanpcap.\n";
    }
    warn(&change);
    Ok(())
}

/// Warns if the kernel still has the old profile. The changed file is kept even then.
fn warn(change: &Change) {
    if let Change::NotLoaded(reason) = change {
        streams::note(&format!(
            "fanpcap: AppArmor's profile of tcpdump was not reloaded, so the old profile stays in \
             force until it is: {reason}\n"
        ));
    }
}

/// The path of the rules that were installed with the library: share/fanpcap/apparmor, next to the
/// lib directory that contains the library.
fn rules(root: &Path, directory: &Path) -> Result<PathBuf> {
    let places = directory
        .ancestors()
        .map(|above| above.join("share/fanpcap/apparmor"));
    let inside = |path: &PathBuf| root.join(path.strip_prefix("/").unwrap_or(path)).exists();
    places.into_iter().find(inside).with_context(|| {
        let directory = directory.display();
        format!("no share/fanpcap/apparmor belongs to {directory}: install fanpcap by make install")
    })
}

fn existing(root: &Path) -> Result<PathBuf> {
    root.canonicalize()
        .with_context(|| format!("the root directory {}", root.display()))
}

/// `directory` as a path in the system below `root`.
fn seen_from(root: &Path, directory: PathBuf) -> PathBuf {
    match directory.strip_prefix(root) {
        Ok(inside) => Path::new("/").join(inside),
        Err(_) => directory,
    }
}

/// The directories of LD_LIBRARY_PATH except ours.
fn own_path(directory: Option<&Path>) -> Vec<PathBuf> {
    let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter(|entry| !entry.as_os_str().is_empty() && Some(entry.as_path()) != directory)
        .collect()
}

/// The shell line that sets LD_LIBRARY_PATH to these directories, or unsets it.
fn exported(first: Option<&Path>, others: &[PathBuf]) -> String {
    let all = first.into_iter().chain(others.iter().map(PathBuf::as_path));
    let path: Vec<String> = all.map(|entry| entry.display().to_string()).collect();
    if path.is_empty() {
        return "unset LD_LIBRARY_PATH".to_owned();
    }
    let quoted = path.join(":").replace('\'', r"'\''");
    format!("export LD_LIBRARY_PATH='{quoted}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_stays_one_when_all_is_told() {
        let failed = told(|_| anyhow::bail!("no"));
        assert_eq!(failed.unwrap_err().to_string(), "no");
        told(|_| Ok(())).unwrap();
    }

    #[test]
    fn a_shell_can_read_the_line() {
        let own = [PathBuf::from("/opt/it's/lib")];
        assert_eq!(
            exported(Some(Path::new("/usr/lib/fanpcap")), &own),
            r"export LD_LIBRARY_PATH='/usr/lib/fanpcap:/opt/it'\''s/lib'"
        );
        assert_eq!(
            exported(None, &own),
            r"export LD_LIBRARY_PATH='/opt/it'\''s/lib'"
        );
        assert_eq!(exported(None, &[]), "unset LD_LIBRARY_PATH");
    }

    #[test]
    fn another_root_has_its_own_paths() {
        let inside = PathBuf::from("/srv/root/usr/lib/fanpcap");
        let seen = seen_from(Path::new("/srv/root"), inside.clone());
        assert_eq!(seen, Path::new("/usr/lib/fanpcap"));
        assert_eq!(seen_from(Path::new("/"), inside.clone()), inside);
    }
}
