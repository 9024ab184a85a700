//! Capture files that a copy has open although its arguments do not name them. For example, the
//! copy may be a script that names the files itself.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use fanpcap_linux::process::stat;

use super::files::Files;
use super::ledger::copy_of;
use fanpcap_merge::is_capture;

/// Captures that the copy's processes are writing and that `files` does not contain. `leader` is
/// the copy's first process.
pub(crate) fn of(leader: u32, files: &Files) -> Vec<PathBuf> {
    let of_copy = stat::pids().filter(|pid| copy_of(*pid, &[(leader, 0)]).is_some());
    let mut found: Vec<PathBuf> = of_copy
        .flat_map(written)
        .filter(|path| may_be_capture(path) && !files.contain(path))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The regular files that a process has open for writing.
fn written(pid: u32) -> Vec<PathBuf> {
    let of_process = PathBuf::from(format!("/proc/{pid}"));
    let entries = fs::read_dir(of_process.join("fd")).into_iter().flatten();
    let written = entries.flatten().filter_map(|entry| {
        let path = fs::read_link(entry.path()).ok()?;
        let info = of_process.join("fdinfo").join(entry.file_name());
        let is_written = is_for_writing(&fs::read_to_string(info).ok()?);
        (is_written && path.is_absolute() && path.is_file()).then_some(path)
    });
    written.collect()
}

/// Whether a descriptor is open for writing, by its `/proc/PID/fdinfo/N`. The flags are those of
/// open(2), in octal (proc(5)).
fn is_for_writing(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    // 3 is O_ACCMODE, and O_RDONLY is 0.
    flags.is_some_and(|flags| flags & 3 != 0)
}

/// Whether a file may be a capture: checks the content, or the name while the content is still in
/// the application's buffer.
fn may_be_capture(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut head));
    match is_capture(&head) {
        Some(known) => known && read.is_ok(),
        None => {
            let extension = path.extension().unwrap_or_default().to_string_lossy();
            read.is_ok() && (extension.contains("cap") || !head.is_empty())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;

    #[test]
    fn what_is_written_under_other_names_is_found() {
        let scratch = Scratch::new().unwrap();
        let [named, unnamed, empty, read, text] =
            ["0.pcap", "w0", "w0.pcap", "in.pcap", "0.log"].map(|name| scratch.file(name));
        fs::write(&read, b"\xd4\xc3\xb2\xa1").unwrap();
        let mut files: Vec<File> = [&named, &unnamed, &empty, &text]
            .map(|path| File::create(path).unwrap())
            .into();
        files.push(File::open(&read).unwrap());
        for path in [&named, &unnamed] {
            fs::write(path, b"\xd4\xc3\xb2\xa1").unwrap();
        }
        fs::write(&text, "text").unwrap();
        let known = Files::of(&[scratch.file("%i.pcap").into_os_string()], 0);
        let mut found = of(std::process::id(), &known);
        // Other tests in this process write files, too.
        found.retain(|path| path.starts_with(scratch.file("")));
        assert_eq!(found, [unnamed, empty]);
    }

    #[test]
    fn flags_are_octal() {
        assert!(is_for_writing("pos:\t0\nflags:\t0100001\nmnt_id:\t9\n"));
        assert!(!is_for_writing("pos:\t0\nflags:\t0100000\n"));
    }
}
