//! `fanpcap metrics`: the counters of groups and members for Prometheus.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::snapshot::Source;
use crate::streams;

mod exposition;
mod families;
mod server;

/// Prints the counters of groups and members as Prometheus wants them
///
/// Devices of this network namespace that have packet sockets, their fan-out groups, and members that run on this
/// library, in the text format 0.0.4.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// This device only; 'any' for sockets on all devices
    #[arg(value_name = "DEV")]
    device: Option<String>,
    /// Serve them by HTTP at /metrics; without an address, to this machine only
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = server::address, conflicts_with = "write")]
    listen: Option<std::net::SocketAddr>,
    /// Write them to a file, all at once: for node_exporter's textfile collector
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// Does it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut source = Source::new(arguments.device.as_deref())?;
    if let Some(address) = arguments.listen {
        return server::serve(address, || now(&mut source));
    }
    let text = now(&mut source)?;
    if let Some(path) = &arguments.write {
        write(path, &text).with_context(|| format!("writing {}", path.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    streams::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The metrics as they are now.
fn now(source: &mut Source) -> Result<String> {
    Ok(exposition::text(&families::of(&source.take()?)))
}

/// Writes a file that has its name only when it is whole. Until then it has one that the collector, which reads
/// `*.prom`, passes over.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let path = &replaceable(path)?;
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "this names no file"))?;
    let unfinished = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
    let unfinished = path.with_file_name(unfinished);
    let written = write_new(&unfinished, text).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // The error is told; what is left of the file is of no use.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// The file that a path stands for, links followed. What is there and no file, as a device, is not replaced.
fn replaceable(path: &Path) -> io::Result<PathBuf> {
    let wrong = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path.to_owned()),
        found => found?,
    };
    let path = path.canonicalize().map_err(|error| {
        let leads_nowhere = error.kind() == io::ErrorKind::NotFound;
        if leads_nowhere {
            wrong("this link leads nowhere: remove it")
        } else {
            error
        }
    })?;
    if !fs::metadata(&path)?.is_file() {
        return Err(wrong(
            "this is no regular file: name one, or a new one; without --write it is printed",
        ));
    }
    Ok(path)
}

/// Writes a file that was not there: a link that somebody put in its place is not followed.
fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_stays_beside_it() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("fanpcap.prom");
        for text in ["a long first text", "short"] {
            write(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        let beside = fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(beside.count(), 1);
    }

    #[test]
    fn links_stay_and_what_is_no_file_is_not_replaced() {
        let scratch = Scratch::new().unwrap();
        let (file, link, socket) = (
            scratch.file("file"),
            scratch.file("link"),
            scratch.file("s"),
        );
        fs::write(&file, "old").unwrap();
        symlink(&file, &link).unwrap();
        write(&link, "new").unwrap();
        assert!(link.is_symlink() && fs::read_to_string(&file).unwrap() == "new");
        let _listener = UnixListener::bind(&socket).unwrap();
        let nowhere = scratch.file("nowhere");
        symlink(scratch.file("absent"), &nowhere).unwrap();
        for wrong in [&socket, &nowhere] {
            let error = write(wrong, "text").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        assert!(!fs::metadata(&socket).unwrap().is_file() && nowhere.is_symlink());
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 4);
    }

    #[test]
    fn what_can_not_be_written_leaves_nothing() {
        let scratch = Scratch::new().unwrap();
        let taken = scratch.file("directory");
        fs::create_dir(&taken).unwrap();
        write(&taken, "text").unwrap_err();
        write(Path::new(".."), "text").unwrap_err();
        write(Path::new("/dev/null"), "text").unwrap_err();
        assert_eq!(fs::read_dir(taken.parent().unwrap()).unwrap().count(), 1);
    }
}
