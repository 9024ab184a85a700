//! Compresses finished files, in a thread with the lowest priority.
//!
//! A compressed file appears by a rename, when it is complete. Then the original is removed. So one
//! of the two files always exists, even if the analyzer is killed.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use anyhow::{Context, Result};
use fanpcap_linux::file::directory::open_regular;
use fanpcap_linux::process::priority;
use fanpcap_terminal::streams;
use zstd::stream::write::Encoder;

use super::kept::{COMPRESSED, PART};

/// zstd's own default. A higher level costs much more time and saves little space.
const LEVEL: i32 = 3;

/// Counts compressed files.
#[derive(Debug, Default)]
pub(in super::super) struct CompressedFiles {
    pub(in super::super) files: AtomicU64,
    /// How many bytes the compression has saved.
    pub(in super::super) saved: AtomicU64,
}

/// The thread that compresses finished files.
#[derive(Debug)]
pub(super) struct Compressor {
    finished: Sender<PathBuf>,
    pub(super) counts: Arc<CompressedFiles>,
}

impl Compressor {
    /// Starts the thread. When this value is dropped, the thread finishes its file and ends.
    pub(super) fn start() -> Result<Self> {
        let (finished, files) = mpsc::channel::<PathBuf>();
        let counts: Arc<CompressedFiles> = Arc::default();
        let counted = Arc::clone(&counts);
        let work = move || {
            // If this fails, the thread still compresses, at the normal priority.
            let _ = priority::lower();
            for path in files {
                match compress(&path) {
                    Ok(None) => {}
                    Ok(Some(saved)) => {
                        counted.files.fetch_add(1, Ordering::Relaxed);
                        counted.saved.fetch_add(saved, Ordering::Relaxed);
                    }
                    Err(error) => streams::note(&format!(
                        "fanpcap analyzer: {} stays uncompressed until the next start: {error}\n",
                        path.display()
                    )),
                }
            }
        };
        let thread = thread::Builder::new().name("compress".to_owned());
        thread.spawn(work).context("starting a thread")?;
        Ok(Self { finished, counts })
    }

    /// Passes a finished file to the thread.
    pub(super) fn take(&self, path: PathBuf) {
        // The thread ends only when this value is dropped, so sending can't fail.
        let _ = self.finished.send(path);
    }
}

/// Compresses a file. Returns the number of bytes saved; `None` if the file was removed meanwhile.
fn compress(path: &Path) -> io::Result<Option<u64>> {
    let source = match open_regular(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        source => source?,
    };
    let part = with(path, PART);
    let whole = with(path, COMPRESSED);
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)?;
    let written = write(&source, &file).and_then(|saved| {
        fs::rename(&part, &whole)?;
        Ok(saved)
    });
    let saved = written.inspect_err(|_| {
        let _ = fs::remove_file(&part);
    })?;
    // The new name must be on the disk before the old name is removed from the disk.
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    match fs::remove_file(path) {
        // The original was removed under the files' limits, so the compressed file is removed, too.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::remove_file(&whole)?;
            Ok(None)
        }
        removed => removed.map(|()| Some(saved)),
    }
}

/// Writes the content of `source` into a new file, compressed. Returns the number of bytes saved.
fn write(mut source: &File, file: &File) -> io::Result<u64> {
    let about = source.metadata()?;
    let mut encoder = Encoder::new(file, LEVEL)?;
    encoder.include_checksum(true)?;
    encoder.set_pledged_src_size(Some(about.len()))?;
    io::copy(&mut source, &mut encoder)?;
    encoder.finish()?;
    file.set_times(FileTimes::new().set_modified(about.modified()?))?;
    file.sync_all()?;
    Ok(about.len().saturating_sub(file.metadata()?.len()))
}

/// The path with `end` added.
fn with(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use fanpcap_testkit::Scratch;

    use super::*;

    /// Content that takes a while to compress, and that compression makes smaller.
    fn content(bytes: u32) -> Vec<u8> {
        (0..bytes)
            .map(|at| (at.wrapping_mul(at) / 7).to_le_bytes()[0])
            .collect()
    }

    #[test]
    fn a_compressed_file_has_the_same_content_and_takes_the_place_of_the_other() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("records-1.pcapng");
        fs::write(&path, content(3_000_000)).unwrap();
        let time = fs::metadata(&path).unwrap().modified().unwrap();
        // An earlier run has left a complete compressed file.
        fs::write(with(&path, COMPRESSED), "old").unwrap();
        let saved = compress(&path).unwrap();
        let whole = with(&path, COMPRESSED);
        let about = fs::metadata(&whole).unwrap();
        assert_eq!(saved, Some(3_000_000 - about.len()));
        assert_eq!(about.modified().unwrap(), time);
        let read = zstd::decode_all(File::open(&whole).unwrap()).unwrap();
        assert_eq!(read, content(3_000_000));
        assert!(!path.exists() && !with(&path, PART).exists());
        assert_eq!(compress(&path).unwrap(), None);
    }

    #[test]
    fn a_file_that_cannot_be_compressed_stays() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.file("records-1.pcapng");
        fs::write(&path, "content").unwrap();
        let elsewhere = scratch.file("elsewhere");
        fs::write(&elsewhere, "mine").unwrap();
        let link = with(&path, PART);
        symlink(&elsewhere, &link).unwrap();
        compress(&path).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");
        assert!(link.is_symlink() && !with(&path, COMPRESSED).exists());
        fs::remove_file(&link).unwrap();
        // A directory has the name of the compressed file.
        fs::create_dir(with(&path, COMPRESSED)).unwrap();
        compress(&path).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert!(!link.exists());
    }
}
