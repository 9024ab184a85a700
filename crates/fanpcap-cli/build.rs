//! A fingerprint of the sources that the command and `fanpcap-bench` are both built from, by which
//! the command finds that a bench is of another build.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> io::Result<()> {
    let own = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let mut fingerprint = Fingerprint::new();
    for source in sources(&own)? {
        // A change there recompiles this crate in any case.
        println!("cargo:rerun-if-changed={}", source.display());
        fingerprint.add_tree(&source)?;
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=FANPCAP_FINGERPRINT={:016x}", fingerprint.0);
    Ok(())
}

/// The sources of this crate and of those that its Cargo.toml names.
fn sources(own: &Path) -> io::Result<Vec<PathBuf>> {
    let manifest = fs::read_to_string(own.join("Cargo.toml"))?;
    let used = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]");
    let used = used.skip(1).take_while(|line| !line.starts_with('['));
    let used = used.filter_map(|line| line.split_once('.').map(|(name, _)| name));
    let used = used.filter(|name| name.starts_with("fanpcap"));
    let used = used.map(|name| own.join("..").join(name).join("src"));
    Ok([own.join("src")].into_iter().chain(used).collect())
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

    /// Adds what lies below a directory, in the order of names.
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
