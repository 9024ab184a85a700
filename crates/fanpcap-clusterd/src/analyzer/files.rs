//! The pcapng files that an analyzer writes one after the other; the oldest are removed.
//!
//! Whole blocks are written, so that a file is valid even if the analyzer is killed. Only the last
//! packet may be cut off. The next analyzer writes this packet again. When the disk is full and no
//! old file may be removed, packets are counted and not written. A new file begins as soon as there
//! is room.

mod kept;
mod compressor;
mod written;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use fanpcap_cluster::analyzer::Delivered;
use fanpcap_cluster::{NodeId, Revision};

use crate::pcapng;
use compressor::{CompressedFiles, Compressor};
use kept::KeptFiles;
pub(super) use kept::{RemovedFiles, Retention};
use written::WrittenPackets;

/// Bytes that are collected in the buffer before they are written.
const BUFFER: usize = 1 << 20;

/// Nanoseconds between two attempts to write to a full disk.
const RETRY: u64 = 1_000_000_000;

/// When another file begins, and which files are kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rotation {
    /// Maximum number of bytes in a file.
    pub(super) bytes: u64,
    /// Maximum time, in nanoseconds, for which one file is written.
    pub(super) time: u64,
    pub(super) keep: Retention,
    pub(super) compress: bool,
}

/// The files in the analyzer's directory.
#[derive(Debug)]
pub(super) struct Files {
    directory: PathBuf,
    rotation: Rotation,
    kept: KeptFiles,
    compressor: Option<Compressor>,
    /// The packets that the previous analyzer wrote.
    before: WrittenPackets,
    open: Option<OpenFile>,
    buffer: Vec<u8>,
    buffered: u64,
    next_try: u64,
    /// The time in the last file's name.
    begun: u64,
    pub(super) written: u64,
    /// Packets that were not written for lack of space.
    pub(super) unwritten: u64,
    /// Why the last write failed; `None` if it succeeded.
    pub(super) trouble: Option<String>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    since: u64,
    bytes: u64,
    is_empty: bool,
    interfaces: BTreeMap<(NodeId, Revision, u16), u32>,
}

impl Files {
    /// The files in `directory`, which is made if it does not exist. If nodes send packets again
    /// that the newest existing files already have, these packets are not written again.
    pub(super) fn new(directory: &Path, rotation: Rotation) -> Result<Self> {
        make(directory)?;
        Ok(Self {
            directory: directory.to_owned(),
            rotation,
            kept: KeptFiles::new(directory, rotation.keep),
            compressor: compressor(directory, rotation.compress)?,
            before: WrittenPackets::read(directory),
            open: None,
            buffer: Vec::new(),
            buffered: 0,
            next_try: 0,
            begun: 0,
            written: 0,
            unwritten: 0,
            trouble: None,
        })
    }

    /// Writes a packet, at `now` in nanoseconds since 1970.
    pub(super) fn put(&mut self, packet: &Delivered<'_>, now: u64) {
        if self.before.has(packet, now) {
            self.written += 1;
            return;
        }
        if self.open.is_none() && !self.begin(now) {
            self.unwritten += 1;
            return;
        }
        let Some(open) = &mut self.open else {
            return;
        };
        let next = u32::try_from(open.interfaces.len()).unwrap_or(u32::MAX);
        let origin = (packet.node, packet.revision);
        let key = (packet.node, packet.revision, packet.link);
        let buffer = &mut self.buffer;
        let interface = *open.interfaces.entry(key).or_insert_with(|| {
            pcapng::interface(buffer, packet.link, origin);
            next
        });
        pcapng::packet(buffer, interface, packet);
        self.buffered += 1;
        if self.buffer.len() >= BUFFER {
            self.flush(now);
        }
    }

    /// Writes the collected packets. When the file has its maximum size or age, begins another
    /// file.
    pub(super) fn flush(&mut self, now: u64) {
        let Some(open) = &mut self.open else {
            return;
        };
        let bytes = open.bytes + self.buffer.len() as u64;
        // If the directory can't be read, beginning the next file fails too, and reports the error.
        let _ = self.kept.during_file((&open.path, bytes), now);
        let written = loop {
            match open.file.write_all_at(&self.buffer, open.bytes) {
                Err(error) if is_full(&error) && self.kept.make_room(Some(&open.path), now) => {}
                written => break written,
            }
        };
        match written {
            Ok(()) => {
                open.bytes = bytes;
                open.is_empty &= self.buffer.is_empty();
                self.written += self.buffered;
            }
            Err(error) => {
                // A part of a block may have been written.
                let _ = open.file.set_len(open.bytes);
                if open.is_empty {
                    // An empty file is removed. Otherwise each second would add an empty file, and
                    // old files with packets would be removed to make room.
                    let _ = fs::remove_file(&open.path);
                }
                self.unwritten += self.buffered;
                self.fail(&error, now);
            }
        }
        self.buffer.clear();
        self.buffered = 0;
        let Rotation { bytes, time, .. } = self.rotation;
        let is_finished =
            |open: &OpenFile| open.bytes >= bytes || now.saturating_sub(open.since) >= time;
        if self.open.as_ref().is_some_and(is_finished) {
            self.finish();
        }
    }

    /// Ends the file that is being written, if there is one.
    fn finish(&mut self) {
        let finished = self.open.take();
        if let (Some(compressor), Some(open)) = (&self.compressor, finished) {
            compressor.take(open.path);
        }
    }

    fn fail(&mut self, error: &io::Error, now: u64) {
        self.trouble = Some(error.to_string());
        self.next_try = now.saturating_add(RETRY);
        self.finish();
    }

    /// Begins a file. Returns whether a file is open now.
    fn begin(&mut self, now: u64) -> bool {
        if now < self.next_try {
            return false;
        }
        loop {
            match self.try_begin(now) {
                Err(error) if is_full(&error) && self.kept.make_room(None, now) => {}
                Err(error) => {
                    self.fail(&error, now);
                    return false;
                }
                Ok(()) => {
                    self.trouble = None;
                    return true;
                }
            }
        }
    }

    /// How many files were compressed; `None` if files are not compressed.
    pub(super) fn compressed(&self) -> Option<&CompressedFiles> {
        self.compressor.as_ref().map(|it| &*it.counts)
    }

    pub(super) fn removed(&self) -> RemovedFiles {
        self.kept.removed
    }

    fn try_begin(&mut self, now: u64) -> io::Result<()> {
        self.kept.before_file(now)?;
        // The files' names must increase, even if the clock is set back.
        self.begun = now.max(self.begun.saturating_add(1));
        let path = self.directory.join(kept::name(self.begun));
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        let mut head = Vec::new();
        pcapng::section(&mut head);
        if let Err(error) = file.write_all_at(&head, 0) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        self.open = Some(OpenFile {
            file,
            path,
            since: now,
            bytes: head.len() as u64,
            is_empty: true,
            interfaces: BTreeMap::new(),
        });
        Ok(())
    }
}

/// Removes files that a killed analyzer had compressed only in part. If finished files are to be
/// compressed, compresses the files that an earlier analyzer left uncompressed.
fn compressor(directory: &Path, is_wanted: bool) -> Result<Option<Compressor>> {
    // If the directory can't be listed, writing fails and reports that. If a partly compressed file
    // can't be removed, the compressor reports this when it compresses the original again.
    for part in kept::parts(directory).unwrap_or_default() {
        let _ = fs::remove_file(part);
    }
    if !is_wanted {
        return Ok(None);
    }
    let compressor = Compressor::start()?;
    for path in kept::uncompressed(directory).unwrap_or_default() {
        compressor.take(path);
    }
    Ok(Some(compressor))
}

/// Makes a directory for files, if there is none. Whatever the umask, only the user may read it.
fn make(directory: &Path) -> Result<()> {
    ensure!(
        !directory.is_file(),
        "{} is a file: name a directory for the analyzer's files",
        directory.display()
    );
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.with_context(|| format!("cannot make the directory {}", directory.display()))
}

/// Whether a write failed because there is no room.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

#[cfg(test)]
mod tests;
