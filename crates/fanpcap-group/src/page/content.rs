//! Reads the pages of other members, and writes the group's steering program to them.

use super::MemberId;
use crate::record::{MAGIC, Record, WORDS, at, title_words};
use fanpcap_config::steering::Steering;
use fanpcap_linux::file::{
    directory::{self, Access, Directory},
    lock, shared,
};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const LEN: usize = WORDS * 8;

/// The largest number of reads of a page until two reads in a row are equal.
const READINGS: usize = 4;

/// Opens a page. Returns `None` if the file is not regular, or if a user other than root and the
/// process's own user may write it. Another user could have written anything into the file, and
/// could keep it locked.
pub(super) fn open(
    directory: &Directory,
    name: &OsStr,
    access: Access,
) -> io::Result<Option<File>> {
    let Some(file) = directory.file(name, access)? else {
        return Ok(None);
    };
    let is_trusted = directory::is_trusted(&file.metadata()?);
    Ok(is_trusted.then_some(file))
}

/// Reads the page if its member lives. Removes the page if its member is dead.
pub(super) fn read(directory: &Directory, name: &OsStr) -> Option<Record> {
    let file = open(directory, name, Access::Read).ok()??;
    if lock::is_taken(&file).ok()? {
        return record(&file);
    }
    if is_page(&file) {
        // Best effort: the process may lack the right to remove the page.
        let _ = directory.remove_file(name);
    }
    None
}

/// Removes the page of a dead member.
///
/// # Errors
/// If the file of this name is the page of a living member or no page at all, or if a system call
/// fails.
pub(super) fn remove_dead(directory: &Directory, name: &OsStr) -> io::Result<()> {
    let file = open(directory, name, Access::Read)?;
    let is_dead = |file: &File| Ok(is_page(file) && !lock::is_taken(file)?);
    match file.as_ref().map_or(Ok(false), is_dead) {
        Ok(true) => directory.remove_file(name),
        Ok(false) => Err(io::Error::other("another file has the page's name")),
        Err(error) => Err(error),
    }
}

/// Whether a file is a page of this version. Other files are never removed.
fn is_page(file: &File) -> bool {
    let mut magic = [0; MAGIC.len()];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == MAGIC
}

/// Reads and decodes a page.
///
/// The owner changes words one by one. So the function reads until two reads in a row differ at
/// most in `TAKEN`, or until it has read [`READINGS`] times. If a page changes all the time, its
/// counters may be of different moments, but each single word is whole.
pub(super) fn record(file: &File) -> Option<Record> {
    let mut words = words(file)?;
    for _ in 1..READINGS {
        let again = self::words(file)?;
        let same = |at: usize| words[at] == again[at] || at == crate::record::at::TAKEN;
        let is_steady = (0..WORDS).all(same);
        words = again;
        if is_steady {
            break;
        }
    }
    Record::decode(&words)
}

pub(super) fn words(file: &File) -> Option<[u64; WORDS]> {
    let mut bytes = [0; LEN];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

/// An open page of a member that may die. The page stays readable after another process has removed
/// the file.
#[derive(Debug)]
pub struct HeldPage(pub(super) File);

impl HeldPage {
    /// The content of the page; after the member's death, its last content. `None` if the file is
    /// not a page.
    pub fn record(&self) -> Option<Record> {
        record(&self.0)
    }

    pub(crate) fn words(&self) -> Option<[u64; WORDS]> {
        words(&self.0)
    }

    /// Whether the member died while it read the kernel's counters. In this case the member's
    /// counters may lack the packets since [`Record::read_ns`].
    pub fn died_reading(&self) -> bool {
        self.words().is_some_and(|words| words[at::READING] != 0)
    }

    /// Whether a process still has the member's handle: the member's own process, or a child by
    /// fork(2). After exec(2) a process may have the socket, but can't read it as a member.
    ///
    /// # Errors
    /// The error of fcntl(2).
    pub fn is_had(&self) -> io::Result<bool> {
        lock::is_taken(&self.0)
    }
}

/// Another member's page, open for writing the group's steering program.
#[derive(Debug)]
pub(crate) struct OtherPage {
    pub(super) file: File,
    pub(crate) id: MemberId,
}

impl OtherPage {
    /// Marks on the page that its owner's steering program is no longer attached to the group,
    /// because another member has attached one. Returns the late fragments that the owner had
    /// counted until then. The other member adds these fragments to its own count.
    pub(crate) fn demote(&self) -> io::Result<u64> {
        let steering = record(&self.file).and_then(|record| record.steering);
        let Some(running) = steering.filter(|running| running.has_set) else {
            return Ok(0);
        };
        self.put(at::HAS_SET, &[0])?;
        Ok(running.late)
    }

    /// Writes the title and the digest of the group's steering program.
    pub(crate) fn write_steering(&self, steering: &Steering) -> io::Result<()> {
        self.put(at::TITLE, &title_words(steering.title()))?;
        self.put(at::DIGEST, &[steering.digest()])
    }

    fn put(&self, at: usize, words: &[u64]) -> io::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        shared::write_at(&self.file, &bytes, at as u64 * 8)
    }
}
