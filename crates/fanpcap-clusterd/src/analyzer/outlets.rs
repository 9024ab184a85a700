//! Where an analyzer's packets go: files and collectors.

use std::path::Path;

use anyhow::Result;
use fanpcap_cluster::analyzer::Delivered;

use super::exports::Exports;
use super::files::{Files, Rotation};

/// Each packet goes to all of them.
#[derive(Debug)]
pub(super) struct Outlets {
    files: Option<Files>,
    pub(super) exports: Option<Exports>,
}

impl Outlets {
    /// Writes files into a directory, if there is one.
    pub(super) fn open(directory: Option<&Path>, rotation: Rotation) -> Result<Self> {
        let files = directory.map(|at| Files::new(at, rotation));
        Ok(Self {
            files: files.transpose()?,
            exports: None,
        })
    }

    /// Takes a packet at `now`, in nanoseconds since 1970.
    pub(super) fn put(&mut self, packet: &Delivered<'_>, now: u64) {
        if let Some(files) = &mut self.files {
            files.put(packet, now);
        }
        if let Some(exports) = &mut self.exports {
            exports.packet(packet);
        }
    }

    /// Lets others have what waits. Call it once in a while.
    pub(super) fn flush(&mut self, now: u64) {
        if let Some(files) = &mut self.files {
            files.flush(now);
        }
        if let Some(exports) = &mut self.exports {
            exports.flush();
        }
    }

    /// Records that were written, and those that there was no room for.
    pub(super) fn counts(&self) -> (u64, u64) {
        let files = self.files.as_ref();
        files.map_or((0, 0), |files| (files.written, files.unwritten))
    }

    /// Why the last write failed, while it is so.
    pub(super) fn trouble(&self) -> Option<String> {
        self.files.as_ref()?.trouble.clone()
    }
}
