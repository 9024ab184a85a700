//! Computes a fingerprint of the command's sources. The command compares it with the fingerprint of
//! another program, such as `fanpcap-bench`, to detect that the program comes from another build.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> io::Result<()> {
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut fingerprint = Fingerprint::new();
    for source in sources(&own.join(".."))? {
        println!("cargo:rerun-if-changed={}", source.display());
        fingerprint.add_tree(&source)?;
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=FANPCAP_FINGERPRINT={:016x}", fingerprint.0);
    Ok(())
}

/// The sources of the command and of the crates that it is built from.
fn sources(crates: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut open = vec!["fanpcap-cli".to_owned()];
    while let Some(name) = open.pop() {
        if found.contains(&name) {
            continue;
        }
        let manifest = crates.join(&name).join("Cargo.toml");
        println!("cargo:rerun-if-changed={}", manifest.display());
        let manifest = fs::read_to_string(manifest)?;
        let used = manifest
            .lines()
            .skip_while(|line| *line != "[dependencies]");
        let used = used.skip(1).take_while(|line| !line.starts_with('['));
        let used = used.filter_map(|line| line.split_once('.').map(|(name, _)| name));
        open.extend(
            used.filter(|name| name.starts_with("fanpcap"))
                .map(str::to_owned),
        );
        found.insert(name);
    }
    Ok(found
        .iter()
        .map(|name| crates.join(name).join("src"))
        .collect())
}

/// FNV-1a of 64 bits.
struct Fingerprint(u64);

impl Fingerprint {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// Adds all files below a directory, in the order of their names.
    fn add_tree(&mut self, directory: &Path) -> io::Result<()> {
        let entries = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path()));
        for path in entries.collect::<io::Result<BTreeSet<_>>>()? {
            if path.is_dir() {
                self.add_tree(&path)?;
            } else {
                self.add(&fs::read(&path)?);
            }
        }
        Ok(())
    }
}
