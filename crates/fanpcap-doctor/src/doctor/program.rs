//! Finds the program that `--program` names, and refuses a file that is none.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// The first bytes of an ELF file (elf(5)).
const ELF: &[u8] = b"\x7fELF";

/// The path of a program. A name without a slash is looked for in `PATH`.
///
/// # Errors
/// There is no such file, or it is no ELF program.
pub(super) fn find(named: &Path) -> Result<PathBuf> {
    let path = match named.components().count() {
        1 if !named.is_absolute() => in_path(named),
        _ => Some(named.to_owned()),
    };
    let path = path.with_context(|| {
        let named = named.display();
        format!("--program {named}: no directory in PATH has this program; write its path")
    })?;
    check(&path).with_context(|| format!("--program {}", path.display()))?;
    Ok(path)
}

fn in_path(name: &Path) -> Option<PathBuf> {
    let directories = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&directories).map(|directory| directory.join(name));
    places.find(|place| place.is_file())
}

fn check(path: &Path) -> Result<()> {
    let mut start = Vec::new();
    let is_file = path.metadata()?.is_file();
    ensure!(is_file, "this is no file: name the program's file");
    File::open(path)?.take(64).read_to_end(&mut start)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(line).into_owned();
        let interpreter = line.split_whitespace().next().unwrap_or_default();
        bail!("this is a script: name the program that runs it, {interpreter}");
    }
    ensure!(start.starts_with(ELF), "this is no program (no ELF file)");
    Ok(())
}

#[cfg(test)]
mod tests {
    use fanpcap_testkit::Scratch;

    use super::*;

    #[test]
    fn only_programs_are_examined() {
        let scratch = Scratch::new().unwrap();
        let script = scratch.write("script", "#!/usr/bin/python3 -u\n").unwrap();
        for (path, why) in [
            (scratch.file("nope"), "No such file"),
            (
                scratch.write("text", "root:x:0:0\n").unwrap(),
                "no ELF file",
            ),
            (script, "the program that runs it, /usr/bin/python3"),
            (scratch.file(""), "this is no file"),
            ("no-such-program".into(), "no directory in PATH"),
        ] {
            let error = format!("{:#}", find(&path).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
        let own = env::current_exe().unwrap();
        assert_eq!(find(&own).unwrap(), own);
        assert!(find(Path::new("sh")).unwrap().is_absolute());
    }
}
