//! Adds a marked block to the local additions of AppArmor's profile of Debian's tcpdump.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::loader::read;

const PROFILE: &str = "etc/apparmor.d/usr.bin.tcpdump";
const LOCAL: &str = "etc/apparmor.d/local/usr.bin.tcpdump";
const BEGIN: &str = "# begin fanpcap: written by fanpcap enable, removed by fanpcap disable\n";
/// First line of a file that we created: disabling removes the whole file.
const BEGIN_FILE: &str =
    "# begin fanpcap, and this file: written by fanpcap enable, removed by fanpcap disable\n";
const END: &str = "# end fanpcap\n";

/// The profile of the system below a root directory.
#[derive(Debug)]
pub(crate) struct Profile {
    root: PathBuf,
    /// `None` for a system that is not running, because no kernel has loaded its profiles.
    kernel: Option<Kernel>,
}

/// The kernel's list of loaded profiles, and the program that reloads a profile.
#[derive(Debug)]
struct Kernel {
    /// The list: one profile a line, with its mode in parentheses.
    profiles: PathBuf,
    parser: PathBuf,
}

/// Result of a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The file already had the wanted content.
    None,
    /// The file was changed, and the kernel has loaded the profile.
    Done,
    /// The file was changed, but the kernel still has the old profile, for this reason.
    NotLoaded(String),
}

impl Profile {
    /// The profile of the running system, or of the system below `root`; `None` if it has none.
    pub(crate) fn find(root: &Path) -> Option<Self> {
        let running = || Kernel {
            profiles: "/sys/kernel/security/apparmor/profiles".into(),
            parser: "apparmor_parser".into(),
        };
        root.join(PROFILE).exists().then(|| Self {
            root: root.to_owned(),
            kernel: (root == Path::new("/")).then(running),
        })
    }

    /// The file with the local additions.
    pub(crate) fn file(&self) -> PathBuf {
        self.root.join(LOCAL)
    }

    /// Whether the kernel enforces the profile without our block.
    pub(crate) fn hinders(&self) -> bool {
        let is_loaded = self.kernel.as_ref().is_some_and(Kernel::has_tcpdump);
        let local = read(&self.file()).ok().flatten().unwrap_or_default();
        is_loaded && !local.contains(END)
    }

    /// Adds the block for the library in `directory` and the rules in `rules`, if it is missing.
    ///
    /// # Errors
    /// The file can't be written.
    pub(crate) fn enable(&self, directory: &Path, rules: &Path) -> Result<Change> {
        let before = read(&self.file())?;
        let after = with_block(before.as_deref(), directory, rules);
        self.change(before, Some(after))
    }

    /// Removes the block, if there is one.
    ///
    /// # Errors
    /// The file can't be written.
    pub(crate) fn disable(&self) -> Result<Change> {
        let before = read(&self.file())?;
        let after = before.as_deref().and_then(without_block);
        self.change(before, after)
    }

    /// Writes the file, and keeps the change even if AppArmor refuses the profile. If a refusal
    /// undid the change, the block would stay in the file after the package is removed.
    fn change(&self, before: Option<String>, after: Option<String>) -> Result<Change> {
        if before == after {
            return Ok(Change::None);
        }
        self.write(after.as_deref())?;
        let loaded = self.kernel.as_ref().map(|kernel| self.reload(kernel));
        match loaded.unwrap_or(Ok(())) {
            Ok(()) => Ok(Change::Done),
            Err(error) => Ok(Change::NotLoaded(format!("{error:#}"))),
        }
    }

    /// Writes or removes the file. Its directory may be missing where packages were unpacked and
    /// not configured.
    fn write(&self, text: Option<&str>) -> Result<()> {
        let path = self.file();
        let directory = path.parent().unwrap_or(&self.root);
        let changed = match text {
            Some(text) => fs::create_dir_all(directory).and_then(|()| fs::write(&path, text)),
            None => fs::remove_file(&path),
        };
        changed.with_context(|| format!("changing {}: run this as root", path.display()))?;
        if text.is_none() {
            // Fails if the directory has other files.
            let _ = fs::remove_dir(directory);
        }
        Ok(())
    }

    /// Reloads the profile, if the kernel has it loaded.
    fn reload(&self, kernel: &Kernel) -> Result<()> {
        if !kernel.has_tcpdump() {
            return Ok(());
        }
        let profile = self.root.join(PROFILE);
        let done = Command::new(&kernel.parser)
            .arg("-r")
            .arg(&profile)
            .output()
            .context("running apparmor_parser")?;
        let complaint = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "apparmor_parser -r {}: {}\n{}",
            profile.display(),
            done.status,
            complaint.trim_end()
        );
        Ok(())
    }
}

impl Kernel {
    /// Whether the kernel has tcpdump's profile loaded: `tcpdump (enforce)`, or formerly
    /// `/usr/sbin/tcpdump (complain)`. If the list is missing, AppArmor has no profiles.
    fn has_tcpdump(&self) -> bool {
        let profiles = fs::read_to_string(&self.profiles).unwrap_or_default();
        profiles.lines().any(|line| {
            let name = line.rsplit_once(" (").map_or(line, |(name, _)| name);
            name.rsplit('/').next() == Some("tcpdump")
        })
    }
}

/// The text with our block before the previous text.
fn with_block(before: Option<&str>, directory: &Path, rules: &Path) -> String {
    let rest = before.map(|text| without_block(text).unwrap_or_default());
    let begin = match &rest {
        // A file that we created keeps its first line.
        Some(_) if !before.is_some_and(|text| text.starts_with(BEGIN_FILE)) => BEGIN,
        Some(_) | None => BEGIN_FILE,
    };
    let (directory, rules) = (directory.display(), rules.display());
    format!(
        "{begin}  include if exists \"{rules}\"\n  \"{directory}/*.so*\" mr,\n{END}{}",
        rest.unwrap_or_default()
    )
}

/// The text without our block; `None` if we created the file.
fn without_block(text: &str) -> Option<String> {
    for begin in [BEGIN, BEGIN_FILE] {
        let Some(start) = text.find(begin) else {
            continue;
        };
        let Some(length) = text[start..].find(END) else {
            continue;
        };
        let (before, after) = (&text[..start], &text[start + length + END.len()..]);
        let rest = format!("{before}{after}");
        return (begin == BEGIN || !rest.is_empty()).then_some(rest);
    }
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;
    use std::os::unix::fs::PermissionsExt;

    /// A system with the profile, a kernel with these loaded profiles, and this script as parser.
    fn profile(scratch: &Scratch, loaded: &str, parser: Option<&str>) -> Profile {
        let (root, path) = (scratch.file("root"), scratch.file("parser"));
        fs::create_dir_all(root.join("etc/apparmor.d/local")).unwrap();
        fs::write(root.join(PROFILE), "").unwrap();
        if let Some(script) = parser {
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Profile {
            root,
            kernel: Some(Kernel {
                profiles: scratch.write("profiles", loaded).unwrap(),
                parser: path,
            }),
        }
    }

    const HAS_IT: &str = "man_groff (enforce)\ntcpdump (enforce)\n";

    #[test]
    fn what_can_not_be_loaded_is_a_warning_and_the_file_is_changed() {
        for parser in [Some("echo no >&2; exit 1"), None] {
            let scratch = Scratch::new().unwrap();
            let profile = profile(&scratch, HAS_IT, parser);
            let warned = |change: Change| {
                let Change::NotLoaded(reason) = change else {
                    panic!("{change:?}")
                };
                assert!(reason.contains("apparmor_parser"), "{reason}");
            };
            warned(
                profile
                    .enable(Path::new("/lib/f"), Path::new("/r"))
                    .unwrap(),
            );
            assert!(read(&profile.file()).unwrap().is_some());
            warned(profile.disable().unwrap());
            assert_eq!(read(&profile.file()).unwrap(), None);
            assert_eq!(profile.disable().unwrap(), Change::None);
            assert!(!profile.file().parent().unwrap().exists());
            warned(
                profile
                    .enable(Path::new("/lib/f"), Path::new("/r"))
                    .unwrap(),
            );
            assert!(read(&profile.file()).unwrap().is_some());
        }
    }

    #[test]
    fn only_a_loaded_profile_is_loaded_anew() {
        let scratch = Scratch::new().unwrap();
        let ran = scratch.file("ran");
        let script = format!("echo \"$@\" >>{}", ran.display());
        let enable = |loaded| {
            let profile = profile(&scratch, loaded, Some(&script));
            let change = profile
                .enable(Path::new("/lib/f"), Path::new("/r"))
                .unwrap();
            profile.write(None).unwrap();
            (change, ran.exists())
        };
        assert_eq!(
            enable("man_groff (enforce)\ntcpdumper (enforce)\n"),
            (Change::Done, false)
        );
        assert_eq!(
            enable("/usr/sbin/tcpdump (complain)\n"),
            (Change::Done, true)
        );
        assert_eq!(enable(HAS_IT), (Change::Done, true));
        let said = fs::read_to_string(ran).unwrap();
        assert!(
            said.lines().count() == 2 && said.starts_with("-r "),
            "{said}"
        );
    }

    fn enabled(before: Option<&str>) -> String {
        let rules = Path::new("/usr/share/fanpcap/apparmor");
        with_block(before, Path::new("/usr/lib/fanpcap"), rules)
    }

    #[test]
    fn a_block_goes_as_it_came() {
        for before in ["", "\n", "  /srv/** r,", "# mine\n  /srv/** r,\n\n"] {
            let text = enabled(Some(before));
            assert!(text.contains("include if exists \"/usr/share/fanpcap/apparmor\""));
            assert!(text.contains("\"/usr/lib/fanpcap/*.so*\" mr,"));
            assert_eq!(
                enabled(Some(&text)),
                text,
                "a second enable changes nothing"
            );
            assert_eq!(without_block(&text).as_deref(), Some(before));
        }
    }

    #[test]
    fn a_file_of_ours_goes_with_the_block_but_not_with_what_others_added() {
        let text = enabled(None);
        assert_eq!(enabled(Some(&text)), text);
        assert_eq!(without_block(&text), None);
        let more = text + "  /srv/** r,\n";
        assert_eq!(without_block(&more).as_deref(), Some("  /srv/** r,\n"));
    }

    #[test]
    fn what_is_not_ours_stays() {
        assert_eq!(without_block("# end fanpcap\n").unwrap(), "# end fanpcap\n");
        assert_eq!(without_block(BEGIN).unwrap(), BEGIN);
    }
}
