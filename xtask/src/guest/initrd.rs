//! The initrd of a guest: busybox, the modules that the guest needs to mount this machine's files,
//! and `init`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::kernel::Kernel;

/// The script that mounts the root. It runs on busybox.
const INIT: &str = include_str!("init.sh");
/// The modules to load, without the modules that these depend on.
const MODULES: [&str; 4] = ["virtio_pci", "9p", "9pnet_virtio", "overlay"];
const DIRECTORIES: [&str; 8] = ["bin", "dev", "modules", "proc", "root", "ro", "rw", "sys"];
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// Writes the initrd for a kernel.
pub(super) fn write(kernel: &Kernel, to: &Path) -> Result<()> {
    let mut archive = Cpio::default();
    for name in DIRECTORIES {
        archive.add(name, DIRECTORY, &[]);
    }
    let busybox = kernel.busybox();
    let bytes = fs::read(&busybox).with_context(|| format!("reading {}", busybox.display()))?;
    archive.add("bin/busybox", FILE, &bytes);
    for (number, file) in kernel.module_files(&MODULES)?.iter().enumerate() {
        // The names' order is the order in which `init` loads them.
        archive.add(&format!("modules/{number:02}.ko"), FILE, &module(file)?);
    }
    archive.add("init", FILE, INIT.as_bytes());
    fs::write(to, archive.ended()).with_context(|| format!("writing {}", to.display()))
}

/// The uncompressed bytes of a module.
fn module(file: &Path) -> Result<Vec<u8>> {
    if file.extension().is_none_or(|extension| extension != "xz") {
        return fs::read(file).with_context(|| format!("reading {}", file.display()));
    }
    let done = Command::new("xz").arg("-dc").arg(file).output();
    let done = done.context("starting xz")?;
    ensure!(done.status.success(), "xz -dc {}", file.display());
    Ok(done.stdout)
}

/// An archive in the format that the kernel unpacks (Documentation/driver-api/early-userspace).
#[derive(Default)]
struct Cpio {
    bytes: Vec<u8>,
    number: usize,
}

impl Cpio {
    fn add(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.number += 1;
        let zero = 0;
        let links = 1;
        let (number, size, length) = (self.number, data.len(), name.len() + 1);
        // Inode, mode, user, group, links, time, size, four device numbers, name's length,
        // checksum.
        let header = format!(
            "070701{number:08x}{mode:08x}{zero:08x}{zero:08x}{links:08x}{zero:08x}{size:08x}\
             {zero:08x}{zero:08x}{zero:08x}{zero:08x}{length:08x}{zero:08x}"
        );
        self.bytes.extend(header.as_bytes());
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(data);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn ended(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_names_and_data_at_multiples_of_four() {
        let mut archive = Cpio::default();
        archive.add("init", FILE, b"hello");
        let bytes = archive.ended();
        // A header has 110 bytes. The fifth byte of the name is its terminator.
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[14..22], b"000081ed");
        assert_eq!(&bytes[54..62], b"00000005");
        assert_eq!(&bytes[110..116], b"init\0\0");
        assert_eq!(&bytes[116..124], b"hello\0\0\0");
        assert_eq!(&bytes[124..130], b"070701");
        assert_eq!(bytes.len() % 4, 0);
    }
}
