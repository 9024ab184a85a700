//! This node's identity: its id, which stays as long as the machine exists, and its boot's number.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fanpcap_cluster::NodeId;
use fanpcap_linux::file::directory::open_regular;

use crate::conf;
use crate::keyring::random;

pub(crate) const PATH: &str = "/var/lib/fanpcap/node-id";

/// Maximum number of bytes that are read from the file with the id.
const LONGEST: u64 = 64;

/// Reads the id from the file. If there is no file, draws a random id and writes it.
pub(crate) fn node_id(path: &Path) -> Result<NodeId> {
    let shown = path.display();
    if let Some(id) = read(path)? {
        return Ok(id);
    }
    let directory = path.parent().context("the node id's directory")?;
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let new = path.with_extension(std::process::id().to_string());
    let written = write(&new, draw()?).and_then(|()| fs::hard_link(&new, path));
    let _ = fs::remove_file(&new);
    match written {
        // Another process has written the file in the meantime.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        written => written.with_context(|| format!("writing {shown}"))?,
    }
    read(path)?.with_context(|| format!("{shown} is gone"))
}

/// The number of the machine's present boot. Nodes that run copies of one disk image have the same
/// node id, but different boot numbers.
pub(crate) fn boot() -> Result<u64> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let digits = digits
        .get(..16)
        .with_context(|| format!("{path} has {text:?}"))?;
    u64::from_str_radix(digits, 16).with_context(|| format!("{path} has {text:?}"))
}

fn read(path: &Path) -> Result<Option<NodeId>> {
    let shown = path.display();
    let file = match open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.with_context(|| format!("reading {shown}"))?,
    };
    let mut text = String::new();
    let read = file.take(LONGEST).read_to_string(&mut text);
    read.with_context(|| format!("reading {shown}"))?;
    ensure!(
        !text.trim().is_empty(),
        "{shown} is empty; remove it to draw a new id"
    );
    let id = conf::node(text.trim());
    id.map(Some)
        .with_context(|| format!("{shown}; remove it to draw a new id"))
}

fn draw() -> Result<NodeId> {
    loop {
        let id = u32::from_ne_bytes(random().context("reading /dev/urandom")?);
        if id != 0 {
            return Ok(NodeId(id));
        }
    }
}

fn write(path: &Path, id: NodeId) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o644)
        .open(path)?;
    writeln!(file, "{id}")?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use fanpcap_testkit::{Scratch, pipe};

    use super::*;

    #[test]
    fn an_id_is_drawn_once() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("id");
        let id = node_id(&path).unwrap();
        assert_eq!(node_id(&path).unwrap(), id);
        let other = scratch.file("other");
        assert_ne!(node_id(&other).unwrap(), id);
        fs::write(&path, "00000000\n").unwrap();
        let said = format!("{:#}", node_id(&path).unwrap_err());
        assert!(
            said.contains("remove it") && said.contains("no node id"),
            "{said}"
        );
        fs::write(&path, "\n").unwrap();
        node_id(&path).unwrap_err();
        fs::remove_file(&path).unwrap();
        pipe::opened(&path, node_id).unwrap().unwrap_err();
        assert_eq!(boot().unwrap(), boot().unwrap());
    }
}
