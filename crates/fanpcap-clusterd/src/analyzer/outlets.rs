//! Where an analyzer's packets go: files, collectors, tables.

use std::path::Path;

use anyhow::Result;
use fanpcap_cluster::analyzer::Delivered;

use super::exports::Exports;
use super::files::{Files, Rotation};
#[cfg(feature = "parquet")]
use super::tables::Tables;

/// Where files are written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Directories<'a> {
    /// Of pcapng files; `None`: there are none.
    pub(super) files: Option<&'a Path>,
    /// Of Parquet files.
    #[cfg(feature = "parquet")]
    pub(super) tables: Option<&'a Path>,
}

/// Each packet goes to all of them.
#[derive(Debug)]
pub(super) struct Outlets {
    files: Option<Files>,
    pub(super) exports: Option<Exports>,
    #[cfg(feature = "parquet")]
    tables: Option<Tables>,
}

impl Outlets {
    pub(super) fn open(directories: Directories<'_>, rotation: Rotation) -> Result<Self> {
        let files = directories.files.map(|at| Files::new(at, rotation));
        #[cfg(feature = "parquet")]
        let tables = directories.tables.map(|at| Tables::new(at, rotation));
        Ok(Self {
            files: files.transpose()?,
            exports: None,
            #[cfg(feature = "parquet")]
            tables: tables.transpose()?,
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
        #[cfg(feature = "parquet")]
        if let Some(tables) = &mut self.tables {
            tables.put(packet, now);
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
        #[cfg(feature = "parquet")]
        if let Some(tables) = &mut self.tables {
            tables.tick(now);
        }
    }

    /// Ends all files.
    pub(super) fn finish(&mut self, now: u64) {
        self.flush(now);
        #[cfg(feature = "parquet")]
        if let Some(tables) = &mut self.tables {
            tables.finish(now);
        }
    }

    /// Records that were written, and those that there was no room for: the worse of files and
    /// tables, which have the same records.
    pub(super) fn counts(&self) -> (u64, u64) {
        let files = self.files.as_ref();
        let counts = files.map_or((0, 0), |files| (files.written, files.unwritten));
        #[cfg(feature = "parquet")]
        let counts = self.tables.as_ref().map_or(counts, |tables| {
            let written = self.files.as_ref().map_or(u64::MAX, |files| files.written);
            (written.min(tables.written), counts.1.max(tables.unwritten))
        });
        counts
    }

    /// Why the last write failed, while it is so.
    pub(super) fn trouble(&self) -> Option<String> {
        let trouble = self.files.as_ref().and_then(|it| it.trouble.clone());
        #[cfg(feature = "parquet")]
        let trouble = trouble.or_else(|| self.tables.as_ref()?.trouble.clone());
        trouble
    }
}
