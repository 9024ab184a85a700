//! `fanpcap enable`, `fanpcap disable`: the library for every program of this machine, or no longer.

mod apparmor;
mod loader;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::library;
use apparmor::Profile;
use loader::Loader;

/// Lets this shell's programs, or every program of this machine, load fanpcap's libpcap
///
/// Without options it prints the line by which a shell's programs load the library, and changes nothing.
#[derive(Args, Debug)]
pub(crate) struct Enable {
    /// Every program of this machine, from now on, until `fanpcap disable --system`
    #[arg(long)]
    system: bool,
    /// Let AppArmor's profile of tcpdump allow what members of a group need; --system does so too
    #[arg(long)]
    apparmor: bool,
    /// The root directory of another system than the running one
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Takes back what `enable` has done
///
/// Without options it prints the line by which a shell goes back, and changes nothing.
#[derive(Args, Debug)]
pub(crate) struct Disable {
    /// For every program of this machine
    #[arg(long)]
    system: bool,
    /// The addition to AppArmor's profile of tcpdump only
    #[arg(long)]
    apparmor: bool,
    /// The root directory of another system than the running one
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
}

/// Does it.
pub(crate) fn enable(arguments: &Enable) -> Result<ExitCode> {
    let root = existing(&arguments.root)?;
    let directory = seen_from(&root, library::directory()?);
    if arguments.system {
        enable_system(&root, &directory)?;
    }
    if arguments.system || arguments.apparmor {
        enable_apparmor(&root, &directory, arguments.apparmor)?;
        return Ok(ExitCode::SUCCESS);
    }
    let own = own_path(Some(directory.as_path()));
    println!("{}", exported(Some(directory.as_path()), &own));
    eprintln!(
        "Nothing is changed: programs load the library when they are started with this variable."
    );
    eprintln!("In a shell: eval \"$(fanpcap enable)\". For one command: fanpcap run -- COMMAND.");
    eprintln!("For every program of this machine: fanpcap enable --system.");
    Ok(ExitCode::SUCCESS)
}

/// Takes it back.
pub(crate) fn disable(arguments: &Disable) -> Result<ExitCode> {
    let root = existing(&arguments.root)?;
    // It works without the library too: that may be the reason.
    let directory = library::directory().ok();
    let directory = directory.map(|directory| seen_from(&root, directory));
    if arguments.system {
        disable_system(&root, directory.as_deref())?;
    }
    if arguments.system || arguments.apparmor {
        disable_apparmor(&root, arguments.apparmor)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", exported(None, &own_path(directory.as_deref())));
    eprintln!("Nothing is changed. In a shell: eval \"$(fanpcap disable)\".");
    eprintln!("For every program of this machine: fanpcap disable --system.");
    Ok(ExitCode::SUCCESS)
}

fn enable_system(root: &Path, directory: &Path) -> Result<()> {
    let loader = Loader::new(root);
    let outcome = loader.enable(directory)?;
    let file = loader.file();
    if outcome.changed {
        println!("Wrote {} and ran ldconfig.", file.display());
    } else {
        println!("Already enabled by {}; ran ldconfig.", file.display());
    }
    let (name, ours) = (library::NAME, directory.join(library::NAME));
    println!("{name} is now {}", ours.display());
    for other in outcome.found.iter().skip(1) {
        println!("  before {}", other.display());
    }
    println!(
        "Every program that is started from now on and uses libpcap loads it. Those that run keep theirs;"
    );
    println!(
        "those linked with libpcap statically, or that name its directory themselves, are not reached."
    );
    println!(
        "Nothing changes for them without settings: /etc/pcap.conf or the environment, see pcap.conf(5)."
    );
    println!("To take it back: fanpcap disable --system");
    Ok(())
}

fn disable_system(root: &Path, directory: Option<&Path>) -> Result<()> {
    let loader = Loader::new(root);
    let outcome = loader.disable(directory)?;
    let file = loader.file();
    if outcome.changed {
        println!("Removed {} and ran ldconfig.", file.display());
    } else {
        println!("Not enabled: there is no {}.", file.display());
    }
    match outcome.found.first() {
        Some(first) => println!("{} is now {}", library::NAME, first.display()),
        None => println!("The loader has no {} now.", library::NAME),
    }
    println!("Programs that run keep theirs.");
    Ok(())
}

/// `asked` says whether silence would be a wrong answer.
fn enable_apparmor(root: &Path, directory: &Path, asked: bool) -> Result<()> {
    let Some(profile) = Profile::find(root) else {
        if asked {
            println!("AppArmor has no profile of tcpdump here: nothing to allow.");
        }
        return Ok(());
    };
    let rules = rules(root, directory)?;
    let (changed, file) = (profile.enable(directory, &rules)?, profile.file());
    if changed {
        println!(
            "AppArmor: a block in {} allows tcpdump what members need.",
            file.display()
        );
    } else if asked {
        println!("AppArmor: {} allows it already.", file.display());
    }
    Ok(())
}

fn disable_apparmor(root: &Path, asked: bool) -> Result<()> {
    let changed = Profile::find(root)
        .map(|profile| Ok::<_, anyhow::Error>((profile.disable()?, profile.file())))
        .transpose()?;
    match changed {
        Some((true, file)) => println!("AppArmor: removed the block in {}.", file.display()),
        _ if asked => println!("AppArmor: no block of ours there."),
        _ => {}
    }
    Ok(())
}

/// The rules that were installed with the library: share/fanpcap/apparmor beside the lib above it.
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

/// A directory as the system below `root` sees it.
fn seen_from(root: &Path, directory: PathBuf) -> PathBuf {
    match directory.strip_prefix(root) {
        Ok(inside) => Path::new("/").join(inside),
        Err(_) => directory,
    }
}

/// The directories of LD_LIBRARY_PATH other than ours.
fn own_path(directory: Option<&Path>) -> Vec<PathBuf> {
    let path = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    env::split_paths(&path)
        .filter(|entry| !entry.as_os_str().is_empty() && Some(entry.as_path()) != directory)
        .collect()
}

/// The shell's line that sets the variable to these directories, or unsets it.
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
