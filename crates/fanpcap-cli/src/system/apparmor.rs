//! What AppArmor's profile of Debian's tcpdump needs: a marked block in its file for local additions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const PROFILE: &str = "etc/apparmor.d/usr.bin.tcpdump";
const LOCAL: &str = "etc/apparmor.d/local/usr.bin.tcpdump";
const BEGIN: &str = "# begin fanpcap: written by fanpcap enable, removed by fanpcap disable\n";
/// The same where there was no file: it goes with the block.
const BEGIN_FILE: &str =
    "# begin fanpcap, and this file: written by fanpcap enable, removed by fanpcap disable\n";
const END: &str = "# end fanpcap\n";

/// The profile of the system below a root directory.
#[derive(Debug)]
pub(crate) struct Profile {
    root: PathBuf,
}

impl Profile {
    /// The profile of the running system, or of another's root directory; none when it has none.
    pub(crate) fn find(root: &Path) -> Option<Self> {
        root.join(PROFILE).exists().then(|| Self {
            root: root.to_owned(),
        })
    }

    /// The file that is changed.
    pub(crate) fn file(&self) -> PathBuf {
        self.root.join(LOCAL)
    }

    /// Adds the block for the library in `directory` and the rules in `rules`; whether it was missing.
    ///
    /// # Errors
    /// When the file can't be written, or AppArmor refuses it: then it is as before.
    pub(crate) fn enable(&self, directory: &Path, rules: &Path) -> Result<bool> {
        let before = self.read()?;
        let after = with_block(before.as_deref(), directory, rules);
        self.change(before, Some(after))
    }

    /// Removes the block; whether there was one.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(crate) fn disable(&self) -> Result<bool> {
        let before = self.read()?;
        let after = before.as_deref().and_then(without_block);
        self.change(before, after)
    }

    fn change(&self, before: Option<String>, after: Option<String>) -> Result<bool> {
        if before == after {
            return Ok(false);
        }
        self.write(after.as_deref())?;
        if let Err(error) = self.reload() {
            self.write(before.as_deref())?;
            return Err(error);
        }
        Ok(true)
    }

    fn read(&self) -> Result<Option<String>> {
        let path = self.file();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    fn write(&self, text: Option<&str>) -> Result<()> {
        let path = self.file();
        match text {
            Some(text) => fs::write(&path, text),
            None => fs::remove_file(&path),
        }
        .with_context(|| format!("changing {}: run this as root", path.display()))
    }

    /// Only a kernel that enforces profiles has any to load anew.
    fn reload(&self) -> Result<()> {
        let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled");
        if self.root != Path::new("/") || !enabled.is_ok_and(|word| word.starts_with('Y')) {
            return Ok(());
        }
        let profile = self.root.join(PROFILE);
        let done = Command::new("apparmor_parser")
            .arg("-r")
            .arg(&profile)
            .output()
            .context("running apparmor_parser")?;
        let complaint = String::from_utf8_lossy(&done.stderr);
        ensure!(
            done.status.success(),
            "apparmor_parser -r {}: {}\n{complaint}",
            profile.display(),
            done.status
        );
        Ok(())
    }
}

/// The text with our block in front, and what was there as it was.
fn with_block(before: Option<&str>, directory: &Path, rules: &Path) -> String {
    let rest = before.map(|text| without_block(text).unwrap_or_default());
    let begin = match &rest {
        // A file that is all ours stays so.
        Some(_) if !before.is_some_and(|text| text.starts_with(BEGIN_FILE)) => BEGIN,
        Some(_) | None => BEGIN_FILE,
    };
    let (directory, rules) = (directory.display(), rules.display());
    format!(
        "{begin}  include if exists \"{rules}\"\n  \"{directory}/*.so*\" mr,\n{END}{}",
        rest.unwrap_or_default()
    )
}

/// The text without our block; none when the file was ours altogether.
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
            assert_eq!(enabled(Some(&text)), text, "twice is once");
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
