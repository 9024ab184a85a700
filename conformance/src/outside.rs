//! What a variant needs besides our library: the plugin for DPDK, or a stand-in for netmap's module
//! or for PF_RING's library.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use fanpcap_testkit::library::library_dir;
use fanpcap_testkit::{Scratch, dpdk, netmap, pfring};

use crate::Variant;

/// Variables of the program that a run starts, or of its poller if there is one.
pub type Variables = Vec<(&'static str, String)>;

/// A shared object that was compiled once, and is written for each run.
struct Compiled(Mutex<Option<Vec<u8>>>);

static PLUGIN: Compiled = Compiled(Mutex::new(None));
static MODULE: Compiled = Compiled(Mutex::new(None));
static LIBRARY: Compiled = Compiled(Mutex::new(None));

/// Writes what a variant needs into a directory, and returns the variables that name it.
///
/// # Errors
/// It can't be compiled.
pub fn variables(variant: Variant, scratch: &Scratch) -> Result<Variables> {
    match variant {
        Variant::Dpdk => {
            let plugin = PLUGIN.write(scratch, "fanpcap-dpdk.so", dpdk::plugin)?;
            Ok(vec![("FANPCAP_DPDK_PLUGIN", plugin.display().to_string())])
        }
        Variant::Netmap => {
            let module = MODULE.write(scratch, "netmap.so", netmap::stand_in)?;
            Ok(vec![("LD_PRELOAD", module.display().to_string())])
        }
        Variant::Zc | Variant::Pfring => {
            let compile = |scratch: &Scratch| {
                let directory = pfring::stand_in(scratch)?;
                Ok(directory.join("libpfring.so"))
            };
            LIBRARY.write(scratch, "libpfring.so", compile)?;
            let [ours, beside] =
                [library_dir()?, scratch.file("")].map(|it| it.display().to_string());
            Ok(vec![("LD_LIBRARY_PATH", format!("{ours}:{beside}"))])
        }
        Variant::System
        | Variant::Staged
        | Variant::Tpacket
        | Variant::Group
        | Variant::Xdp
        | Variant::Packet
        | Variant::Afxdp => Ok(Vec::new()),
    }
}

impl Compiled {
    /// Writes the object to a file of this name, and compiles it first if it was not yet.
    fn write(
        &self,
        scratch: &Scratch,
        name: &str,
        compile: impl FnOnce(&Scratch) -> Result<PathBuf>,
    ) -> Result<PathBuf> {
        let mut bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let path = scratch.file(name);
        match &*bytes {
            Some(bytes) => fs::write(&path, bytes)?,
            None => *bytes = Some(fs::read(compile(scratch)?)?),
        }
        Ok(path)
    }
}
